"""Receipts: an id that was seen is known, across sessions, restarts and the loss of the catalog."""

from __future__ import annotations

import os
import sys
import threading
import tracemalloc
import uuid
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.catalog.sqlite_catalog import SqliteCatalog
from sessions.events.codec import is_complete_line
from sessions.events.events import Succession
from sessions.events.messages import Attachment
from sessions.files.journal_folder import FileLines, JournalFolder
from sessions.state.reducer import project
from sessions.store.receipts import MOST, REMEMBERED, Receipt, Receipts, digest_of
from sessions.store.recorder import add_unknown, open_session
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
from tests.sessions.journal_stories import journals_in
from tests.stories import received


def test_a_message_is_found_by_its_id_with_its_position_and_digest() -> None:
    receipts = Receipts()
    receipts.add("a", 7, received("hello", "m1"))
    assert receipts.find("m1") == Receipt(session="a", seq=7, digest=digest_of("hello", ()))
    assert receipts.find("m2") is None
    assert len(receipts) == 1


def test_an_id_keeps_the_receipt_of_its_first_message() -> None:
    receipts = Receipts()
    receipts.add("a", 2, received("first", "m1"))
    receipts.add("b", 2, received("second", "m1"))
    assert receipts.find("m1") == Receipt(session="a", seq=2, digest=digest_of("first", ()))


def test_messages_are_equal_if_text_and_attachments_in_order_are_equal() -> None:
    one, two = (Attachment(sha256=letter * 64, media="image/png", bytes=1) for letter in "ab")
    renamed = Attachment(sha256="a" * 64, media="image/jpeg", bytes=1)
    assert digest_of("t", (one,)) == digest_of("t", (renamed,))
    different = [digest_of("t", ()), digest_of("t", (one,)), digest_of("t", (one, two)), digest_of("t", (two, one))]
    different += [digest_of("T", ()), digest_of("t" + "a" * 64, ())]
    assert len(set(different)) == len(different)


def test_at_least_ten_thousand_and_at_most_twelve_thousand_ids_are_kept() -> None:
    receipts = Receipts()
    for number in range(1, 30_001):
        receipts.add("a", number, received("", f"m{number}"))
        assert receipts.find(f"m{max(1, number - REMEMBERED + 1)}") is not None
        assert len(receipts) <= MOST
    assert receipts.find("m1") is None


def test_ten_thousand_ids_of_36_characters_take_less_than_two_megabytes() -> None:
    batch = [received("x", str(uuid.UUID(int=number))) for number in range(MOST)]
    tracemalloc.start()
    try:
        receipts = Receipts()
        for seq, message in enumerate(batch, 1):
            receipts.add("20261121-120000-aaaaaa", seq, message)
        size, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(receipts) == MOST
    assert size < 2_000_000


def test_messages_that_never_reached_the_disk_are_forgotten_and_no_others() -> None:
    receipts = Receipts()
    for seq in range(2, 7):
        receipts.add("a", seq, received("", f"a{seq}"))
    receipts.add("b", 9, received("", "b9"))
    receipts.forget("a", after=4)
    assert [receipts.find(id_) is not None for id_ in ("a4", "a5", "a6", "b9")] == [True, False, False, True]
    receipts.add("a", 5, received("again", "a6"))
    assert receipts.find("a6") == Receipt(session="a", seq=5, digest=digest_of("again", ()))


def test_a_thread_that_opens_a_journal_does_not_disturb_the_loop() -> None:
    receipts = Receipts()
    for seq in range(MOST):
        receipts.add("new", seq, received("", f"n{seq}"))

    def open_old() -> None:
        for seq in range(20_000):
            receipts.add("old", seq, received("", f"o{seq}"))

    thread = threading.Thread(target=open_old)
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # so that a change falls into the middle of a question
    try:
        thread.start()
        while thread.is_alive():
            receipts.between("new", 0, MOST)
            receipts.forget("new", after=MOST)
    finally:
        thread.join()
        sys.setswitchinterval(interval)
    assert receipts.find("o19999") is not None


# --- on the disk ------------------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "sessions"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "catalog.sqlite"


async def known(file: Path, folder: Path, *ids: str) -> list[bool]:
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        receipts = await catalog.receipts("owner", "main")
        return [receipts.find(id_) is not None for id_ in ids]


async def stored_batches(file: Path) -> int:
    async with catalog_file(file) as db:
        ((count,),) = await db.execute_fetchall("SELECT count(*) FROM receipts")
        return int(count)


