"""The catalog: derived, so that its file may be lost in any way at any time; what it says is what the journals say."""

from __future__ import annotations

import asyncio
import errno
import os
import random
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sessions.catalog import receipt_batches, sqlite_catalog
from sessions.catalog.catalog_file import CatalogFile
from sessions.catalog.durability_check import acknowledged_heads, forget
from sessions.catalog.receipt_batches import CollectedReceipts
from sessions.catalog.scan import scan_logs
from sessions.catalog.sqlite import Unavailable, connect
from sessions.catalog.sqlite_catalog import SqliteCatalog
from sessions.events.errors import StorageFailed
from sessions.events.events import SessionClosed, Succession
from sessions.files.journal_folder import JournalFolder
from sessions.state.transcript import FOLD
from sessions.store.catalog import SessionRow
from sessions.store.protocols import START
from sessions.store.recorder import is_unchanged
from tests.sessions.journal_files import (
    catalog_file,
    end_of,
    ended,
    extend_journal,
    messages,
    row_of,
    session_id,
    write_journal,
)
from tests.stories import AT
from tests.waiting import until


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "catalog.sqlite"


async def filled(file: Path, folder: Path) -> None:
    """A catalog at rest that knows three sessions: `main` with a predecessor, and `work`."""
    first, old, _ = write_journal(folder, 1, *messages(1, 5))
    second, new, end = write_journal(folder, 2, *messages(6, 9), ended(), succeeds=Succession(session=session_id(1), seq=6))
    third, work, _ = write_journal(folder, 3, key="work")
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        await catalog.receipts("owner", "main")
        for path, transcript in ((first, old), (second, new), (third, work)):
            catalog.put(row_of(path, transcript))
        catalog.save_checkpoint(new.session, end, new)


async def answers(file: Path, folder: Path) -> dict[str, object]:
    """Return the answers of the catalog to the gateway's questions, without what only a kept file can know."""
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        receipts = await catalog.receipts("owner", "main")
        current = await catalog.current("owner", "main")
        assert current is not None
        return {
            "sessions": [(row.key, row.session, row.head, row.at) for row in await catalog.sessions("owner")],
            "chain": [(row.session, row.head) for row in catalog.chain(current.session)],
            "successor": getattr(catalog.successor(session_id(1)), "session", None),
            "stranger": await catalog.sessions("stranger"),
            "none": await catalog.current("owner", "other"),
            "ids": {id_: receipts.find(id_) for id_ in ("m1", "m5", "m6", "m9", "m10")},
        }


# Failure 15: the guard is `scan_logs`, which reads only journals whose size or time has changed.
async def test_an_intact_catalog_confirms_unchanged_journals(file: Path, folder: Path) -> None:
    await filled(file, folder)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert catalog.rebuilt is None
        assert await catalog.unsettled() == []
        assert all(is_unchanged(JournalFolder(folder), catalog.row(session_id(number))) for number in (1, 2, 3))
        assert (await answers_of(catalog)) == [("main", session_id(2), 6, AT), ("work", session_id(3), 1, AT)]


async def answers_of(catalog: SqliteCatalog) -> list[tuple[str, str, int, str]]:
    return [(row.key, row.session, row.head, row.at) for row in await catalog.sessions("owner")]


def mode(file: Path) -> int:
    return stat.S_IMODE(file.stat().st_mode)


async def test_a_first_start_finds_nothing_and_rebuilds_nothing(file: Path, folder: Path) -> None:
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert (catalog.rebuilt, await catalog.sessions("owner"), catalog.unreadable) == (None, [], {})
    assert mode(file) == 0o600


def deleted(file: Path) -> None:
    file.unlink()


def emptied(file: Path) -> None:
    file.write_bytes(b"")


