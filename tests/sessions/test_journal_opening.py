"""Opening a journal: a torn tail is set aside and cut, damage is never touched, a position must recompute."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import stat
import sys
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from sessions.events.codec import encode
from sessions.events.errors import JournalDamaged, StorageFailed
from sessions.events.events import Recorded
from sessions.files.committer import Committer
from sessions.files.journals import Journals
from sessions.files.repair import SUSPECT
from sessions.store.protocols import LONGEST_LINE
from sessions.store.reading import VerificationResult
from tests.sessions.journal_stories import SESSION, CommitListener, end_of, journals_in, reopened, some_lines, write_raw
from tests.stored import stored
from tests.stories import AT, lines_of, received


async def test_a_journal_cut_at_every_byte_of_its_last_three_lines_opens_with_the_prefix(tmp_path: Path) -> None:
    lines = some_lines(6)
    cuts = range(sum(map(len, lines[:3])), sum(map(len, lines)) + 1)
    async with journals_in(tmp_path) as journals:
        # all at once, so that the file system can make many of them durable together
        await asyncio.gather(*(_opens_with_the_prefix(journals, tmp_path, lines, cut) for cut in cuts))


async def _opens_with_the_prefix(journals: Journals, home: Path, lines: list[bytes], cut: int) -> None:
    session = f"cut-{cut}"
    content = b"".join(lines)[:cut]
    path = write_raw(home, content, session)
    kept = [line for n, line in enumerate(lines) if sum(map(len, lines[: n + 1])) <= cut]
    end = end_of(kept)
    assert stored(path).verify() == VerificationResult(events=len(kept), bytes=cut, last=end, torn=cut - end.offset)
    folded: list[bytes] = []
    journal, last = await journals.open(session, fold=folded.append)
    await journal.close()
    assert (folded, last) == (kept, end)
    assert path.read_bytes() == b"".join(kept)
    tails = list((home / "quarantine").glob(f"{session}-*-{end.offset}.tail"))
    assert [tail.read_bytes() for tail in tails] == [content[end.offset :]] * (cut > end.offset)
    assert all(stat.S_IMODE(tail.stat().st_mode) == 0o600 for tail in tails)


@pytest.mark.parametrize(
    "tail",
    [b"\0" * 5000, b"\0" * 5000 + b"\n", b'{"seq":4,"at":' + b"\0" * 300 + b'"}\n', b"\0\n\0\n{", b"{", b"\xff\xfe"],
    ids=["nul", "nul-line", "half-nul", "nul-lines", "brace", "rubbish"],
)
async def test_a_tail_of_nul_or_without_a_newline_is_a_torn_tail(tmp_path: Path, tail: bytes) -> None:
    lines = some_lines(3)
    path = write_raw(tmp_path, b"".join(lines) + tail)
    assert stored(path).verify().torn == len(tail)
    assert stored(path).lines(2, 10**6) == lines[1:]
    assert await reopened(tmp_path) == (lines, end_of(lines))
    assert path.read_bytes() == b"".join(lines)
    assert [kept.read_bytes() for kept in (tmp_path / "quarantine").iterdir()] == [tail]


async def test_a_journal_continues_where_its_torn_tail_was_removed(tmp_path: Path) -> None:
    lines = some_lines(4)
    write_raw(tmp_path, b"".join(lines[:2]) + lines[2][:-1])
    async with journals_in(tmp_path) as journals:
        journal, _ = await journals.open(SESSION, fold=lambda _: None)
        journal.append(lines[2], urgent=True)
        journal.append(lines[3], urgent=True)
        await journal.close()
    assert await reopened(tmp_path) == (lines, end_of(lines))


def _flipped(lines: list[bytes]) -> list[bytes]:
    return [*lines[:4], lines[4].replace(b"x", b"y", 1), *lines[5:]]


def _overlong(lines: list[bytes]) -> list[bytes]:
    previous = lines[3][-19:-3]
    event = Recorded(seq=5, at=AT, turn=None, event=received("x" * LONGEST_LINE))
    return [*lines[:4], encode(event, previous)[0]]


_FAULTS: dict[str, Callable[[list[bytes]], list[bytes]]] = {
    "flipped": _flipped,
    "deleted": lambda lines: [*lines[:4], *lines[5:]],
    "doubled": lambda lines: [*lines[:5], lines[3], *lines[5:]],
    "swapped": lambda lines: [*lines[:4], lines[5], lines[4], *lines[6:]],
    "nul in the middle": lambda lines: [*lines[:4], b"\0" * 40 + lines[4][40:], *lines[5:]],
    "flipped at the end": lambda lines: [*lines[:4], lines[4].replace(b"x", b"y", 1)],
    "rubbish with a newline": lambda lines: [*lines[:4], b"rubbish\n"],
    "a whole line too long": _overlong,
    "a line too long": lambda lines: [*lines[:4], b"z" * (LONGEST_LINE + 10)],
    "begun and then whole": lambda lines: [*lines[:4], lines[4][:50] + b"\0\n", *lines[4:]],
}


# Failure 25: the guard is `is_torn`, which never takes a whole line for a tail that may be cut.
@pytest.mark.parametrize("fault", list(_FAULTS))
async def test_damage_stops_the_session_and_leaves_the_file_unchanged(tmp_path: Path, fault: str) -> None:
    content = b"".join(_FAULTS[fault](some_lines(9)))
    path = write_raw(tmp_path, content)
    good = end_of(some_lines(9)[: 5 if fault == "doubled" else 4])
    for open_it in (reopened(tmp_path), reopened(tmp_path)):
        with pytest.raises(JournalDamaged) as caught:
            await open_it
        assert (caught.value.line, caught.value.good_seq, caught.value.good_end) == (good.seq + 1, good.seq, good.offset)
        assert path.read_bytes() == content
    with pytest.raises(JournalDamaged) as verified:
        stored(path).verify()
    assert str(verified.value) == str(caught.value)
    (report,) = (tmp_path / "quarantine").iterdir()
    assert json.loads(report.read_bytes())["line"] == good.seq + 1


async def test_damage_after_a_position_is_detected_and_not_returned_as_history(tmp_path: Path) -> None:
    lines = some_lines(9)
    path = write_raw(tmp_path, b"".join(_flipped(lines)))
    with pytest.raises(JournalDamaged) as caught:
        await reopened(tmp_path, end_of(lines[:2]))
    assert caught.value.line == 5
    with pytest.raises(JournalDamaged):
        stored(path).lines(3, 10**6)
    assert stored(path).lines(1, sum(map(len, lines[:3]))) == lines[:3]


async def test_only_what_follows_the_position_is_read(tmp_path: Path) -> None:
    lines = some_lines(9)
    write_raw(tmp_path, b"".join(lines))
    for known in range(1, 10):
        assert await reopened(tmp_path, end_of(lines[:known]), unchanged=True) == (lines[known:], end_of(lines))


async def test_a_position_beyond_the_end_says_that_acknowledged_events_are_missing(tmp_path: Path) -> None:
    lines = some_lines(9)
    path = write_raw(tmp_path, b"".join(lines[:6]) + lines[6][:9])
    with pytest.raises(JournalDamaged, match="missing") as caught:
        await reopened(tmp_path, end_of(lines))
    assert caught.value.line == 0
    assert path.read_bytes() == b"".join(lines[:6]) + lines[6][:9]


@pytest.mark.parametrize("change", [{"sum": b"0" * 16}, {"seq": 4}, {"offset": -1}, {"offset": 1}, {"offset": 0}], ids=str)
async def test_a_position_with_a_wrong_sum_is_rejected(tmp_path: Path, change: dict[str, object]) -> None:
    lines = some_lines(9)
    write_raw(tmp_path, b"".join(lines))
    true = end_of(lines[:5])
    if offset := change.get("offset"):
        change = {"offset": true.offset + int(str(offset))}
    with pytest.raises(JournalDamaged):
        await reopened(tmp_path, msgspec.structs.replace(true, **change))


async def test_a_position_on_an_altered_line_is_rejected(tmp_path: Path) -> None:
    lines = some_lines(9)
    write_raw(tmp_path, b"".join(_flipped(lines)))
    with pytest.raises(JournalDamaged) as caught:
        await reopened(tmp_path, end_of(lines[:5]))
    assert caught.value.line == 0


async def test_opening_a_long_journal_leaves_its_bytes_unchanged(tmp_path: Path) -> None:
    lines = some_lines(400, 2500)
    content = b"".join(lines)
    assert len(content) > 3 * SUSPECT
    path = write_raw(tmp_path, content)
    assert await reopened(tmp_path) == (lines, end_of(lines))
    assert path.read_bytes() == content


async def test_an_exception_of_the_fold_reaches_the_caller_and_the_journal_can_be_opened_again(tmp_path: Path) -> None:
    lines = some_lines(3)
    write_raw(tmp_path, b"".join(lines))

    def refuse(line: bytes) -> None:
        raise ValueError("an event that nobody understands")

    async with journals_in(tmp_path) as journals:
        with pytest.raises(ValueError, match="understands"):
            await journals.open(SESSION, fold=refuse)
        journal, last = await journals.open(SESSION, fold=lambda _: None)
        assert last == end_of(lines)
        await journal.close()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """The writes (offset, bytes) and syncs of content that the disk was asked for, which it also did."""
    made: list[tuple[str, int, int]] = []
    pwrite, fdatasync = os.pwrite, os.fdatasync

    def write(descriptor: int, content: bytes, offset: int) -> int:
        made.append(("write", offset, len(content)))
        return pwrite(descriptor, content, offset)

    def sync(descriptor: int) -> None:
        made.append(("sync", 0, 0))
        fdatasync(descriptor)

    monkeypatch.setattr(os, "pwrite", write)
    monkeypatch.setattr(os, "fdatasync", sync)
    return made


@pytest.mark.skipif(sys.platform == "darwin", reason="content is synced by another call there")
@pytest.mark.parametrize("last", [100, 400_000])
async def test_the_suspect_end_is_rewritten_before_the_sync_unless_the_journal_is_unchanged(
    tmp_path: Path, calls: list[tuple[str, int, int]], last: int
) -> None:
    lines = lines_of([*(received("x" * 2500) for _ in range(400)), received("x" * last)])
    end = end_of(lines)
    write_raw(tmp_path, b"".join(lines))
    suspect = max(SUSPECT, len(lines[-1]))
    assert await reopened(tmp_path) == (lines, end)
    assert calls == [("write", end.offset - suspect, suspect), ("sync", 0, 0)]
    calls.clear()
    assert await reopened(tmp_path, end, unchanged=True) == ([], end)
    assert calls == [("sync", 0, 0)]


async def test_a_sync_that_fails_while_opening_ends_the_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_raw(tmp_path, b"".join(some_lines(3)))

    def fail(descriptor: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with Committer() as committer:
        (tmp_path / "sessions").mkdir(exist_ok=True)
        journals = Journals(tmp_path / "sessions", tmp_path / "quarantine", committer)
        other = await journals.create("other")
        listener = CommitListener(other)
        monkeypatch.setattr("sessions.files.repair.sync_content", fail)
        with pytest.raises(StorageFailed) as caught:
            await journals.open(SESSION, fold=lambda _: None)
        assert committer.failure.result() is caught.value is listener.failures[0]
        assert caught.value.fatal
        with pytest.raises(StorageFailed):
            await journals.create("another")


async def test_a_missing_journal_is_reported_and_a_missing_folder_fails_the_storage(
    tmp_path: Path,
) -> None:
    async with Committer() as committer:
        folder = tmp_path / "sessions"
        folder.mkdir()
        journals = Journals(folder, tmp_path / "quarantine", committer)
        with pytest.raises(JournalDamaged, match=f"^{SESSION}.jsonl: it is missing"):
            await journals.open(SESSION, fold=lambda _: None, least=1)
        assert [path.name for path in (tmp_path / "quarantine").iterdir()] == [f"{SESSION}-line-0.damage"]
        folder.rename(tmp_path / "moved")
        with pytest.raises(StorageFailed, match="was deleted or moved") as caught:
            await journals.open(SESSION, fold=lambda _: None, least=1)
        assert committer.failure.result() is caught.value
