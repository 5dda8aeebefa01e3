"""The committer's order of work, and what it reports when the disk is slow or fails."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import pytest

from sessions.events.errors import StorageFailed
from sessions.files.committer import THREADS, UNSYNCED, Committer
from sessions.files.journals import Journals
from tests.sessions.journal_stories import CommitListener, journals_in, some_lines
from tests.waiting import deadline


class Slow:
    """A commit whose sync lasts until the test lets it end, as `ending` says: a disk that obeys so cannot be had."""

    def __init__(self, steps: list[str], name: str, ending: Callable[[], None] = lambda: None) -> None:
        self.syncing = threading.Event()
        self.go_on = threading.Event()
        self.settled: asyncio.Queue[StorageFailed | None] = asyncio.Queue()
        self._steps, self._name, self._ending = steps, name, ending

    def write(self) -> None:
        self._steps.append(f"write {self._name}")

    def sync(self) -> None:
        self._steps.append(f"sync {self._name}")
        self.syncing.set()
        assert self.go_on.wait(10)
        self._ending()

    def settle(self, failure: StorageFailed | None) -> None:
        self.settled.put_nowait(failure)

    async def outcome(self) -> StorageFailed | None:
        async with deadline():
            return await self.settled.get()


def quick(steps: list[str], name: str) -> Slow:
    """A commit that waits for nobody."""
    commit = Slow(steps, name)
    commit.go_on.set()
    return commit


def _lose_pages() -> None:
    raise StorageFailed("the disk is gone", fatal=True)


def _make_a_mistake() -> None:
    raise ZeroDivisionError("a mistake")


async def _syncing(*commits: Slow) -> None:
    for commit in commits:
        assert await asyncio.to_thread(commit.syncing.wait, 10)


async def test_a_slow_journal_does_not_delay_the_reports_of_others() -> None:
    async with Committer() as committer:
        slow, other = Slow([], "slow"), quick([], "other")
        committer.submit(slow)
        await _syncing(slow)
        for _ in range(3):
            committer.submit(other)
            assert await other.outcome() is None
        assert slow.settled.empty()
        slow.go_on.set()
        assert await slow.outcome() is None
        assert committer.syncs == 4


async def test_all_waiting_journals_are_written_before_any_is_synced() -> None:
    steps: list[str] = []
    async with Committer() as committer:
        busy = [Slow([], "busy") for _ in range(THREADS)]
        for commit in busy:
            committer.submit(commit)
        await _syncing(*busy)
        waiting = [quick(steps, str(n)) for n in range(5)]
        for commit in waiting:
            committer.submit(commit)
        busy[0].go_on.set()
        for commit in (busy[0], *waiting):
            assert await commit.outcome() is None
        for commit in busy:
            commit.go_on.set()
    assert [step.split()[0] for step in steps] == ["write"] * 5 + ["sync"] * 5


async def test_the_number_of_written_but_unsynced_journals_is_bounded() -> None:
    steps: list[str] = []
    async with Committer() as committer:
        busy = [Slow([], "busy") for _ in range(THREADS)]
        for commit in busy:
            committer.submit(commit)
        await _syncing(*busy)
        waiting = [quick(steps, str(n)) for n in range(3 * UNSYNCED)]
        for commit in waiting:
            committer.submit(commit)
        busy[0].go_on.set()
        for commit in waiting:
            assert await commit.outcome() is None
        for commit in busy:
            commit.go_on.set()
    open_at_once = accumulate(1 if step.startswith("write") else -1 for step in steps)
    assert max(open_at_once) == UNSYNCED + 1  # one thread works, and holds one itself


async def test_after_a_failed_sync_nothing_is_written_or_reported_durable_and_every_journal_fails() -> None:
    steps: list[str] = []
    async with Committer() as committer:
        failing, under_way, idle = Slow([], "f", _lose_pages), Slow([], "u"), quick(steps, "idle")
        for commit in (failing, under_way, idle):
            committer.attach(commit)
        committer.submit(failing)
        committer.submit(under_way)
        await _syncing(failing, under_way)
        failing.go_on.set()
        failure = await committer.failure
        assert failure.fatal
        under_way.go_on.set()  # its own sync ends well, and is still not reported
        late = quick(steps, "late")
        committer.submit(late)
        for commit in (failing, under_way, idle, late):
            assert await commit.outcome() is failure
        with pytest.raises(StorageFailed):
            committer.attach(quick([], "new"))
    assert (steps, committer.syncs) == ([], 0)
    later = [commit.settled.get_nowait() for commit in (failing, under_way, late) if not commit.settled.empty()]
    assert None not in later


async def test_an_unexpected_exception_in_a_commit_is_fatal() -> None:
    async with Committer() as committer:
        commit = Slow([], "mistaken", _make_a_mistake)
        commit.go_on.set()
        committer.submit(commit)
        assert "ZeroDivisionError" in str(await commit.outcome())
        assert committer.failure.done()


async def test_a_failing_listener_does_not_prevent_other_reports(tmp_path: Path) -> None:
    faults: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context))

    def fail(_: object) -> None:
        raise ZeroDivisionError

    async with Committer() as committer:
        (tmp_path / "sessions").mkdir(exist_ok=True)
        journals = Journals(tmp_path / "sessions", tmp_path / "quarantine", committer)
        for name in ("one", "two", "three"):
            (await journals.create(name)).on_commit(fail, fail)
        listener = CommitListener(await journals.create("four"))
        committer.fail(StorageFailed("the disk is gone", fatal=True))
        assert len(listener.failures) == 1
    assert [type(fault["exception"]) for fault in faults] == [ZeroDivisionError] * 3


async def test_closing_finishes_commits_in_progress_and_refuses_new_ones(tmp_path: Path) -> None:
    (line,) = some_lines(1)
    async with Committer() as committer:
        (tmp_path / "sessions").mkdir(exist_ok=True)
        journals = Journals(tmp_path / "sessions", tmp_path / "quarantine", committer)
        busy, idle = await journals.create("busy"), await journals.create("idle")
        ears = CommitListener(busy), CommitListener(idle)
        busy.append(line, urgent=True)
        idle.append(line, urgent=False)
    assert ears[0].durable == [len(line)]
    assert (ears[1].durable, len(ears[1].failures)) == ([], 1)
    with pytest.raises(StorageFailed):
        idle.append(line, urgent=True)
    await busy.close()
    await idle.close()
    assert committer.pending == 0


async def test_many_journals_are_each_reported_once_for_each_commit(tmp_path: Path) -> None:
    lines = some_lines(6)
    async with journals_in(tmp_path) as journals:
        open_ = [await journals.create(f"s{n}") for n in range(40)]
        ears = [CommitListener(journal) for journal in open_]
        for line in lines:
            for journal in open_:
                journal.append(line, urgent=True)
            await asyncio.sleep(0)
        for journal, listener in zip(open_, ears, strict=True):
            await listener.until(journal.end)
            assert listener.durable == sorted(set(listener.durable))
            await journal.close()
            assert journals.path(f"s{open_.index(journal)}").read_bytes() == b"".join(lines)
