"""Forks: a copy of a journal's bytes up to a moment of rest, and one line that makes it a session of its own."""

from __future__ import annotations

import errno
import os
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import msgspec
import pytest

from sessions.attachments.store import Attachments
from sessions.catalog.scan import scan_logs
from sessions.catalog.sqlite_catalog import SqliteCatalog
from sessions.events.codec import InvalidLine, decode
from sessions.events.errors import JournalDamaged, StorageFailed, UnknownSession
from sessions.events.events import (
    CompactionBegan,
    MemoryFlushed,
    MessageReceived,
    ModelReplied,
    NoteAppended,
    SessionClosed,
    SessionForked,
    TurnEnded,
    TurnStarted,
)
from sessions.events.messages import Attachment, Usage, UserMessage
from sessions.files.journal_folder import JournalFolder
from sessions.state.reducer import project
from sessions.store.fork import Fork, ForkRefused
from sessions.store.header import JournalHeader, read_header
from tests.sessions.journal_files import extend_journal, session_id, write_journal
from tests.stored import forked, stored
from tests.stories import lines_of, received

NOW = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
NEW = "20261122-093000-aaaaaa"
STARTED = TurnStarted(takes=(2,), provider="p", model="m", window=None, reserve=0)
ENDED = TurnEnded(outcome="replied", millis=7)


def turn(ordinal: int, at: int) -> list[MessageReceived | TurnStarted | TurnEnded]:
    """A message at a seq, and the turn that takes it; the turn is over at seq `at + 2`."""
    return [
        received(f"text {ordinal}", f"m{ordinal}"),
        TurnStarted(takes=(at,), provider="p", model="m", window=None, reserve=0),
        ENDED,
    ]


@pytest.fixture
def parent(tmp_path: Path) -> Path:
    """Seven events: two turns, over at seqs 4 and 7."""
    return write_journal(tmp_path / "sessions", 1, *turn(1, 2), *turn(2, 5))[0]


def lines(path: Path) -> list[bytes]:
    return path.read_bytes().splitlines(keepends=True)


def header_of(path: Path) -> JournalHeader:
    with stored(path).read() as lines:
        return read_header(lines)


def test_a_fork_is_a_copy_of_the_parents_bytes_and_one_line(parent: Path) -> None:
    before = parent.read_bytes()
    made = forked(parent, NEW, "main-fork", NOW)
    assert made == Fork(session=NEW, key="main-fork", parent=parent.stem, parent_seq=7)
    path = parent.with_name(f"{NEW}.jsonl")
    assert parent.read_bytes() == before
    assert lines(path)[:-1] == lines(parent)
    last = decode(lines(path)[-1])
    assert (last.seq, last.at, last.turn) == (8, "2026-11-22T09:30:00.000Z", None)
    assert last.event == SessionForked(session=NEW, key="main-fork", parent=parent.stem, parent_seq=7)
    assert stored(path).verify().events == 8
    assert oct(path.stat().st_mode)[-3:] == "600"
    assert sorted(entry.name for entry in parent.parent.iterdir()) == sorted([parent.name, path.name])


def test_a_fork_is_folded_to_a_separate_session_with_the_parents_view(parent: Path) -> None:
    forked(parent, NEW, "main-fork", NOW, at=4)
    folded, old = project(lines(parent.with_name(f"{NEW}.jsonl"))), project(lines(parent)[:4])
    assert (folded.session, folded.key, folded.person, folded.opened_at) == (
        NEW,
        "main-fork",
        "owner",
        "2026-11-22T09:30:00.000Z",
    )
    assert folded.view == old.view
    assert (folded.head, folded.turn) == (5, 1)


def test_the_parents_usage_is_counted_separately_also_in_a_fork_of_a_fork(tmp_path: Path) -> None:
    replied = ModelReplied(
        reply=0, model="m", text="Yes.", calls=(), stop="end", usage=Usage(input=100, output=20, cached=60)
    )
    first, *rest = turn(1, 2)
    parent = write_journal(tmp_path / "sessions", 1, first, rest[0], replied, rest[1])[0]
    assert project(lines(parent)).usage == replied.usage
    forked(parent, NEW, "fork", NOW)
    path = parent.with_name(f"{NEW}.jsonl")
    folded = project(lines(path))
    assert (folded.usage, folded.spent, folded.inherited) == (Usage(), {}, replied.usage)
    again = forked(path, session_id(9), "fork-2", NOW).session
    assert project(lines(path.with_name(f"{again}.jsonl"))).inherited == replied.usage


