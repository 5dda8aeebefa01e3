"""Guards of the journals: what must be durable, or refused, before the next step is taken."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from sessions.catalog.durability_check import acknowledged_heads
from sessions.catalog.scan import scan_logs
from sessions.catalog.sqlite_catalog import SqliteCatalog
from sessions.events.codec import FIRST, encode, replace_surrogates
from sessions.events.errors import JournalDamaged, StorageFailed
from sessions.events.events import FORMAT, Recorded, UnknownEvent
from sessions.files import journal_folder
from sessions.files.append_file import AppendFile
from sessions.files.committer import THREADS, Committer
from sessions.files.fsync import make_folder, write_new
from sessions.files.journal_folder import JournalFolder, open_lines
from sessions.files.journals import Journals
from sessions.files.repair import create_to_append
from sessions.state.transcript import Transcript
from sessions.store import recorder as recorders
from sessions.store.log_writer import LineTooLong
from sessions.store.protocols import LONGEST_LINE, START
from sessions.store.recorder import Recorder, open_session
from tests.sessions.journal_files import catalog_file, messages, row_of, write_journal
from tests.sessions.journal_stories import SESSION, CommitListener, end_of, journals_in, reopened, some_lines, write_raw
from tests.sessions.test_committer import Slow, _lose_pages, _syncing, quick
from tests.stored import forked, stored
from tests.stories import AT, lines_of, opened, received
from tests.waiting import DEADLINE

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


@pytest.fixture
def file(tmp_path: Path) -> AppendFile:
    """A new and empty journal."""
    return create_to_append(tmp_path / "s.jsonl")


def failing(monkeypatch: pytest.MonkeyPatch, call: str, fails: Callable[[int], bool] = lambda _: True) -> None:
    """Have a call of `os` fail for the descriptors for which `fails` returns True."""
    whole = getattr(os, call)

    def fail(descriptor: int) -> None:
        if fails(descriptor):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        whole(descriptor)

    monkeypatch.setattr(os, call, fail)


def test_a_file_that_accepts_no_bytes_is_an_error_and_not_an_endless_loop(
    file: AppendFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    tries = 0

    def takes_nothing(*_: object) -> int:
        nonlocal tries
        tries += 1
        assert tries < 10
        return 0

    monkeypatch.setattr(os, "pwrite", takes_nothing)
    with pytest.raises(StorageFailed, match="could not be written"):
        file.write(b"one line\n")


def test_a_link_in_place_of_a_journal_is_not_followed_for_writing(file: AppendFile, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.touch()
    (tmp_path / "s.jsonl").unlink()
    (tmp_path / "s.jsonl").symlink_to(elsewhere)
    with pytest.raises(StorageFailed, match="could not be opened"):
        file.write(b"one line\n")
    assert elsewhere.read_bytes() == b""


def test_the_truncation_after_a_failed_write_is_synced(
    file: AppendFile, steps: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    with pytest.raises(StorageFailed) as caught:
        file.write(b"one line\n")
    assert (steps, caught.value.fatal) == (["cut", "sync"], False)


def test_a_truncation_that_cannot_be_synced_after_a_failed_write_is_fatal(
    file: AppendFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    failing(monkeypatch, "fsync")
    with pytest.raises(StorageFailed) as caught:
        file.write(b"one line\n")
    assert caught.value.fatal


async def test_after_a_failed_sync_no_thread_syncs_what_was_written_before() -> None:
    """The event loop is held up meanwhile: the threads stop by themselves, before it has heard of the failure."""
    steps: list[str] = []
    async with Committer() as committer:
        others = [Slow([], "other") for _ in range(THREADS - 1)]
        lost = Slow([], "lost", _lose_pages)
        for commit in (*others, lost):
            committer.submit(commit)
        await _syncing(*others, lost)
        written, last = quick(steps, "written"), Slow(steps, "last")
        committer.submit(written)
        committer.submit(last)
        others[0].go_on.set()  # its thread writes both, and is busy with the sync of the last
        await _syncing(last)
        assert await others[0].outcome() is None
        lost.go_on.set()
        until = time.monotonic() + DEADLINE
        while len(committer._reports) < 2 and time.monotonic() < until:
            time.sleep(0.001)  # noqa: ASYNC251 - the event loop must not go on
        assert steps == ["write written", "write last", "sync last"]
        for commit in (*others, last):
            commit.go_on.set()
        assert (await written.outcome()) is (await lost.outcome()) is committer._broken


async def test_a_torn_tail_is_truncated_durably_before_the_journal_is_used(tmp_path: Path, steps: list[str]) -> None:
    write_raw(tmp_path, b"".join(some_lines(3)) + b"{")
    await reopened(tmp_path)
    cut = steps.index("cut")
    assert steps[cut : cut + 4] == ["cut", "sync", "sync content", "sync folder"]


async def test_an_unconfirmed_journal_is_made_durable_including_its_name(tmp_path: Path, steps: list[str]) -> None:
    write_raw(tmp_path, b"".join(some_lines(3)))
    await reopened(tmp_path)
    assert steps == ["sync content", "sync folder"]


@pytest.mark.parametrize("call", ["fsync", "fdatasync"])
async def test_a_truncation_or_an_opening_that_cannot_be_synced_fails_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    path = write_raw(tmp_path, b"".join(some_lines(3)) + b"{")
    inode = path.stat().st_ino
    async with journals_in(tmp_path) as journals:
        other = CommitListener(await journals.create("other"))
        failing(monkeypatch, call, lambda descriptor: os.fstat(descriptor).st_ino == inode)
        with pytest.raises(StorageFailed, match="could not be made durable") as caught:
            await journals.open(SESSION, fold=lambda _: None)
        assert caught.value.fatal
        assert other.failures == [caught.value]


async def test_a_journal_that_lacks_acknowledged_events_is_refused_and_left_unchanged(tmp_path: Path) -> None:
    lines = some_lines(5)
    content = b"".join(lines[:3]) + lines[3][:9]
    path = write_raw(tmp_path, content)
    async with journals_in(tmp_path) as journals:
        with pytest.raises(JournalDamaged, match="acknowledged events are missing: it ends with event 3, but event 4 was"):
            await journals.open(SESSION, fold=lambda _: None, least=4)
        assert path.read_bytes() == content
        journal, _ = await journals.open(SESSION, fold=lambda _: None, least=3)
        await journal.close()


async def test_only_a_regular_file_is_opened_as_a_journal(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir()
    os.mkfifo(tmp_path / "sessions" / f"{SESSION}.jsonl")
    with pytest.raises(StorageFailed, match="it is not a regular file"):
        await reopened(tmp_path)


async def test_a_position_at_the_end_with_another_sum_is_rejected(tmp_path: Path) -> None:
    lines = some_lines(4)
    write_raw(tmp_path, b"".join(lines))
    with pytest.raises(JournalDamaged, match="differs from the acknowledged event") as caught:
        await reopened(tmp_path, msgspec.structs.replace(end_of(lines), sum=b"0" * 16))
    assert caught.value.line == 0


async def test_a_journal_that_the_catalog_does_not_confirm_is_made_durable_including_its_name(
    tmp_path: Path, steps: list[str]
) -> None:
    write_raw(tmp_path, b"".join(some_lines(3)))
    async with (
        SqliteCatalog(tmp_path / "catalog.sqlite", JournalFolder(tmp_path / "sessions")) as catalog,
        journals_in(tmp_path) as journals,
    ):
        steps.clear()
        found = await open_session(journals, catalog, SESSION)
        assert steps == ["sync content", "sync folder"]
        await found.log.close()


async def test_a_session_that_is_shorter_than_in_the_catalog_is_refused(tmp_path: Path) -> None:
    path, transcript, _ = write_journal(tmp_path / "sessions", 1, *messages(1, 5))
    async with SqliteCatalog(tmp_path / "catalog.sqlite", JournalFolder(tmp_path / "sessions")) as catalog:
        catalog.put(row_of(path, transcript))
    await _refused_when_shortened(tmp_path, path)


async def test_a_session_that_is_shorter_than_its_checkpoint_is_refused(tmp_path: Path) -> None:
    """The row that knew as much is lost: the checkpoint, which the journal contradicts, still says how far it went."""
    path, transcript, end = write_journal(tmp_path / "sessions", 1, *messages(1, 5))
    async with SqliteCatalog(tmp_path / "catalog.sqlite", JournalFolder(tmp_path / "sessions")) as catalog:
        catalog.save_checkpoint(transcript.session, end, transcript)
    async with catalog_file(tmp_path / "catalog.sqlite") as file:
        await file.execute("DELETE FROM sessions")
        await file.commit()
    assert acknowledged_heads(tmp_path / "catalog.sqlite") == {transcript.session: 6}
    await _refused_when_shortened(tmp_path, path)


async def _refused_when_shortened(home: Path, path: Path) -> None:
    """Take the last of six events from a journal, and see that its session is refused."""
    path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    async with SqliteCatalog(home / "catalog.sqlite", JournalFolder(path.parent)) as catalog, journals_in(home) as journals:
        with pytest.raises(JournalDamaged, match="acknowledged events are missing: it ends with event 5, but event 6 was"):
            await open_session(journals, catalog, path.stem)


async def test_the_failure_of_a_journal_is_raised_by_every_later_append(tmp_path: Path) -> None:
    async with Committer() as committer:
        (tmp_path / "sessions").mkdir()
        journals = Journals(tmp_path / "sessions", tmp_path / "quarantine", committer)
        journal = await journals.create("one")
        listener = CommitListener(journal)
        failure = StorageFailed("the disk is gone", fatal=True)
        committer.fail(failure)
        with pytest.raises(StorageFailed) as caught:
            journal.append(b"{}\n", urgent=True)
        assert caught.value is failure is listener.failures[0]


async def test_after_the_storage_has_failed_no_journal_is_touched(tmp_path: Path) -> None:
    content = b"".join(some_lines(3)) + b"{"
    path = write_raw(tmp_path, content)
    async with Committer() as committer:
        journals = Journals(tmp_path / "sessions", tmp_path / "quarantine", committer)
        committer.fail(StorageFailed("the disk is gone", fatal=True))
        with pytest.raises(StorageFailed):
            await journals.open(SESSION, fold=lambda _: None)
        with pytest.raises(StorageFailed):
            await journals.create("another")
    assert path.read_bytes() == content
    assert [each.name for each in path.parent.iterdir()] == [path.name]


async def test_a_recorder_refuses_an_event_larger_than_a_line_may_be(tmp_path: Path) -> None:
    async with journals_in(tmp_path) as journals:
        journal = await journals.create(SESSION)
        recorder = Recorder(journal, START, Transcript(), lambda: NOW)
        await recorder.append_durable(opened(SESSION))
        with pytest.raises(LineTooLong):
            recorder.append(received("x" * LONGEST_LINE))
        assert await recorder.append_durable(received("y")) == 2
        await recorder.close()


async def test_a_recorder_keeps_a_bounded_number_of_bytes_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorders, "RECENT", 2000)
    async with journals_in(tmp_path) as journals:
        recorder = Recorder(await journals.create(SESSION), START, Transcript(), lambda: NOW)
        for number in range(10):
            await recorder.append_durable(received("x" * 500, f"m{number}"))
        assert recorder.recent(0) is None
        assert len(recorder.recent(9) or ()) == 1
        await recorder.close()


async def test_an_event_that_cannot_be_folded_is_not_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> Transcript:
        raise OverflowError("a count that no fold takes")

    async with journals_in(tmp_path) as journals:
        recorder = Recorder(await journals.create(SESSION), START, Transcript(), lambda: NOW)
        await recorder.append_durable(opened(SESSION))
        with monkeypatch.context() as patched:
            patched.setattr(recorders, "evolve", refuse)
            with pytest.raises(OverflowError):
                recorder.append(received("x"))
        assert await recorder.append_durable(received("y")) == 2
        assert recorder.transcript.head == recorder.durable == 2
        assert [b'"text":"y"' in line for line in await recorder.log.lines(1, limit=10**6)] == [False, True]
        await recorder.close()


async def test_waiting_for_a_line_raises_the_failure_of_the_storage(tmp_path: Path) -> None:
    async with Committer() as committer:
        (tmp_path / "sessions").mkdir()
        journals = Journals(tmp_path / "sessions", tmp_path / "quarantine", committer)
        recorder = Recorder(await journals.create(SESSION), START, Transcript(), lambda: NOW)
        waiting = asyncio.create_task(recorder.until_durable(recorder.append(received("x"))))
        await asyncio.sleep(0)
        failure = StorageFailed("the disk is gone", fatal=True)
        committer.fail(failure)
        await asyncio.sleep(0)
        assert waiting.done()
        assert waiting.exception() is failure
        late = asyncio.create_task(recorder.until_durable(1))
        await asyncio.sleep(0)
        assert late.done()
        assert late.exception() is failure


async def test_subscribers_are_notified_before_the_turn_that_waits_for_the_same_line(tmp_path: Path) -> None:
    went_on: list[str] = []
    async with journals_in(tmp_path) as journals:
        recorder = Recorder(await journals.create(SESSION), START, Transcript(), lambda: NOW)

        def wake() -> None:
            asyncio.get_running_loop().call_soon(went_on.append, "subscriber")

        recorder.on_durable(wake)
        await recorder.append_durable(opened(SESSION))
        went_on.append("turn")
        await recorder.close()
    assert went_on == ["subscriber", "turn"]


def test_a_page_of_lines_is_verified(tmp_path: Path) -> None:
    lines = some_lines(4)
    path = write_raw(tmp_path, b"".join([*lines[:2], lines[2].replace(b"x", b"y", 1), lines[3]]))
    with pytest.raises(JournalDamaged):
        stored(path).lines(2, 10**6)


def test_a_bounded_part_of_an_endless_line_is_held_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_folder, "LONGEST_LINE", 100)
    monkeypatch.setattr(journal_folder, "SMALLEST_BLOCK", 50)
    monkeypatch.setattr(journal_folder, "LARGEST_BLOCK", 50)
    with open_lines(write_raw(tmp_path, b"x" * 1000)) as lines:
        pieces = list(lines.forward(START))
    assert b"".join(pieces) == b"x" * 1000
    assert {len(piece) for piece in pieces} == {150, 100}


def test_a_journal_of_a_later_format_is_not_read(tmp_path: Path) -> None:
    event = msgspec.structs.replace(opened(SESSION), format=FORMAT + 1)
    path = write_raw(tmp_path, b"".join(lines_of([event])))
    found = scan_logs(JournalFolder(tmp_path / "sessions"), {})
    assert found.changed == []
    assert "this version supports only up to" in found.unreadable[path.stem]


def test_an_unverified_head_does_not_count_as_acknowledged(tmp_path: Path) -> None:
    write_raw(tmp_path, b"".join(some_lines(5)))
    (row,) = scan_logs(JournalFolder(tmp_path / "sessions"), {}).changed
    assert (row.head, row.acknowledged) == (5, 1)
    assert msgspec.structs.replace(row, mtime_ns=1).acknowledged == 5


def test_an_event_of_an_unknown_kind_is_never_encoded_again() -> None:
    with pytest.raises(TypeError, match="copy its line"):
        encode(Recorded(seq=1, at=AT, turn=None, event=UnknownEvent(kind="unheard_of", line=b"{}")), FIRST)


def test_lone_surrogates_are_replaced_because_utf8_cannot_encode_them() -> None:
    assert replace_surrogates("a\ud800b") == "a\ufffdb"


def test_a_fork_is_durable_under_its_draft_and_then_under_its_name(tmp_path: Path, steps: list[str]) -> None:
    parent = write_raw(tmp_path, b"".join(lines_of([opened(SESSION)])))
    forked(parent, "20261121-120000-bbbbbb", "other", NOW)
    assert steps == ["sync content", "sync folder", "rename", "sync folder"]


def test_a_new_file_is_durable_including_its_name(tmp_path: Path, steps: list[str]) -> None:
    write_new(tmp_path / "new", [b"content"])
    assert steps == ["sync content", "sync folder"]


def test_a_new_file_does_not_replace_an_existing_one(tmp_path: Path) -> None:
    (tmp_path / "new").write_bytes(b"what is there")
    with pytest.raises(FileExistsError):
        write_new(tmp_path / "new", [b"content"])
    assert (tmp_path / "new").read_bytes() == b"what is there"


def test_a_new_folder_and_its_new_parents_are_durable_including_their_names(tmp_path: Path, steps: list[str]) -> None:
    make_folder(tmp_path / "a" / "b")
    assert steps == ["sync folder", "sync folder"]


def test_a_new_file_that_cannot_be_made_durable_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing(monkeypatch, "fdatasync")
    with pytest.raises(OSError, match="Input/output"):
        write_new(tmp_path / "new", [b"content"])
    assert list(tmp_path.iterdir()) == []
