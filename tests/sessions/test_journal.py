"""A journal takes lines, says when they are durable, and gives them back."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from sessions.events.errors import StorageFailed, UnknownSession
from sessions.files.journals import Journal, Journals
from sessions.store.protocols import LONGEST_LINE
from sessions.store.queued_log import CHUNK
from tests.sessions.journal_stories import SESSION, CommitListener, end_of, journals_in, reopened, some_lines
from tests.stories import lines_of, received
from tests.waiting import deadline, until


async def test_an_urgent_line_is_durable_when_it_is_reported(tmp_path: Path) -> None:
    (line,) = some_lines(1)
    async with journals_in(tmp_path) as journals:
        journal = await journals.create(SESSION)
        listener = CommitListener(journal)
        journal.append(line, urgent=True)
        assert (journal.end, journal.durable, journals.pending) == (len(line), 0, len(line))
        await listener.until(len(line))
        assert journals.path(SESSION).read_bytes() == line
        assert (journal.durable, journals.pending) == (len(line), 0)
        await journal.close()


async def test_a_line_that_is_not_urgent_waits_for_the_next_urgent_one(tmp_path: Path) -> None:
    lines = some_lines(3)
    async with journals_in(tmp_path) as journals:
        journal = await journals.create(SESSION)
        listener = CommitListener(journal)
        journal.append(lines[0], urgent=False)
        journal.append(lines[1], urgent=False)
        await asyncio.sleep(0.01)
        assert journals.path(SESSION).read_bytes() == b""
        journal.append(lines[2], urgent=True)
        await listener.until(journal.end)
        assert listener.durable == [journal.end]
        assert journals.path(SESSION).read_bytes() == b"".join(lines)
        await journal.close()


async def test_a_line_that_is_not_urgent_is_committed_after_a_moment(tmp_path: Path) -> None:
    (line,) = some_lines(1)
    async with journals_in(tmp_path) as journals:
        journal = await journals.create(SESSION)
        listener = CommitListener(journal)
        journal.append(line, urgent=False)
        await listener.until(len(line))
        assert journals.path(SESSION).read_bytes() == line
        await journal.close()


async def test_a_line_has_left_the_process_before_it_is_durable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (line,), disk = some_lines(1), threading.Event()
    monkeypatch.setattr("sessions.files.append_file.sync_content", lambda _: disk.wait())
    async with journals_in(tmp_path) as journals:
        journal = await journals.create(SESSION)
        listener = CommitListener(journal)
        try:
            journal.append(line, urgent=False)
            async with deadline():
                await journal.until_written()
            assert (journals.path(SESSION).read_bytes(), listener.durable) == (line, [])
        finally:
            disk.set()
        await listener.until(len(line))
        async with deadline():
            await journal.until_written()
            await journal.close()


async def test_waiting_for_a_line_that_cannot_be_written_fails(tmp_path: Path) -> None:
    (line,) = some_lines(1)
    async with journals_in(tmp_path) as journals:
        journal = await journals.create(SESSION)
        journals.path(SESSION).unlink()
        journal.append(line, urgent=True)
        for _ in range(2):
            async with deadline():
                with pytest.raises(StorageFailed, match="is missing"):
                    await journal.until_written()


async def test_closing_commits_what_was_appended_and_refuses_more(tmp_path: Path) -> None:
    lines = some_lines(3)
    async with journals_in(tmp_path) as journals:
        journal = await journals.create(SESSION)
        for line in lines:
            journal.append(line, urgent=False)
        await asyncio.gather(journal.close(), journal.close())
        with pytest.raises(StorageFailed, match="closed"):
            journal.append(lines[0], urgent=True)
    assert (tmp_path / "sessions" / f"{SESSION}.jsonl").read_bytes() == b"".join(lines)


async def test_a_cancelled_close_still_commits(tmp_path: Path) -> None:
    lines = some_lines(2)
    async with journals_in(tmp_path) as journals:
        journal = await journals.create(SESSION)
        for line in lines:
            journal.append(line, urgent=False)
        closing = asyncio.create_task(journal.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        await journal.close()
    assert await reopened(tmp_path) == (lines, end_of(lines))


async def test_a_cancelled_opening_is_finished_and_releases_the_journal(tmp_path: Path) -> None:
    async with journals_in(tmp_path) as journals:
        await (await journals.create(SESSION)).close()
        opening = asyncio.create_task(journals.open(SESSION, fold=lambda _: None))
        await asyncio.sleep(0)
        opening.cancel()
        with pytest.raises(asyncio.CancelledError):
            await opening
        async with deadline():
            # the thread that finishes the opening tells nobody
            while not (journal := await _opened_or_none(journals)):
                await asyncio.sleep(0.005)
        await journal.close()


async def test_a_cancelled_creation_leaves_no_empty_file(tmp_path: Path) -> None:
    async with journals_in(tmp_path) as journals:
        making = asyncio.create_task(journals.create(SESSION))
        await asyncio.sleep(0)
        making.cancel()
        with pytest.raises(asyncio.CancelledError):
            await making
        await until(lambda: SESSION not in journals._open_logs._held and not journals.path(SESSION).exists())
        await (await journals.create(SESSION)).close()


async def _opened_or_none(journals: Journals) -> Journal | None:
    try:
        return (await journals.open(SESSION, fold=lambda _: None))[0]
    except (StorageFailed, UnknownSession):
        return None


async def test_a_long_queue_is_written_in_chunks_and_a_longer_line_at_once(tmp_path: Path) -> None:
    lines = [*some_lines(300, 3000), b"y" * (2 * CHUNK) + b"\n"]
    async with journals_in(tmp_path) as journals:
        journal = await journals.create(SESSION)
        listener = CommitListener(journal)
        for line in lines:
            journal.append(line, urgent=True)
        await listener.until(journal.end)
        steps = [end - begin for begin, end in zip([0, *listener.durable], listener.durable, strict=False)]
        assert all(step <= CHUNK for step in steps[:-1])
        assert steps[-1] == len(lines[-1])
        assert len(steps) >= 4
        await journal.close()
    assert (tmp_path / "sessions" / f"{SESSION}.jsonl").read_bytes() == b"".join(lines)


async def test_lines_are_found_by_their_seq_among_short_and_long_ones(tmp_path: Path) -> None:
    sizes = [LONGEST_LINE - 1000 if n == 50 else 300_000 if n % 40 == 7 else n * 37 % 900 for n in range(120)]
    lines = lines_of([received("x" * size, f"m{n}") for n, size in enumerate(sizes)])
    async with journals_in(tmp_path) as journals:
        journal = await journals.create(SESSION)
        listener = CommitListener(journal)
        for line in lines:
            journal.append(line, urgent=True)
        await listener.until(journal.end)
        for seq in range(1, len(lines) + 1):
            assert await journal.lines(seq, limit=1) == [lines[seq - 1]]
        assert await journal.lines(1, limit=10**9) == lines
        assert await journal.lines(len(lines) + 1, limit=1) == []
        some = await journal.lines(3, limit=2000)
        assert some == lines[2 : 2 + len(some)]
        assert sum(map(len, some)) <= 2000 < sum(map(len, some)) + len(lines[2 + len(some)])
        await journal.close()


async def test_lines_returns_only_durable_lines(tmp_path: Path) -> None:
    lines = some_lines(3)
    async with journals_in(tmp_path) as journals:
        journal = await journals.create(SESSION)
        listener = CommitListener(journal)
        journal.append(lines[0], urgent=True)
        await listener.until(len(lines[0]))
        with journals.path(SESSION).open("ab") as file:  # as if written and not yet synced
            file.write(lines[1])
        assert await journal.lines(1, limit=10**6) == lines[:1]
        await journal.close()


async def test_a_journal_is_readable_by_the_owner_only(tmp_path: Path) -> None:
    old = os.umask(0)
    try:
        async with journals_in(tmp_path) as journals:
            journal = await journals.create(SESSION)
            await journal.close()
            assert stat.S_IMODE(journals.path(SESSION).stat().st_mode) == 0o600
    finally:
        os.umask(old)


@pytest.mark.parametrize("name", ["", ".", "../x", "a/b", "a\n", "a\0b", "-a", "x" * 65, ".hidden", "é"])
async def test_only_a_session_id_becomes_a_path(tmp_path: Path, name: str) -> None:
    async with journals_in(tmp_path) as journals:
        with pytest.raises(UnknownSession):
            journals.path(name)


async def test_one_journal_has_one_writer(tmp_path: Path) -> None:
    async with journals_in(tmp_path) as journals:
        journal = await journals.create(SESSION)
        with pytest.raises(StorageFailed, match="open"):
            await journals.open(SESSION, fold=lambda _: None)
        await journal.close()
        with pytest.raises(StorageFailed, match="exists"):
            await journals.create(SESSION)
        again, _ = await journals.open(SESSION, fold=lambda _: None)
        await again.close()


async def test_what_is_not_a_journal_is_not_opened(tmp_path: Path) -> None:
    async with journals_in(tmp_path) as journals:
        with pytest.raises(UnknownSession):
            await journals.open(SESSION, fold=lambda _: None)
        folder = tmp_path / "sessions"
        (tmp_path / "elsewhere").write_bytes(b"")
        (folder / "link.jsonl").symlink_to(tmp_path / "elsewhere")
        os.mkfifo(folder / "fifo.jsonl")
        (folder / "folder.jsonl").mkdir()
        for name in ("link", "fifo", "folder"):
            with pytest.raises(StorageFailed):
                await journals.open(name, fold=lambda _: None)


_STEP = st.tuples(st.integers(0, 2), st.integers(1, 3000), st.booleans(), st.sampled_from([0, 0, 0, 1, 60]))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(_STEP, max_size=30))
def test_what_is_durable_is_always_a_prefix_of_what_was_appended(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[int, int, bool, int]]
) -> None:
    home = tmp_path_factory.mktemp("home")
    asyncio.run(_append_in_any_order(home, steps))


async def _append_in_any_order(home: Path, steps: list[tuple[int, int, bool, int]]) -> None:
    async with journals_in(home) as journals:
        written = [b"", b"", b""]
        open_ = [await journals.create(f"s{n}") for n in range(3)]
        ears = [CommitListener(journal) for journal in open_]
        for which, size, urgent, millis in steps:
            line = b"%d" % (size % 10) * size + b"\n"
            open_[which].append(line, urgent=urgent)
            written[which] += line
            await asyncio.sleep(millis / 1000)
            for n, listener in enumerate(ears):
                durable = listener.durable[-1] if listener.durable else 0
                assert journals.path(f"s{n}").read_bytes()[:durable] == written[n][:durable]
        for n, journal in enumerate(open_):
            await journal.close()
            assert journals.path(f"s{n}").read_bytes() == written[n]
            assert ears[n].durable == sorted(set(ears[n].durable))
            assert not ears[n].failures
            assert journal.durable == journal.end == len(written[n])
        assert journals.pending == 0