async def test_ids_are_known_across_sessions_and_restarts(file: Path, folder: Path) -> None:
    write_journal(folder, 1, *messages(1, 3))
    write_journal(folder, 2, *messages(4, 6), succeeds=Succession(session=session_id(1), seq=4))
    write_journal(folder, 3, *messages(7, 7), key="other")
    for _ in range(2):
        async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
            receipts = await catalog.receipts("owner", "main")
            assert receipts.find("m1") == Receipt(session=session_id(1), seq=2, digest=digest_of(messages(1, 1)[0].text, ()))
            assert receipts.find("m6") is not None
            assert receipts.find("m7") is None
            assert len(await catalog.receipts("owner", "new")) == 0


async def test_a_restart_reads_only_messages_after_the_last_batch(file: Path, folder: Path) -> None:
    path, transcript, end = write_journal(folder, 1)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        receipts = await catalog.receipts("owner", "main")
        for round_ in range(3):
            for message in messages(round_ * 2 + 1, round_ * 2 + 2):
                receipts.add(session_id(1), transcript.head + 1, message)
                transcript, end = extend_journal(path, message)
            catalog.put(row_of(path, transcript))
            catalog.save_checkpoint(session_id(1), end, transcript, receipts)
    extend_journal(path, *messages(7, 7))
    # Whoever read the covered part of the journal again would not find these ids there any more.
    blob = path.read_bytes()
    path.write_bytes(blob.replace(b'"id":"m1"', b'"id":"x1"').replace(b'"id":"m4"', b'"id":"x4"'))
    assert await known(file, folder, "m1", "m2", "m4", "m5", "m6", "m7", "x1") == [True] * 6 + [False]