@pytest.mark.parametrize(
    ("at", "sentence"),
    [
        (2, "is not between turns; the last such event is 1"),
        (6, "is not between turns; the last such event is 4"),
        (8, "has no event 8; its last is 7"),
    ],
)
def test_a_fork_inside_a_turn_or_after_the_end_is_refused_naming_the_last_possible_event(
    parent: Path, at: int, sentence: str
) -> None:
    with pytest.raises(ForkRefused, match=sentence):
        forked(parent, NEW, "main-fork", NOW, at=at)
    assert list(parent.parent.iterdir()) == [parent]


def test_unfinished_work_is_not_copied(parent: Path) -> None:
    extend_journal(parent, received("waiting", "m9"))
    assert forked(parent, NEW, "a", NOW).parent_seq == 7
    began = CompactionBegan(compaction=1, trigger="command", keep_from=5, tokens_before=9)
    path, _, _ = write_journal(parent.parent, 2, *turn(1, 2), began)
    assert forked(path, session_id(9), "b", NOW).parent_seq == 4


def queued(folder: Path) -> Path:
    """Ten events: a turn, then one during which a further message came, which the last turn took."""
    events = [*turn(1, 2), received("text 2", "m2"), taking(5), received("text 3", "m3"), ENDED, taking(7), ENDED]
    return write_journal(folder, 1, *events)[0]


def taking(*seqs: int) -> TurnStarted:
    return TurnStarted(takes=seqs, provider="p", model="m", window=None, reserve=0)


@pytest.mark.parametrize("exactly", [True, False])
def test_a_message_that_waited_during_a_turn_stays_with_the_parent_and_the_turn_is_copied(
    tmp_path: Path, exactly: bool
) -> None:
    parent = queued(tmp_path / "sessions")
    made = forked(parent, NEW, "main-fork", NOW, at=8, exactly=exactly)
    assert made.parent_seq == 8
    copied = lines(parent.with_name(f"{NEW}.jsonl"))
    assert copied[:-1] == lines(parent)[:8]
    assert decode(copied[-1]).event == SessionForked(
        session=NEW, key="main-fork", parent=parent.stem, parent_seq=8, left=(7,)
    )
    folded = project(copied)
    assert folded.waiting == ()
    assert folded.finished
    assert [message.text for message in folded.messages if isinstance(message, UserMessage)] == ["text 1", "text 2"]


def test_a_message_that_waits_for_its_first_turn_is_not_even_copied(tmp_path: Path) -> None:
    parent = queued(tmp_path / "sessions")
    with pytest.raises(ForkRefused, match="the last such event is 4"):
        forked(parent, NEW, "main-fork", NOW, at=5)
    assert forked(parent, NEW, "main-fork", NOW, at=5, exactly=False).parent_seq == 4


def test_pending_deliveries_and_notes_of_the_parent_exclude_no_turn_from_a_fork(tmp_path: Path) -> None:
    asked = msgspec.structs.replace(received("text 1", "m1"), channel="lines", reply_to="kitchen")
    said = ModelReplied(reply=0, model="m", text="Yes.", calls=(), stop="end", usage=None)
    flushed = MemoryFlushed(
        compaction=1, outcome="written", covers_to=4, path="memory/2026-11-22.md", text="Tea.", digest="d", model="m"
    )
    parent = write_journal(tmp_path / "sessions", 1, asked, taking(2), said, flushed, ENDED)[0]
    assert project(lines(parent)).owed
    assert project(lines(parent)).cycle.owed
    assert forked(parent, NEW, "main-fork", NOW, at=6).parent_seq == 6
    assert project(lines(parent.with_name(f"{NEW}.jsonl"))).finished