def halved(file: Path) -> None:
    os.truncate(file, file.stat().st_size // 2)


def replaced_by_noise(file: Path) -> None:
    file.write_bytes(random.Random(7).randbytes(20_000))


def written_by_another_version(file: Path) -> None:
    blob = bytearray(file.read_bytes())
    blob[60:64] = (99).to_bytes(4, "big")  # the header's user_version
    file.write_bytes(blob)


def deleted_beside_a_hot_journal(file: Path) -> None:
    file.with_name("catalog.sqlite-journal").write_bytes(b"\xd9\xd5\x05\xf9\x20\xa1\x63\xd7" + bytes(500))
    file.unlink()


@pytest.mark.parametrize(
    "harm",
    [deleted, emptied, halved, replaced_by_noise, written_by_another_version, deleted_beside_a_hot_journal],
)
async def test_a_damaged_catalog_loses_nothing_and_is_reported(file: Path, folder: Path, harm: object) -> None:
    await filled(file, folder)
    before = await answers(file, folder)
    assert callable(harm)
    harm(file)
    assert await answers(file, folder) == before
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert catalog.rebuilt is None, "it is whole again"


@pytest.mark.parametrize("harm", [deleted, halved, replaced_by_noise, written_by_another_version])
async def test_a_rebuilt_catalog_confirms_nothing_and_says_why(file: Path, folder: Path, harm: object) -> None:
    await filled(file, folder)
    assert callable(harm)
    harm(file)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert catalog.rebuilt is not None
        assert catalog.rebuilt.startswith("catalog.sqlite ")
        assert {row.session for row in await catalog.unsettled()} == {session_id(1), session_id(2), session_id(3)}
        assert not any(is_unchanged(JournalFolder(folder), catalog.row(session_id(number))) for number in (1, 2, 3))


def contents(file: Path) -> bytes:
    return file.read_bytes()


def strew(file: Path, whole: bytes, chance: random.Random) -> None:
    blob = bytearray(whole)
    for _ in range(chance.choice((1, 8, 64))):
        blob[chance.randrange(len(blob))] = chance.randrange(256)
    file.write_bytes(blob)


async def test_random_bytes_anywhere_in_the_catalog_change_no_result(file: Path, folder: Path) -> None:
    await filled(file, folder)
    before = await answers(file, folder)
    whole = contents(file)
    for round_ in range(60):
        strew(file, whole, random.Random(round_))
        assert await answers(file, folder) == before


async def test_damage_while_the_catalog_is_open_stops_nothing_and_is_repaired(file: Path, folder: Path) -> None:
    await filled(file, folder)
    before = await answers(file, folder)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        replaced_by_noise(file)
        assert await catalog.checkpoint(session_id(2)) is None
        row = catalog.row(session_id(3))
        assert row is not None
        catalog.put(row)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert catalog.rebuilt is None, "the file was made anew while it was open"
        assert is_unchanged(JournalFolder(folder), catalog.row(session_id(3)))
    assert await answers(file, folder) == before


async def test_a_grown_journal_is_read_again_and_not_confirmed(file: Path, folder: Path) -> None:
    await filled(file, folder)
    transcript, _ = extend_journal(folder / f"{session_id(2)}.jsonl", *messages(10, 12), SessionClosed(reason="new"))
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        row = catalog.row(session_id(2))
        assert row is not None
        assert (row.head, row.closed, row.settled, row.succeeds) == (10, True, False, transcript.succeeds)
        assert [row.session for row in await catalog.unsettled()] == [session_id(2)]
        assert not is_unchanged(JournalFolder(folder), catalog.row(session_id(2)))


async def test_a_journal_rewritten_with_the_same_size_is_not_confirmed(file: Path, folder: Path) -> None:
    await filled(file, folder)
    path = folder / f"{session_id(2)}.jsonl"
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert is_unchanged(JournalFolder(folder), catalog.row(path.stem))
        stat_ = path.stat()
        os.utime(path, ns=(stat_.st_atime_ns, stat_.st_mtime_ns + 1_000_000))
        assert not is_unchanged(JournalFolder(folder), catalog.row(path.stem))


async def test_a_journal_that_was_only_read_is_not_confirmed_at_the_next_start(file: Path, folder: Path) -> None:
    write_journal(folder, 1, *messages(1, 2))
    for _ in range(2):
        async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
            assert not is_unchanged(JournalFolder(folder), catalog.row(session_id(1)))
            assert len(await catalog.unsettled()) == 1


async def test_an_unsettled_session_is_not_confirmed(file: Path, folder: Path) -> None:
    path, transcript, _ = write_journal(folder, 1, *messages(1, 1))
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        catalog.put(row_of(path, transcript, settled=False))
        assert not is_unchanged(JournalFolder(folder), catalog.row(session_id(1)))
        catalog.put(row_of(path, transcript))
        assert is_unchanged(JournalFolder(folder), catalog.row(session_id(1)))
        extend_journal(path, ended())
        assert not is_unchanged(JournalFolder(folder), catalog.row(session_id(1)))


@pytest.mark.parametrize("how", ["gone", "cut"])
async def test_the_loss_of_events_is_reported_at_every_start_until_it_is_forgotten(
    file: Path, folder: Path, how: str
) -> None:
    await filled(file, folder)
    path = folder / f"{session_id(2)}.jsonl"
    head = acknowledged_heads(file)[session_id(2)]
    if how == "gone":
        path.unlink()
    else:
        path.write_bytes(b"".join(path.read_bytes().splitlines(keepends=True)[:-1]))
    for _ in range(2):
        async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
            current = await catalog.current("owner", "main")
            assert current is not None
            assert (current.session, current.head) == (session_id(2), head)
            assert not is_unchanged(JournalFolder(folder), catalog.row(session_id(2)))
            assert list(catalog.unreadable) == [path.stem]
        assert acknowledged_heads(file)[session_id(2)] == head
    forget(file, session_id(2))
    assert session_id(2) not in acknowledged_heads(file)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        current = await catalog.current("owner", "main")
        assert current is not None
        assert (current.session, current.head) == ((session_id(1), 6) if how == "gone" else (session_id(2), head - 1))
        assert catalog.unreadable == {}


async def test_forgetting_a_session_removes_everything_about_it(file: Path, folder: Path) -> None:
    await filled(file, folder)
    forget(file, session_id(2))
    async with catalog_file(file) as db:
        for table in ("sessions", "checkpoints", "receipts"):
            rows = await db.execute_fetchall(f"SELECT session FROM {table} WHERE session = ?", (session_id(2),))
            assert list(rows) == []


async def test_replacing_a_row_removes_everything_else_about_its_session_in_one_transaction(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(file, folder)

    async def fail(*_: object) -> None:
        raise Unavailable("the disk is full")

    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        former = catalog.row(session_id(2))
        checkpoint = await catalog.checkpoint(session_id(2))
        assert former is not None
        assert checkpoint is not None
        catalog.save_checkpoint(session_id(2), *checkpoint)  # is still to be written
        row = msgspec.structs.replace(former, size=0, mtime_ns=0, settled=False, pinned=True)
        with monkeypatch.context() as broken:
            broken.setattr(CatalogFile, "remove", fail)
            with pytest.raises(StorageFailed, match="the disk is full"):
                await catalog.replace([row])
            assert await catalog.current("owner", "main") == row
        await catalog.replace([row, msgspec.structs.replace(row, session=session_id(9))])
        assert await catalog.current("owner", "main") == row
        assert catalog.row(session_id(9)) is None
        async with catalog_file(file) as db:
            for table, count in (("sessions", 1), ("checkpoints", 0), ("receipts", 0)):
                rows = await db.execute_fetchall(f"SELECT session FROM {table} WHERE session = ?", (session_id(2),))
                assert len(list(rows)) == count
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert await catalog.checkpoint(session_id(2)) is None
        current = await catalog.current("owner", "main")
        assert current is not None
        assert (current.session, (await catalog.receipts("owner", "main")).find("m9") is not None) == (session_id(2), True)


async def test_without_a_descriptor_no_message_id_is_treated_as_unknown(
    file: Path, folder: Path, take_all_descriptors: Callable[[], None]
) -> None:
    await filled(file, folder)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        take_all_descriptors()
        with pytest.raises(StorageFailed, match="Too many open files"):
            await catalog.receipts("owner", "main")
        assert catalog.unreadable == {}


@pytest.mark.parametrize("error", [errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM])
async def test_while_a_journal_cannot_be_read_its_message_ids_are_not_treated_as_unknown(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    await filled(file, folder)

    def fail(*_: object) -> CollectedReceipts:
        raise StorageFailed(os.strerror(error)) from OSError(error, os.strerror(error))

    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        with monkeypatch.context() as broken:
            broken.setattr(receipt_batches, "collect_receipts", fail)
            with pytest.raises(StorageFailed, match=os.strerror(error)):
                await catalog.receipts("owner", "main")
        assert catalog.unreadable == {}
        assert (await catalog.receipts("owner", "main")).find("m9")


async def test_without_a_descriptor_the_catalog_is_not_replaced(
    file: Path, folder: Path, take_all_descriptors: Callable[[], None]
) -> None:
    await filled(file, folder)
    spare = os.open("/", os.O_RDONLY)
    take_all_descriptors()
    with pytest.raises(StorageFailed, match="Too many open files"):
        await SqliteCatalog(file, JournalFolder(folder)).__aenter__()
    os.close(spare)  # enough to see that the file is there
    with pytest.raises(StorageFailed, match="Too many open files"):
        await SqliteCatalog(file, JournalFolder(folder)).__aenter__()
    assert not file.with_name("catalog.sqlite.set-aside").exists()


async def test_a_torn_tail_hides_no_event_before_it(file: Path, folder: Path) -> None:
    path, _, _ = write_journal(folder, 1, *messages(1, 3, size=40_000))
    whole = path.read_bytes()
    for tail in (b'{"seq":5,"at":"2026', bytes(3_000_000), b"x" * 50_000, b"\n\n"):
        path.write_bytes(whole + tail)
        found = scan_logs(JournalFolder(folder), {})
        assert [(row.head, row.at) for row in found.changed] == [(4, AT)]


async def test_a_journal_without_a_valid_header_does_not_affect_others(file: Path, folder: Path) -> None:
    good, _, _ = write_journal(folder, 1)
    harmed, _, _ = write_journal(folder, 2, key="work")
    harmed.write_bytes(harmed.read_bytes().replace(b'"work"', b'"wark"'))
    copy = folder / "copy.jsonl"
    copy.write_bytes(good.read_bytes())
    pipe = folder / "pipe.jsonl"
    os.mkfifo(pipe)
    link = folder / "link.jsonl"
    link.symlink_to(good)
    (folder / "notes.txt").write_text("not a journal")
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert [row.session for row in await catalog.sessions("owner")] == [session_id(1)]
        assert set(catalog.unreadable) == {harmed.stem, copy.stem, link.stem, pipe.stem}
        assert "renamed" in catalog.unreadable[copy.stem]
        assert "does not open a session" in catalog.unreadable[harmed.stem]


@pytest.mark.parametrize("left", [b"", b'{"seq":1,"at":"2026', bytes(5000), b'{"seq":1,' + bytes(5000) + b"\n"])
async def test_a_journal_whose_first_line_was_never_durable_counts_as_empty(file: Path, folder: Path, left: bytes) -> None:
    await filled(file, folder)
    path = folder / f"{session_id(4)}.jsonl"
    path.write_bytes(left)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert (catalog.empty, catalog.unreadable) == ([path.stem], {})
        assert catalog.row(session_id(4)) is None


async def test_an_empty_journal_that_is_known_or_has_a_successor_is_damaged(file: Path, folder: Path) -> None:
    await filled(file, folder)
    known, succeeded = folder / f"{session_id(3)}.jsonl", folder / f"{session_id(1)}.jsonl"
    known.write_bytes(b"")
    succeeded.write_bytes(b"")
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert (catalog.empty, set(catalog.unreadable)) == ([], {known.stem, succeeded.stem})
    file.unlink()
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert (catalog.empty, set(catalog.unreadable)) == ([known.stem], {succeeded.stem})


async def test_an_unknown_journal_that_cannot_be_read_stops_the_start_because_it_may_belong_to_any_key(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(file, folder)
    plain = os.pread

    def failing(descriptor: int, length: int, offset: int) -> bytes:
        if session_id(2) in os.readlink(f"/proc/self/fd/{descriptor}"):
            raise OSError(errno.EIO, "Input/output error")
        return plain(descriptor, length, offset)

    extend_journal(folder / f"{session_id(2)}.jsonl", *messages(10, 12))
    monkeypatch.setattr(os, "pread", failing)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:  # which knows whose it is
        assert list(catalog.unreadable) == [session_id(2)]
    file.unlink()
    with pytest.raises(StorageFailed, match=f"{session_id(2)}.jsonl cannot be read: Input/output error"):
        async with SqliteCatalog(file, JournalFolder(folder)):
            pass


@pytest.mark.parametrize("why", ["disk I/O error", "database or disk is full", "out of memory"])
async def test_a_catalog_that_the_disk_fails_to_read_is_not_replaced(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, why: str
) -> None:
    await filled(file, folder)
    before = file.read_bytes()

    async def failing(*_: object) -> None:
        raise Unavailable(why)

    with monkeypatch.context() as patched:
        patched.setattr(CatalogFile, "_fetch", failing)
        with pytest.raises(StorageFailed, match=f"cannot be read: {why}"):
            async with SqliteCatalog(file, JournalFolder(folder)):
                pass
    assert file.read_bytes() == before
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert catalog.rebuilt is None


async def test_a_known_session_keeps_its_key_when_its_first_line_is_damaged(file: Path, folder: Path) -> None:
    await filled(file, folder)
    path = folder / f"{session_id(2)}.jsonl"
    path.write_bytes(b"?" + path.read_bytes()[1:])
    for _ in range(2):
        async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
            current = await catalog.current("owner", "main")
            assert current is not None
            assert (current.session, current.settled) == (session_id(2), False)
            assert set(catalog.unreadable) == {path.stem}


async def test_the_current_session_is_the_newest_that_no_other_succeeds(file: Path, folder: Path) -> None:
    write_journal(folder, 1)
    write_journal(folder, 2, succeeds=Succession(session=session_id(1), seq=1))
    write_journal(folder, 4, key="elsewhere", succeeds=Succession(session=session_id(2), seq=1))
    write_journal(folder, 3, succeeds=Succession(session=session_id(9), seq=1))  # another head: its predecessor is gone
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert [(row.key, row.session) for row in await catalog.sessions("owner")] == [
            ("elsewhere", session_id(4)),
            ("main", session_id(3)),
        ]
        assert [row.session for row in catalog.chain(session_id(2))] == [session_id(1)]
        assert catalog.chain(session_id(3)) == []
        assert catalog.chain(session_id(4)) == [], "another key's sessions are not its own"
        assert catalog.successor(session_id(2)) is None


async def test_a_cycle_of_successions_causes_no_endless_loop(file: Path, folder: Path) -> None:
    for number, other in ((1, 2), (2, 1), (3, 3)):
        write_journal(folder, number, succeeds=Succession(session=session_id(other), seq=1))
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        current = await catalog.current("owner", "main")
        assert current is not None
        assert current.session == session_id(3)
        assert [row.session for row in catalog.chain(session_id(1))] == [session_id(2)]


async def test_a_row_is_visible_at_once_and_written_when_the_catalog_closes(file: Path, folder: Path) -> None:
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        path, transcript, _ = write_journal(folder, 1)
        catalog.put(row_of(path, transcript))
        assert await catalog.current("owner", "main") == row_of(path, transcript)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert catalog.row(session_id(1)) == row_of(path, transcript)


async def test_changes_are_written_even_if_the_block_raises(file: Path, folder: Path) -> None:
    path, transcript, _ = write_journal(folder, 1)

    async def fail() -> None:
        async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
            catalog.put(row_of(path, transcript))
            raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError, match="on purpose"):
        await fail()
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert is_unchanged(JournalFolder(folder), catalog.row(session_id(1)))


async def test_changes_are_written_even_if_the_task_is_cancelled(file: Path, folder: Path) -> None:
    path, transcript, _ = write_journal(folder, 1)
    put = asyncio.Event()

    async def serve() -> None:
        async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
            catalog.put(row_of(path, transcript))
            put.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(serve())
    await put.wait()
    task.cancel()
    await asyncio.wait([task])
    assert task.cancelled()
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert is_unchanged(JournalFolder(folder), catalog.row(session_id(1)))


async def test_a_second_writer_is_refused_and_the_file_unchanged(file: Path, folder: Path) -> None:
    await filled(file, folder)
    async with catalog_file(file) as db:
        await db.execute("BEGIN EXCLUSIVE")
        before = contents(file)
        with pytest.raises(StorageFailed, match="in use"):
            async with SqliteCatalog(file, JournalFolder(folder)):
                raise AssertionError("it was opened")
        assert contents(file) == before
        await db.execute("ROLLBACK")


async def test_a_catalog_that_cannot_be_created_raises_an_error_with_the_reason(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(StorageFailed, match="cannot be created"):
        async with SqliteCatalog(tmp_path / "missing" / "catalog.sqlite", JournalFolder(folder)):
            raise AssertionError("it was opened")


async def test_a_full_disk_is_reported_and_changes_are_written_later(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions.catalog.sqlite_catalog.PAUSE", 0.01)
    path, transcript, _ = write_journal(folder, 1)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        async with catalog_file(file) as other:
            await other.execute("BEGIN EXCLUSIVE")  # a lock is what a test can have without filling a disk: the same path
            catalog.put(row_of(path, transcript))
            await until(lambda: catalog.failure is not None)
            assert catalog.failure == "The catalog cannot be written: database is locked."
            await other.execute("ROLLBACK")
        await until(lambda: catalog.failure is None)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert is_unchanged(JournalFolder(folder), catalog.row(session_id(1)))


async def test_a_catalog_that_fails_unexpectedly_is_written_later(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, transcript, _ = write_journal(folder, 1, *messages(1, 3), ended())
    encode = sqlite_catalog._encode

    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        monkeypatch.setattr(sqlite_catalog, "_encode", no_thread)
        catalog.put(row_of(path, transcript))
        await until(lambda: catalog.failure == "The catalog cannot be written: can't start new thread.")
        monkeypatch.setattr(sqlite_catalog, "_encode", encode)
        await until(lambda: catalog.failure is None)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert is_unchanged(JournalFolder(folder), catalog.row(session_id(1)))


# --- checkpoints ------------------------------------------------------------------------------------------------------


async def test_a_checkpoint_is_read_as_it_was_saved(file: Path, folder: Path) -> None:
    path, transcript, end = write_journal(folder, 1, *messages(1, 3), ended())
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert await catalog.checkpoint(session_id(1)) is None
        catalog.put(row_of(path, transcript))
        catalog.save_checkpoint(transcript.session, START, transcript)
        catalog.save_checkpoint(transcript.session, end, transcript)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert await catalog.checkpoint(session_id(1)) == (end, transcript)


async def test_a_checkpoint_that_cannot_be_encoded_affects_nothing_else(file: Path, folder: Path) -> None:
    path, transcript, end = write_journal(folder, 1, *messages(1, 3))
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        catalog.put(row_of(path, transcript))
        absurd = msgspec.structs.replace(transcript, bytes=2**70)
        catalog.save_checkpoint(transcript.session, end, absurd)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert catalog.row(session_id(1)) == row_of(path, transcript)
        assert await catalog.checkpoint(session_id(1)) is None


async def test_a_checkpoint_with_any_byte_flipped_is_refused(file: Path, folder: Path) -> None:
    await filled(file, folder)
    async with catalog_file(file) as db:
        ((sealed,),) = await db.execute_fetchall("SELECT sealed FROM checkpoints")
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        assert await catalog.checkpoint(session_id(2)) is not None
        for place in range(0, len(sealed), 7):
            harmed = bytes(byte ^ (index == place) for index, byte in enumerate(sealed))
            await catalog._file._db.execute("UPDATE checkpoints SET sealed = ?", (harmed,))
            assert await catalog.checkpoint(session_id(2)) is None


async def test_a_checkpoint_of_another_session_or_another_fold_is_refused(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await filled(file, folder)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        await catalog._file._db.execute("UPDATE checkpoints SET session = ?", (session_id(1),))
        assert await catalog.checkpoint(session_id(1)) is None
        await catalog._file._db.execute("UPDATE checkpoints SET session = ?", (session_id(2),))
        assert await catalog.checkpoint(session_id(2)) is not None
        monkeypatch.setattr("sessions.catalog.checkpoints.FOLD", FOLD + 1)
        assert await catalog.checkpoint(session_id(2)) is None


# --- kill -9 ----------------------------------------------------------------------------------------------------------

WRITER = """
import asyncio, sys
from pathlib import Path
from sessions.catalog import sqlite_catalog as module
from sessions.files.journal_folder import JournalFolder
from tests.sessions.journal_files import end_of, messages, row_of, write_journal

module.PAUSE = 0.0

async def main(home):
    path, transcript, end = write_journal(home / "sessions", 1, *messages(1, 200))
    async with module.SqliteCatalog(home / "catalog.sqlite", JournalFolder(home / "sessions")) as catalog:
        receipts = await catalog.receipts("owner", "main")
        print("writing", flush=True)
        while True:
            catalog.put(row_of(path, transcript))
            catalog.save_checkpoint(transcript.session, end, transcript, receipts)
            await asyncio.sleep(0)

asyncio.run(main(Path(sys.argv[1])))
"""


def write_until_killed(home: Path, seconds: float) -> None:
    """Run a writer and kill it `seconds` after its first write may have begun."""
    command = [sys.executable, "-c", WRITER, str(home)]
    with subprocess.Popen(command, cwd=Path(__file__).parents[2], stdout=subprocess.PIPE, text=True) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "writing\n"
        time.sleep(seconds)
        writer.send_signal(signal.SIGKILL)


@pytest.mark.parametrize("millis", [3, 40, 170])
async def test_a_catalog_whose_writer_was_killed_opens_with_correct_content(tmp_path: Path, millis: int) -> None:
    await asyncio.to_thread(write_until_killed, tmp_path, millis / 1000)
    async with SqliteCatalog(tmp_path / "catalog.sqlite", JournalFolder(tmp_path / "sessions")) as catalog:
        assert catalog.rebuilt is None
        current = await catalog.current("owner", "main")
        assert isinstance(current, SessionRow)
        assert current.head == 201
        found = await catalog.checkpoint(session_id(1))
        assert found is None or found[0] == end_of(tmp_path / "sessions" / f"{session_id(1)}.jsonl")
        receipts = await catalog.receipts("owner", "main")
        assert len(receipts) == 200


THREADS = """
import sys, threading
from sessions.catalog.checkpoints import decode_checkpoint, encode_checkpoint
from sessions.catalog.receipt_batches import decode_batch
from sessions.events.messages import UserMessage
from sessions.state.persistent_list import PersistentList
from sessions.state.transcript import Transcript
from sessions.state.view import View
from sessions.store.protocols import START

transcript = Transcript(view=View(messages=PersistentList([UserMessage(text="Hello.")])))
sealed = encode_checkpoint("a", START, transcript)
sys.setswitchinterval(1e-6)
barrier = threading.Barrier(8)

def decode():
    barrier.wait()
    decode_batch("a", sealed)
    assert decode_checkpoint("a", sealed) == (START, transcript)

threads = [threading.Thread(target=decode) for _ in range(8)]
for each in threads:
    each.start()
for each in threads:
    each.join()
"""


def test_a_catalog_that_cannot_be_opened_leaves_no_thread_that_would_report_to_a_closed_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("aiosqlite.core.LOG.debug", lambda *_: time.sleep(0.1))  # its thread does everything late
    before = threading.enumerate()
    with pytest.raises(Unavailable):
        asyncio.run(connect(tmp_path / "missing" / "catalog.sqlite", patience=1.0))
    assert threading.enumerate() == before


def test_threads_that_decode_the_first_checkpoints_at_once_do_not_crash() -> None:
    """msgspec 0.22 crashed in every second process while two threads used a type for the first time."""
    processes = [subprocess.Popen([sys.executable, "-c", THREADS]) for _ in range(6)]
    assert [each.wait() for each in processes] == [0] * 6
