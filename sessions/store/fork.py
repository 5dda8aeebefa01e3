"""Forks: a new session that continues from an earlier event of another.

The parent may be written meanwhile, after the event that is named.
"""

from __future__ import annotations

import asyncio
from collections.abc import Container
from datetime import datetime
from itertools import chain, count

import msgspec

from sessions.events.codec import InvalidLine, decode, encode
from sessions.events.errors import JournalDamaged, SessionsError
from sessions.events.events import MessageReceived, Recorded, SessionClosed, SessionForked
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript
from sessions.store.log_writer import stamp
from sessions.store.protocols import START, LogReader, Store
from sessions.store.reading import verify_lines

LONGEST_KEY = 64
"""Maximum length in characters of a conversation's name."""


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


async def fork(
    store: Store, parent: str, session: str, key: str, now: datetime, *, at: int | None = None, exactly: bool = True
) -> Fork:
    """Copy a session's log up to an event between two turns into the log of a new session, durably.

    Messages waiting for a turn at that event are answered in the parent only. No other fork may be created in the store at
    the same time.

    Args:
        store: The store of both.
        parent: The session to copy.
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
    point = await asyncio.to_thread(_find_fork_point, store, parent, at, exactly=exactly)
    last = point.last
    event = SessionForked(session=session, key=key, parent=parent, parent_seq=last.seq, left=point.left)
    line, _ = encode(Recorded(seq=last.seq + 1, at=stamp(now), turn=None, event=event), last.sum)
    await store.copy(parent, last, line, session)
    return Fork(session=session, key=key, parent=parent, parent_seq=last.seq)


class _ForkPoint:
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
        self.here = here.after(line)
        if self._at is None or here.seq < self._at:
            recorded = decode(line)
            self._transcript = folded = evolve(self._transcript, recorded, len(line))
            running = folded.open_turn is not None or (folded.cycle.open and not folded.cycle.ends_session)
            if not running and not isinstance(recorded.event, MessageReceived | SessionClosed):
                self.last = self.here
                self.left = tuple(waiting.seq for waiting in folded.waiting)


def _find_fork_point(reader: LogReader, session: str, at: int | None, *, exactly: bool) -> _ForkPoint:
    point = _ForkPoint(at)
    try:
        with reader.read(session) as lines:
            verify_lines(lines, START, point)
    except InvalidLine as error:
        raise JournalDamaged(session, point.here.seq + 1, str(error), good_seq=point.here.seq) from error
    except JournalDamaged as damaged:
        if at is None or at > damaged.good_seq:
            raise
    if at is not None and at > point.here.seq:
        raise ForkRefused(f"{session} has no event {at}; its last is {point.here.seq}.")
    if at is not None and at != point.last.seq and exactly:
        before = f"the last such event is {point.last.seq}" if point.last.seq else "no earlier event is either"
        raise ForkRefused(f"Event {at} of {session} is not between turns; {before}.")
    if not point.last.seq:
        raise ForkRefused(f"{session} has nothing to fork yet.")
    return point