def test_a_torn_tail_is_not_copied_and_a_closed_session_continues(parent: Path) -> None:
    extend_journal(parent, SessionClosed(reason="succeeded"))
    with parent.open("ab") as file:
        file.write(b'{"seq":9,"at":"2026')
    assert forked(parent, NEW, "main-fork", NOW).parent_seq == 7
    folded = project(lines(parent.with_name(f"{NEW}.jsonl")))
    assert folded.closed is None
    rows = scan_logs(JournalFolder(parent.parent), {}).changed
    assert {row.session: row.closed for row in rows} == {
        parent.stem: True,
        NEW: False,
    }


def test_a_fork_contains_the_last_flush_of_a_session_but_not_its_end(parent: Path) -> None:
    flushed = MemoryFlushed(
        compaction=1, outcome="written", covers_to=7, path="memory/2026-11-22.md", text="Tea.", digest="d"
    )
    began = CompactionBegan(compaction=1, trigger="new", keep_from=8, tokens_before=9)
    noted = NoteAppended(of=9, path="memory/2026-11-22.md")
    extend_journal(parent, began, flushed, noted, SessionClosed(reason="succeeded"))
    assert forked(parent, NEW, "main-fork", NOW).parent_seq == 10
    folded = project(lines(parent.with_name(f"{NEW}.jsonl")))
    assert (folded.finished, folded.cycle.covered, folded.cycle.next) == (True, 7, 2)
    assert forked(parent, session_id(6), "other", NOW, at=8, exactly=False).parent_seq == 7


