"""Forking: a session that goes on from a past moment of another, beside it. For threads and commands. The parent may be
written meanwhile, behind the moment that is named; no other fork may be made in the folder.
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
from sessions.files.verify import reading, verify_lines
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript
from sessions.store.protocols import START, Position
from sessions.store.recorder import stamp

LONGEST_KEY = 64
"""Characters of the name of a conversation."""

DRAFT = ".draft"
"""What the name of a fork ends in until it is whole."""


class ForkRefused(SessionsError):
    """The journal cannot be forked there."""


class Fork(msgspec.Struct, frozen=True, kw_only=True):
    """A fork that was made: of `parent` up to its event `parent_seq`, as `session` under `key`."""

    session: str
    key: str
    parent: str
    parent_seq: int


def fork_key(key: str, used: Container[str]) -> str:
    """A key for a fork of a session, made of its own, that is not used yet."""
    endings = chain(["-fork"], (f"-fork-{number}" for number in count(2)))
    keys = (key[: LONGEST_KEY - len(ending)] + ending for ending in endings)
    return next(key for key in keys if key not in used)


def fork(parent: Path, session: str, key: str, now: datetime, *, at: int | None = None, exactly: bool = True) -> Fork:
    """Copy a journal up to event `at`, which must stand between turns (by default the last such event), into that of a new
    session beside it; returns once it is durable. With `exactly` false it is the last such event up to `at`. Messages that
    waited for their turn there are answered in the parent alone. Raises CannotFork, UnknownSession, StorageFailed,
    JournalDamaged."""
    with reading(parent) as descriptor:
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
    """Make a journal that is there as a whole or not at all: also after an error, or its key would have two sessions."""
    for left in path.parent.glob(f"*{DRAFT}"):
        left.unlink()  # of a fork that was stopped
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
    """Goes through a journal's lines, as far as `here`. `last` is the last event, up to `at`, behind which no turn and no
    compaction was running, and `left` are the messages that waited there. Their answers, and what else was owed there, stay
    with the parent. A message is no such place: it would be copied only to be left. Nor is the end of a session: the fork
    goes on."""

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
        before = f"the last place before is {places.last.seq}" if places.last.seq else "nor does any before it"
        raise ForkRefused(f"Event {at} of {path.stem} does not stand between turns; {before}.")
    if not places.last.seq:
        raise ForkRefused(f"{path.stem} has nothing that could be forked.")
    return places


def _copied(descriptor: int, end: int, line: bytes) -> Iterator[bytes]:
    offset = 0
    while offset < end:
        block = os.pread(descriptor, min(BLOCK, end - offset), offset)
        yield block
        offset += len(block)
    yield line
