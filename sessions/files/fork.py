"""Forks: a new session that continues from an earlier event of another.

The functions block. The parent may be written meanwhile, after the event that is named; no other fork may be created in the
folder at the same time.
"""

from __future__ import annotations

import os
from collections.abc import Container, Iterator
from datetime import datetime
from itertools import chain, count
from pathlib import Path

import msgspec

from sessions.events.codec import InvalidLine, decode, encode
from sessions.events.errors import JournalDamaged, SessionsError, StorageFailed
from sessions.events.events import MessageReceived, Recorded, SessionClosed, SessionForked
from sessions.files.fsync import open_folder, write_new
from sessions.files.line_reader import BLOCK
from sessions.files.verify import open_journal, verify_lines
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript
from sessions.store.log_writer import stamp
from sessions.store.protocols import START, Position

LONGEST_KEY = 64
"""Maximum length in characters of a conversation's name."""

DRAFT = ".draft"
"""Suffix of an incomplete fork's file name."""


class ForkRefused(SessionsError):
    """A journal that cannot be forked at the requested event."""


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """A completed fork: of `parent` up to its event `parent_seq`, as `session` under `key`."""

    session: str
    key: str
    parent: str
    parent_seq: int


def fork_key(key: str, used: Container[str]) -> str:
    """Return an unused key for a fork, derived from the key of its parent."""
    endings = chain(["-fork"], (f"-fork-{number}" for number in count(2)))
    keys = (key[: LONGEST_KEY - len(ending)] + ending for ending in endings)
    return next(key for key in keys if key not in used)


def fork(parent: Path, session: str, key: str, now: datetime, *, at: int | None = None, exactly: bool = True) -> Fork:
    """Copy a journal up to an event between two turns into the journal of a new session, durably.

    Messages waiting for a turn at that event are answered in the parent only.

    Args:
        parent: The journal to copy.
        session: The id of the new session.
        key: The key of the new session.
        now: The current time.
        at: The seq of the last event to copy; by default the last one between turns.
        exactly: If False, the last event between turns up to `at` is used.

    Raises:
        ForkRefused: There is no such event, or it is not between turns.
        UnknownSession: The parent does not exist.
        JournalDamaged: The parent does not verify.
        StorageFailed: The fork could not be written.
    """
    with open_journal(parent) as descriptor:
        places = _place(descriptor, parent, at, exactly=exactly)
        last = places.last
        made = Fork(session=session, key=key, parent=parent.stem, parent_seq=last.seq)
        event = SessionForked(session=session, key=key, parent=parent.stem, parent_seq=last.seq, left=places.left)
        line, _ = encode(Recorded(seq=last.seq + 1, at=stamp(now), turn=None, event=event), last.sum)
        try:
            _write(parent.with_name(f"{session}.jsonl"), _copied(descriptor, last.offset, line))
        except OSError as error:
            raise StorageFailed(f"The fork could not be written: {error.strerror or error}.") from error
    return made


def _write(path: Path, content: Iterator[bytes]) -> None:
    """Create a journal atomically: a partial one after an error would give its key two sessions."""
    for left in path.parent.glob(f"*{DRAFT}"):
        left.unlink()  # left by an interrupted fork
    draft = path.with_name(path.name + DRAFT)
    write_new(draft, content)
    with open_folder(path.parent) as folder:
        draft.rename(path)
        try:
            os.fsync(folder)
        except OSError:
            path.unlink()
            raise


class _Places:
    """A fold that finds the place to fork. `last` is the last event, up to `at`, after which no turn and no compaction was
    running, and `left` are the messages that waited there; `here` is the last line read.

    A received message is no such place, because it would be copied only to be left; nor is the end of a session, because the
    fork continues.
    """

    def __init__(self, at: int | None) -> None:
        self.last = self.here = START
        self.left: tuple[int, ...] = ()
        self._at = at
        self._transcript = Transcript()

    def __call__(self, line: bytes) -> None:
        here = self.here
        self.here = Position(seq=here.seq + 1, offset=here.offset + len(line), sum=line[-19:-3])
        if self._at is None or here.seq < self._at:
            recorded = decode(line)
            self._transcript = folded = evolve(self._transcript, recorded, len(line))
            running = folded.open_turn is not None or (folded.cycle.open and not folded.cycle.ends_session)
            if not running and not isinstance(recorded.event, MessageReceived | SessionClosed):
                self.last = self.here
                self.left = tuple(waiting.seq for waiting in folded.waiting)


def _place(descriptor: int, path: Path, at: int | None, *, exactly: bool) -> _Places:
    places = _Places(at)
    try:
        verify_lines(descriptor, path, START, os.fstat(descriptor).st_size, places)
    except InvalidLine as error:
        raise JournalDamaged(path, places.here.seq + 1, str(error), good_seq=places.here.seq) from error
    except JournalDamaged as damaged:
        if at is None or at > damaged.good_seq:
            raise
    if at is not None and at > places.here.seq:
        raise ForkRefused(f"{path.stem} has no event {at}; its last is {places.here.seq}.")
    if at is not None and at != places.last.seq and exactly:
        before = f"the last such event is {places.last.seq}" if places.last.seq else "no earlier event is either"
        raise ForkRefused(f"Event {at} of {path.stem} is not between turns; {before}.")
    if not places.last.seq:
        raise ForkRefused(f"{path.stem} has nothing to fork yet.")
    return places


def _copied(descriptor: int, end: int, line: bytes) -> Iterator[bytes]:
    offset = 0
    while offset < end:
        block = os.pread(descriptor, min(BLOCK, end - offset), offset)
        yield block
        offset += len(block)
    yield line