@pytest.mark.parametrize("call", ["fsync", "rename"])
def test_a_fork_that_fails_at_the_last_step_leaves_no_second_session(
    parent: Path, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    plain, calls = getattr(os, call), count(1)

    def failing(*arguments: object) -> object:
        if call == "rename" or next(calls) == 2:  # the first is that of the draft
            raise OSError(errno.EIO, "Input/output error")
        return plain(*arguments)

    monkeypatch.setattr(os, call, failing)
    with pytest.raises(StorageFailed, match="Input/output error"):
        forked(parent, NEW, "main-fork", NOW)
    assert [path.stem for path in parent.parent.glob("*.jsonl")] == [parent.stem]


def test_a_damaged_journal_can_be_forked_before_the_damage_and_only_there(parent: Path) -> None:
    content = lines(parent)
    content[5] = content[5].replace(b'"provider":"p"', b'"provider":"q"')
    parent.write_bytes(b"".join(content))
    with pytest.raises(JournalDamaged, match="line 6"):
        forked(parent, NEW, "main-fork", NOW)
    with pytest.raises(JournalDamaged):
        forked(parent, NEW, "main-fork", NOW, at=7)
    assert forked(parent, NEW, "main-fork", NOW, at=4).parent_seq == 4
    assert stored(parent.with_name(f"{NEW}.jsonl")).verify().events == 5


def test_a_line_that_cannot_be_decoded_is_damage_too(tmp_path: Path) -> None:
    whole = lines_of([*turn(1, 2)])
    path = tmp_path / f"{session_id(1)}.jsonl"
    path.write_bytes(b"".join(line.replace(b'"provider":"p"', b'"provider":7  ') for line in whole))
    with pytest.raises(JournalDamaged):
        forked(path, NEW, "main-fork", NOW)


def test_without_a_journal_there_is_no_fork(tmp_path: Path) -> None:
    with pytest.raises(UnknownSession):
        forked(tmp_path / f"{session_id(1)}.jsonl", NEW, "main-fork", NOW)
    (tmp_path / f"{session_id(2)}.jsonl").touch()
    with pytest.raises(ForkRefused, match="nothing to fork yet"):
        forked(tmp_path / f"{session_id(2)}.jsonl", NEW, "main-fork", NOW)


def test_a_failed_fork_leaves_nothing_and_an_interrupted_one_is_removed_later(parent: Path) -> None:
    (parent.parent / f"{session_id(8)}.jsonl.draft").write_bytes(b"half")
    (parent.parent / f"{NEW}.jsonl").mkdir()
    with pytest.raises(StorageFailed, match="The fork could not be written"):
        forked(parent, NEW, "main-fork", NOW)
    (parent.parent / f"{NEW}.jsonl").rmdir()
    forked(parent, NEW, "main-fork", NOW)
    assert not list(parent.parent.glob("*.draft"))


def test_the_header_of_a_fork_and_of_a_fork_of_a_fork_is_found(parent: Path) -> None:
    extend_journal(parent, received(f'"kind":"session_forked","session":"{NEW}"', "m9"), CLAIM, *turn(3, 10)[2:])
    first, second = forked(parent, NEW, "main-fork", NOW), session_id(5)
    path = parent.with_name(f"{NEW}.jsonl")
    again = forked(path, second, "other", NOW)
    assert (first.parent_seq, again.parent_seq) == (10, 11)
    at = "2026-11-22T09:30:00.000Z"
    assert header_of(path) == JournalHeader(session=NEW, key="main-fork", person="owner", at=at, parent=parent.stem, seq=11)
    assert header_of(parent.with_name(f"{second}.jsonl")) == JournalHeader(
        session=second, key="other", person="owner", at=at, parent=NEW, seq=12
    )
    assert header_of(parent).parent == ""


CLAIM = TurnStarted(takes=(8,), provider="p", model="m", window=None, reserve=0)


def test_a_copy_under_another_name_is_not_a_session(parent: Path) -> None:
    forked(parent, NEW, "main-fork", NOW)
    copy = parent.with_name(f"{session_id(7)}.jsonl")
    copy.write_bytes(parent.with_name(f"{NEW}.jsonl").read_bytes())
    with pytest.raises(InvalidLine, match="renamed"):
        header_of(copy)
    altered = parent.with_name(f"{NEW}.jsonl")
    altered.write_bytes(altered.read_bytes().replace(b'"key":"main-fork"', b'"key":"work-fork"'))
    with pytest.raises(InvalidLine, match="renamed"):
        header_of(altered)


def test_a_header_is_found_wherever_block_boundaries_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_journal(tmp_path, 1, *turn(1, 2))[0]
    forked(path, NEW, "main-fork", NOW)
    for block in range(60, 140):
        monkeypatch.setattr("sessions.files.journal_folder.SMALLEST_BLOCK", block)
        monkeypatch.setattr("sessions.files.journal_folder.LARGEST_BLOCK", block)
        assert header_of(path.with_name(f"{NEW}.jsonl")).key == "main-fork"


async def test_the_catalog_lists_a_fork_under_its_own_name_and_without_message_ids(parent: Path, tmp_path: Path) -> None:
    forked(parent, NEW, "main-fork", NOW)
    path = parent.with_name(f"{NEW}.jsonl")
    for _ in range(2):  # from the journals, then from its own file
        async with SqliteCatalog(tmp_path / "catalog.sqlite", JournalFolder(parent.parent)) as catalog:
            assert catalog.unreadable == {}
            row = await catalog.current("owner", "main-fork")
            assert row is not None
            assert (row.session, row.head, row.succeeds, row.opened_at) == (NEW, 8, None, "2026-11-22T09:30:00.000Z")
            assert len(await catalog.receipts("owner", "main-fork")) == 0
            assert len(await catalog.receipts("owner", "main")) == 2
    extend_journal(path, *turn(3, 9))
    async with SqliteCatalog(tmp_path / "catalog.sqlite", JournalFolder(parent.parent)) as catalog:
        receipts = await catalog.receipts("owner", "main-fork")
        assert len(receipts) == 1
        assert receipts.find("m1") is None
        assert receipts.find("m3") is not None


def test_attachments_that_only_a_fork_refers_to_are_kept(tmp_path: Path) -> None:
    attachments = Attachments(tmp_path / "attachments")
    kept = Attachment(sha256="0" * 64, media="text/plain", bytes=3, name="a.txt")
    attachments.folder.mkdir()
    attachments.path(kept.sha256).write_bytes(b"abc")
    said = MessageReceived(
        id="m1", client="c", sender="owner", channel="w", chat="private", text="look", attachments=(kept,)
    )
    path = write_journal(tmp_path / "sessions", 1, said, STARTED, ENDED)[0]
    forked(path, NEW, "main-fork", NOW)
    path.unlink()
    assert attachments.remove_orphans(JournalFolder(tmp_path / "sessions"), before=2**40) == 0
    assert attachments.owners.find("owner", kept.sha256) == kept
