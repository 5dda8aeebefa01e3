"""The recorder: numbers, folds, encodes and chains a session's events into its log, and tells when they are durable."""

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
"""Bytes of the longest line that a journal takes."""

RECENT = 256 * 1024
"""Bytes of durable lines that stay in memory for those who follow closely."""


class LineTooLong(ValueError):
    """An event is too large for one line; whoever made it must cut it or keep it as an attachment."""


class _Line(msgspec.Struct, frozen=True):
    seq: int
    end: int
    bytes: bytes


class Recorder:
    """One session's writing hand. `transcript` holds what was noted; `durable` is the last seq that is on the disk.

    `clean` returns each event as it may be kept, mostly unchanged.

    `note` does everything up to queueing in one step without an await, so events stand in the log in the order in which
    they were noted, and the transcript is never ahead of the log's own queue.
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
        """Have `watcher` called after each step of `durable` and after a failure; returns what ends that."""
        self._watchers.append(watcher)
        return lambda: self._watchers.remove(watcher) if watcher in self._watchers else None

    def on_event(self, reader: Callable[[Recorded], None]) -> None:
        """Have `reader` called with each event as soon as it is noted, before it is durable; it must not raise."""
        self._readers.append(reader)

    def append(self, event: Event, *, turn: int | None = None, urgent: bool = False, onto: Transcript | None = None) -> int:
        """Put an event into the log's queue and the transcript; returns its seq. Raises StorageFailed or LineTooLong and
        then changes nothing. `onto` is another fold of the same events, which takes the transcript's place."""
        if self.failure is not None:
            raise self.failure
        assert onto is None or onto.head == self._seq
        recorded = Recorded(seq=self._seq + 1, at=stamp(self._now()), turn=turn, event=self._clean(event))
        line, digest = encode(recorded, self._sum)
        if len(line) > LONGEST_LINE:
            raise LineTooLong(f"an event of {len(line)} bytes is too large for the log")
        transcript = evolve(onto or self.transcript, recorded, len(line))  # what cannot be folded does not get into the log
        self.log.append(line, urgent=urgent)
        self._seq, self._sum, self.transcript = recorded.seq, digest, transcript
        self._pending.append((_Line(recorded.seq, self.log.end, line), digest, self.transcript))
        for reader in self._readers:
            reader(recorded)
        return recorded.seq

    async def append_durable(self, event: Event, *, turn: int | None = None) -> int:
        """Note an event and wait until it is durable. A cancelled wait does not take the event back."""
        seq = self.append(event, turn=turn, urgent=True)
        await self.until_durable(seq)
        return seq

    async def until_durable(self, seq: int) -> None:
        """Return once `seq` is on the disk; StorageFailed if it will never be."""
        if seq <= self.durable:
            return
        if self.failure is not None:
            raise self.failure
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiters.append((seq, waiter))
        await waiter

    def recent(self, after: int) -> Sequence[bytes] | None:
        """The durable lines after seq `after` from memory, or None where the log itself must be read."""
        if after >= self.durable:
            return ()
        if not self._recent or self._recent[0].seq > after + 1:
            return None
        return [line.bytes for line in islice(self._recent, after + 1 - self._recent[0].seq, None)]

    async def close(self) -> None:
        """Commit what was noted and let go of the log."""
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
    """RFC 3339 in UTC with milliseconds and `Z`."""
    return now.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.") + f"{now.microsecond // 1000:03d}Z"