async def test_what_came_between_reading_the_ids_and_opening_the_journal_is_known(
    file: Path, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A commit of the former owner, and one that was not confirmed to this one."""
    monkeypatch.setattr("sessions.store.recorder.PAGE_BYTES", 1)
    path, *_ = write_journal(folder, 1, *messages(1, 3))
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog, journals_in(tmp_path) as journals:
        receipts = await catalog.receipts("owner", "main")
        receipts.forget(session_id(1), after=3)
        extend_journal(path, *messages(4, 6))
        opened = await open_session(journals, catalog, session_id(1))
        await add_unknown(receipts, opened)
        found = [receipts.find(f"m{number}") for number in range(1, 8)]
        assert [receipt and receipt.seq for receipt in found] == [2, 3, 4, 5, 6, 7, None]
        await opened.log.close()


async def test_ids_of_a_new_session_are_covered_by_its_first_checkpoint(file: Path, folder: Path) -> None:
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        receipts = await catalog.receipts("owner", "main")
        path, transcript, end = write_journal(folder, 1, *messages(1, 2))
        catalog.put(row_of(path, transcript))
        for seq, message in enumerate(messages(1, 2), 2):
            receipts.add(session_id(1), seq, message)
        receipts.add(session_id(1), 4, messages(3, 3)[0])  # noted, and not durable
        catalog.save_checkpoint(session_id(1), end, transcript, receipts)
    assert await stored_batches(file) == 1
    assert await known(file, folder, "m1", "m2", "m3") == [True, True, False]


async def test_many_batches_are_merged_into_one(file: Path, folder: Path) -> None:
    path, transcript, end = write_journal(folder, 1)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        receipts = await catalog.receipts("owner", "main")
        for number in range(1, 101):
            receipts.add(session_id(1), transcript.head + 1, messages(number, number)[0])
            transcript, end = extend_journal(path, *messages(number, number))
            catalog.save_checkpoint(session_id(1), end, transcript, receipts)
    assert await stored_batches(file) == 101
    assert all(await known(file, folder, *(f"m{number}" for number in range(1, 101))))
    assert await stored_batches(file) == 1
    assert all(await known(file, folder, *(f"m{number}" for number in range(1, 101))))


@pytest.mark.parametrize("lost", ["DELETE FROM receipts WHERE upto = 3", "UPDATE receipts SET sealed = x'00' || sealed"])
async def test_if_a_batch_is_missing_the_journal_is_read(file: Path, folder: Path, lost: str) -> None:
    path, transcript, end = write_journal(folder, 1)
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        receipts = await catalog.receipts("owner", "main")
        for number in range(1, 5):
            receipts.add(session_id(1), transcript.head + 1, messages(number, number)[0])
            transcript, end = extend_journal(path, *messages(number, number))
            catalog.save_checkpoint(session_id(1), end, transcript, receipts)
    async with catalog_file(file) as db:
        await db.execute(lost)
    assert await known(file, folder, "m1", "m2", "m3", "m4") == [True] * 4
    assert await stored_batches(file) == 1


async def test_batches_of_lines_that_the_journal_no_longer_has_are_ignored(file: Path, folder: Path) -> None:
    path, _, _ = write_journal(folder, 1, *messages(1, 4))
    assert await known(file, folder, "m4") == [True]
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    assert await known(file, folder, "m3", "m4") == [True, False]
    extend_journal(path, *messages(5, 5))  # as long as the one that was lost, under the same seq
    assert await known(file, folder, "m3", "m4", "m5") == [True, False, True]


async def test_a_torn_tail_does_not_count_as_a_message(file: Path, folder: Path) -> None:
    path, _, _ = write_journal(folder, 1, *messages(1, 2))
    last = path.read_bytes().splitlines(keepends=True)[-1]
    for torn in (last[:-1], last[:-3] + b"\0" + last[-2:], b"\n", last[:-1] + b"garbage\n"):
        path.write_bytes(path.read_bytes()[: -len(last)] + torn)
        assert await known(file, folder, "m1", "m2") == [True, False]
        path.write_bytes(path.read_bytes()[: -len(torn)] + last)


async def test_the_newest_ids_of_a_long_journal_are_read_first(
    file: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sessions.catalog.receipt_batches.REMEMBERED", 50)
    write_journal(folder, 1, *messages(1, 100))
    write_journal(folder, 2, *messages(101, 120), succeeds=Succession(session=session_id(1), seq=101))
    for _ in range(2):
        assert await known(file, folder, "m50", "m71", "m100", "m101", "m120") == [False] + [True] * 4


async def test_text_that_looks_like_a_message_is_not_one(file: Path, folder: Path) -> None:
    forged = '{"seq":3,"at":"x","turn":null,"kind":"message_received","id":"forged"}\n"kind":"message_received"'
    write_journal(folder, 1, received(forged, "m1"), ended())
    async with SqliteCatalog(file, JournalFolder(folder)) as catalog:
        receipts = await catalog.receipts("owner", "main")
        assert len(receipts) == 1
        assert receipts.find("m1") is not None


@given(
    pieces=st.lists(st.binary(max_size=40), max_size=12),
    block=st.integers(1, 64),
    last=st.integers(0, 3),
)
def test_lines_backwards_are_the_lines_forwards_reversed(pieces: list[bytes], block: int, last: int) -> None:
    content = b"\n".join(pieces)
    lines = [line + b"\n" for line in content.split(b"\n")[:-1]]
    lines = lines[: max(0, len(lines) - last)] if last else lines
    upto = sum(map(len, lines)) if last else len(content)
    ends = [sum(map(len, lines[: number + 1])) for number in range(len(lines))]
    descriptor = os.memfd_create("journal")
    try:
        os.write(descriptor, content)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("sessions.files.journal_folder.SMALLEST_BLOCK", block)
            patch.setattr("sessions.files.journal_folder.LARGEST_BLOCK", block * 2)
            found = list(FileLines(descriptor, "any").backward(upto))
    finally:
        os.close(descriptor)
    assert found == list(zip(lines, ends, strict=True))[::-1]


def test_a_piece_longer_than_any_line_is_skipped_without_being_held(tmp_path: Path) -> None:
    path, _, _ = write_journal(tmp_path, 1, *messages(1, 2))
    whole = path.read_bytes()
    with path.open("ab") as file:
        file.write(b"x" * 9_000_000 + b"\n" + bytes(20_000_000))
    descriptor = os.open(path, os.O_RDONLY)
    tracemalloc.start()
    try:
        found = list(FileLines(descriptor, "any").backward())
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
        os.close(descriptor)
    assert [line for line, _ in found][::-1] == whole.splitlines(keepends=True)
    assert all(is_complete_line(line) for line, _ in found)
    assert peak < 12_000_000
    assert project([line for line, _ in reversed(found)]).head == end_of_lines(whole)


def end_of_lines(content: bytes) -> int:
    return content.count(b"\n")


def test_the_end_of_a_journal_is_that_of_its_last_line(tmp_path: Path) -> None:
    path, transcript, end = write_journal(tmp_path, 1, *messages(1, 2))
    assert (end.seq, end.offset) == (transcript.head, path.stat().st_size)
    assert end_of(path) == end
