"""The recorder: numbers, folds, encodes and chains a session's events, and reports when they are durable."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import islice

import msgspec

from sessions.events.codec import encode
from sessions.events.errors import StorageFailed
from sessions.events.events import Event, Recorded
from sessions.state.reducer import evolve
from sessions.state.transcript import Transcript
from sessions.store.protocols import Log, Position

LONGEST_LINE = 2 * 1024 * 1024
"""Maximum length in bytes of a line in a journal."""

RECENT = 256 * 1024
"""Bytes of durable lines that are kept in memory for subscribers."""


class LineTooLong(ValueError):
    """An event too large for one line; the caller must shorten it or store it as an attachment."""


class _Line(msgspec.Struct, frozen=True):
    seq: int
    end: int
    bytes: bytes


class Recorder:
    """The writer of one session's log. `transcript` includes every appended event; `durable` is the last seq on the disk.

    `clean` is applied to each event before it is logged, for example to redact secrets.

    `append` does everything up to queueing in one step without an await, so events are logged in the order of the calls, and
    the transcript is never ahead of the log's queue.
    """

    def __init__(
        self,
        log: Log,
        position: Position,
        transcript: Transcript,
        now: Callable[[], datetime],
        clean: Callable[[Event], Event] = lambda event: event,
    ) -> None:
        self.log = log
        self.transcript = transcript
        self.durable = position.seq
        self.position = position
        """The last durable position, for checkpoints."""
        self.durable_transcript = transcript
        """The transcript at `position`: never ahead of the disk."""
        self.failure: StorageFailed | None = None
        self._now = now
        self._clean = clean
        self._sum = position.sum
        self._seq = position.seq
        self._pending: deque[tuple[_Line, bytes, Transcript]] = deque()
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._recent: deque[_Line] = deque()
        self._recent_bytes = 0
        self._watchers: list[Callable[[], None]] = []
        self._readers: list[Callable[[Recorded], None]] = []
        log.on_commit(self._settle, self._fail)

    def on_durable(self, watcher: Callable[[], None]) -> Callable[[], None]:
        """Call `watcher` whenever `durable` advances and after a failure. Returns a function that removes it."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher) if watcher in self._watchers else None

    def on_event(self, reader: Callable[[Recorded], None]) -> None:
        """Call `reader` with each event as soon as it is appended, before it is durable. It must not raise."""
        self._readers.append(reader)

    def append(self, event: Event, *, turn: int | None = None, urgent: bool = False, onto: Transcript | None = None) -> int:
        """Append an event to the log's queue and to the transcript, without waiting for the disk.

        Args:
            event: The event.
            turn: The number of the turn that it belongs to.
            urgent: Whether to commit it in the next round.
            onto: Another fold of the same events, which replaces the transcript first.

        Returns:
            The seq of the event.

        Raises:
            StorageFailed: The log has failed; nothing was changed.
            LineTooLong: The event does not fit a line; nothing was changed.
        """
        if self.failure is not None:
            raise self.failure
        assert onto is None or onto.head == self._seq
        recorded = Recorded(seq=self._seq + 1, at=stamp(self._now()), turn=turn, event=self._clean(event))
        line, digest = encode(recorded, self._sum)
        if len(line) > LONGEST_LINE:
            raise LineTooLong(f"an event of {len(line)} bytes is too large for the log")
        transcript = evolve(onto or self.transcript, recorded, len(line))  # an event that cannot be folded is not logged
        self.log.append(line, urgent=urgent)
        self._seq, self._sum, self.transcript = recorded.seq, digest, transcript
        self._pending.append((_Line(recorded.seq, self.log.end, line), digest, self.transcript))
        for reader in self._readers:
            reader(recorded)
        return recorded.seq

    async def append_durable(self, event: Event, *, turn: int | None = None) -> int:
        """Append an event and wait until it is durable. Cancelling the wait does not remove the event."""
        seq = self.append(event, turn=turn, urgent=True)
        await self.until_durable(seq)
        return seq

    async def until_durable(self, seq: int) -> None:
        """Wait until `seq` is on the disk. Raises StorageFailed if it never will be."""
        if seq <= self.durable:
            return
        if self.failure is not None:
            raise self.failure
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((seq, waiter))
        await waiter

    def recent(self, after: int) -> Sequence[bytes] | None:
        """Return the durable lines after seq `after` from memory, or None if the log itself must be read."""
        if after >= self.durable:
            return ()
        if not self._recent or self._recent[0].seq > after + 1:
            return None
        return [line.bytes for line in islice(self._recent, after + 1 - self._recent[0].seq, None)]

    async def close(self) -> None:
        """Commit what was appended and close the log."""
        await self.log.close()

    def _settle(self, durable: int) -> None:
        while self._pending and self._pending[0][0].end <= durable:
            line, digest, transcript = self._pending.popleft()
            self.durable = line.seq
            self.position = Position(seq=line.seq, offset=line.end, sum=digest)
            self.durable_transcript = transcript
            self._recent.append(line)
            self._recent_bytes += len(line.bytes)
        while len(self._recent) > 1 and self._recent_bytes > RECENT:
            self._recent_bytes -= len(self._recent.popleft().bytes)
        self._release(self.durable, None)

    def _fail(self, failure: StorageFailed) -> None:
        self.failure = failure
        self._pending.clear()
        self._release(self._seq, failure)

    def _release(self, upto: int, failure: StorageFailed | None) -> None:
        later: deque[tuple[int, asyncio.Future[None]]] = deque()
        for seq, waiter in self._waiters:
            if seq > upto:
                later.append((seq, waiter))
            elif not waiter.done():
                waiter.set_exception(failure) if failure else waiter.set_result(None)
        self._waiters = later
        for watcher in tuple(self._watchers):
            watcher()


def stamp(now: datetime) -> str:
    """Format a time as RFC 3339 in UTC with milliseconds and `Z`."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z"
