"""A log that is folded into one value, opened when it is first needed and created by its first event."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any, Generic, Protocol, TypeVar

import msgspec
import structlog

from sessions.events.codec import InvalidLine
from sessions.events.errors import LogReplaced, SessionsError, StorageFailed, UnknownSession
from sessions.store.log_writer import Event, Event_contra, Fold, LogWriter, State
from sessions.store.protocols import START, Lines, LogReader, Store
from sessions.store.reading import verify_lines

FRESH_SECONDS = 1.0
"""Seconds for which the state of a shared log is taken for up to date when it is read."""


T = TypeVar("T")

TURNS, RETRY_SECONDS = 30, 1.0
"""Attempts to append what nobody waits for to a shared log, and the seconds between them; the next event tries again."""


FLUSH_SECONDS = 10.0
"""Seconds within which what waits must be appended to a shared log when it is closed."""

PAGE_BYTES = 512 * 1024
"""Bytes of lines that are read at a time."""

report = structlog.get_logger("exuvia.store")


class LogFormat(msgspec.Struct, Generic[Event, State], frozen=True, kw_only=True):
    """What one log holds.

    Attributes:
        name: The id of the log in its store.
        events: The kinds of its events; lines of other kinds, which later versions write, are skipped.
        empty: The state of an empty log.
        fold: Returns the state after one more event.
    """

    name: str
    events: tuple[type[Event], ...]
    empty: State
    fold: Fold[Event, State]

    def read(self, logs: LogReader) -> State:
        """Return the durable state, even while another process writes the log.

        Raises JournalDamaged, StorageFailed and InvalidLine.
        """
        try:
            with logs.read(self.name) as lines:
                return self.state_of(lines)
        except UnknownSession:
            return self.empty

    def state_of(self, lines: Lines) -> State:
        """Return the state after the lines of a log. Raises JournalDamaged, StorageFailed and InvalidLine."""
        folded = _Folded(self)
        verify_lines(lines, START, folded)
        return folded.state


class AppendEvent(Protocol[Event_contra]):
    """Appends an event without waiting. Raises StorageFailed. One that is not urgent may wait for the next that is, 50 ms at
    most; in a shared log every event is appended soon."""

    def __call__(self, event: Event_contra, /, *, urgent: bool = True) -> None: ...


class LazyLog(Generic[Event, State]):
    """A log of a home that only few need: it costs nothing until it is needed.

    Args:
        form: What it holds.
        store: The store of the log.
        now: Returns the current time in UTC.
        unusable: What it means if the log cannot be used, as the beginning of a sentence.
    """

    def __init__(self, form: LogFormat[Event, State], store: Store, now: Callable[[], datetime], *, unusable: str) -> None:
        self._form = form
        self._store = store
        self._now = now
        self._unusable = unusable
        self._opening = asyncio.Lock()
        self._writer: LogWriter[Event, State] | None = None
        self._missing = False
        self._queued: list[Event] = []
        self._appending: asyncio.Task[None] | None = None
        self._unsure: int | None = None
        """The head before queued events were appended last, if the outcome is unknown."""
        self._as_of = -FRESH_SECONDS
        """When the state was up to date, on the monotonic clock."""
        self.problem = ""
        """Why the log cannot be used, as a sentence; empty if it can."""

    @property
    def length(self) -> int:
        """The number of durable events, as far as they have been read."""
        return 0 if self._writer is None else self._writer.durable

    async def flush(self) -> bool:
        """Append to a shared log what waits for its turn; return False if that takes longer than FLUSH_SECONDS: it goes on
        then, and `problem` says why."""
        if self._queued and (self._appending is None or self._appending.done()):
            self._appending = asyncio.create_task(self._append_queued())
        if self._appending is not None:
            await asyncio.wait([self._appending], timeout=FLUSH_SECONDS)
        return not self._queued

    async def close(self) -> None:
        """Commit what was appended and close the log. What nobody waits for is dropped if it cannot be appended within
        FLUSH_SECONDS, and reported."""
        if not await self.flush():
            count, kinds = len(self._queued), sorted({str(type(event).__struct_config__.tag) for event in self._queued})
            report.error("events_dropped", log=self._form.name, events=count, kinds=kinds, reason=self.problem)
            self._queued.clear()
        if self._appending is not None:
            self._appending.cancel()
            await asyncio.wait([self._appending])
        if self._writer is not None:
            await self._writer.close()

    async def rewrite(self, rewritten: Callable[[Lines], Iterator[bytes]]) -> None:
        """Replace the lines of the log, if there is one; see `Store.rewrite`. Raises StorageFailed, JournalDamaged."""
        async with self._store.exclusive(self._form.name), self._opening:  # others append before it, or to the new lines
            if self._writer is not None:
                await self._writer.close()
                self._writer = None
            if await asyncio.to_thread(self._store.stamp, self._form.name) is not None:
                await self._store.rewrite(self._form.name, rewritten)

    async def durable_state(self) -> State:
        """Return the durable state. Raises StorageFailed if the log cannot be read.

        In a shared store, what another process has appended is included FRESH_SECONDS later.
        """
        if self._writer is None or self._writer.failure is not None or self._is_stale:
            async with self._opening:
                await self._open(create=False)
                if self._is_stale:
                    await self._catch_up()
        return self._writer.durable_state if self._writer is not None else self._form.empty

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[LogWriter[Event, State]]:
        """Lend the writer of the log, which is created if it does not exist. Its state is up to date, and no other process
        appends meanwhile: decide and append inside, with `append_durable` at the end. Raises StorageFailed."""
        async with self._store.exclusive(self._form.name):
            async with self._opening:
                await self._open(create=True)
                await self._catch_up(create=True)
            assert self._writer is not None
            yield self._writer

    async def appender(self) -> AppendEvent[Event]:
        """Return a function that appends an event without waiting. To a shared log it is appended in the next turn; if that
        fails, `problem` says so. Raises StorageFailed if the log cannot be used."""
        if self._store.shared:
            return self._queue_event
        async with self._opening:
            await self._open(create=True)
        writer = self._writer
        assert writer is not None

        def append(event: Event, /, *, urgent: bool = True) -> None:
            writer.append(event, urgent=urgent)

        return append

    def _queue_event(self, event: Event, /, *, urgent: bool = True) -> None:
        self._queued.append(event)
        if self._appending is None or self._appending.done():
            self._appending = asyncio.create_task(self._append_queued())

    async def _append_queued(self) -> None:
        failures = 0
        while self._queued and failures < TURNS:
            try:
                async with self.writing() as writer:
                    if self._unsure is not None:
                        await self._drop_stored(writer, self._unsure + 1)
                    self._unsure, events = writer.head, tuple(self._queued)
                    for event in events:
                        writer.append(event, urgent=event is events[-1])
                    await writer.until_durable(writer.head)
            except StorageFailed as error:
                self.problem, failures = f"{self._unusable}: {error}", failures + 1
                await asyncio.sleep(RETRY_SECONDS)
            else:
                del self._queued[: len(events)]
                failures, self.problem, self._unsure = 0, "", None

    async def _drop_stored(self, writer: LogWriter[Event, State], first: int) -> None:
        """Drop the queued events that stand in the log from a seq on: their commit has happened, and its answer was lost."""
        while self._queued and (lines := await writer.log.lines(first, limit=PAGE_BYTES)):
            for line in lines:
                if not self._queued or _Folded(self._form).event_of(line) != self._queued[0]:
                    return
                del self._queued[0]
            first += len(lines)

    async def lines(self, first: int, *, limit: int) -> list[bytes]:
        """Return durable lines, see `Log.lines`. Raises StorageFailed."""
        await self.durable_state()
        return await self._writer.log.lines(first, limit=limit) if self._writer is not None else []

    @property
    def _is_stale(self) -> bool:
        return self._store.shared and time.monotonic() - self._as_of >= FRESH_SECONDS

    async def _catch_up(self, *, create: bool = False) -> None:
        if not self._store.shared:
            return
        now = time.monotonic()
        if self._writer is not None:
            try:
                await self._writer.catch_up(self._fold)
            except LogReplaced:
                await self._open(create=create)
        self._as_of = now

    def _fold(self, state: State, line: bytes) -> State:
        folded = _Folded(self._form, state)
        folded(line)
        return folded.state

    async def _open(self, *, create: bool) -> None:
        """Open the log if it is not open, or its writer has failed."""
        if self._writer is not None and self._writer.failure is None:
            return
        if self._missing and not create and not self._is_stale:
            return
        store, form = self._store, self._form
        try:
            self._as_of = time.monotonic()
            self._missing = await asyncio.to_thread(store.stamp, form.name) is None
            if self._missing and not create:
                return
            folded = _Folded(form)
            if self._missing:
                log, position = await store.create(form.name), START
            else:
                log, position = await store.open(form.name, fold=folded)
        except (SessionsError, InvalidLine) as error:
            self.problem = f"{self._unusable}: {error}"
            raise StorageFailed(self.problem) from error
        self._writer = LogWriter(log, position, folded.state, self._now, form.fold)
        self._missing, self.problem = False, ""


class _Envelope(msgspec.Struct, frozen=True):
    seq: int
    at: str
    kind: str


_envelope = msgspec.json.Decoder(_Envelope).decode

_examining = threading.Lock()
"""Held while msgspec examines types of events: two threads that do so for the first time crash."""


class _Folded(Generic[Event, State]):
    """The state after the lines that were applied."""

    def __init__(self, form: LogFormat[Event, State], state: State | None = None) -> None:
        self.state = form.empty if state is None else state
        self._fold = form.fold
        with _examining:
            self._decoders: dict[Any, msgspec.json.Decoder[Event]] = {
                event.__struct_config__.tag: msgspec.json.Decoder(event) for event in form.events
            }

    def __call__(self, line: bytes) -> None:
        envelope = self._decoded(_envelope, line)
        if (event := self._event(envelope.kind, line)) is not None:
            self.state = self._fold(self.state, event, seq=envelope.seq, at=envelope.at, turn=None, size=len(line))

    def event_of(self, line: bytes) -> Event | None:
        """Return the event of a line; None if it is of another kind. Raises InvalidLine."""
        return self._event(self._decoded(_envelope, line).kind, line)

    def _event(self, kind: str, line: bytes) -> Event | None:
        decoder = self._decoders.get(kind)
        return self._decoded(decoder.decode, line) if decoder else None

    def _decoded(self, decode: Callable[[bytes], T], line: bytes) -> T:
        try:
            return decode(line)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise InvalidLine(f"it cannot be read: {error}") from error
