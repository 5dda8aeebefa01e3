"""The writer of a log: numbers, folds, encodes and chains events, and reports when they are durable."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Generic, Protocol, TypeVar

import msgspec

from sessions.events.codec import InvalidLine, encode_line, verify
from sessions.events.errors import LogReplaced, StorageFailed
from sessions.store.protocols import LONGEST_LINE, Log, Position

Event = TypeVar("Event", bound=msgspec.Struct)
Event_contra = TypeVar("Event_contra", bound=msgspec.Struct, contravariant=True)
State = TypeVar("State")


class LineTooLong(ValueError):
    """An event too large for one line; the caller must shorten it or store it as an attachment."""


class Fold(Protocol[Event_contra, State]):
    """A function that returns the state after an event, whose line has `size` bytes."""

    def __call__(self, state: State, event: Event_contra, /, *, seq: int, at: str, turn: int | None, size: int) -> State: ...


class LogWriter(Generic[Event, State]):
    """The only writer of one log. `state` includes every appended event; `durable` is the last seq on the disk.

    `append` does everything up to queueing in one step without an await, so events are logged in the order of the calls, and
    the state is never ahead of the log's queue. After a failure the log must be opened again: the state may be ahead of the
    disk.

    Args:
        log: The open log.
        position: Its last position.
        state: The state that was folded from it.
        now: Returns the current time.
        fold: Folds each event into the state before it is logged: an event that cannot be folded is not logged.
    """

    def __init__(
        self, log: Log, position: Position, state: State, now: Callable[[], datetime], fold: Fold[Event, State]
    ) -> None:
        self.log = log
        self.state = state
        self.head = position.seq
        """The last appended seq."""
        self.durable = position.seq
        self.position = position
        """The last durable position, for checkpoints."""
        self.durable_state = state
        """The state at `position`: never ahead of the disk, unless the fold changes states in place."""
        self.failure: StorageFailed | None = None
        self._now = now
        self._fold = fold
        self._sum = position.sum
        self._pending: deque[tuple[Position, bytes, State]] = deque()
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()
        log.on_commit(self._advance, self._fail)

    def append(self, event: Event, *, turn: int | None = None, urgent: bool = False) -> int:
        """Append an event to the log's queue and to the state, without waiting for the disk.

        Args:
            event: The event, a struct tagged with its kind.
            turn: The number of the turn that it belongs to.
            urgent: Whether to commit it in the next round.

        Returns:
            The seq of the event.

        Raises:
            StorageFailed: The log has failed; nothing was changed.
            LineTooLong: The event does not fit a line; nothing was changed.
        """
        if self.failure is not None:
            raise self.failure
        seq, at = self.head + 1, stamp(self._now())
        line, digest = encode_line(seq, at, turn, event, self._sum)
        if len(line) > LONGEST_LINE:
            raise LineTooLong(f"an event of {len(line)} bytes is too large for the log")
        state = self._fold(self.state, event, seq=seq, at=at, turn=turn, size=len(line))
        self.log.append(line, urgent=urgent)
        self.head, self._sum, self.state = seq, digest, state
        self._pending.append((Position(seq=seq, offset=self.log.end, sum=digest), line, state))
        return seq

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

    async def until_written(self) -> None:
        """Wait until everything that was appended survives the end of this process, even if it is killed; a power failure
        may still take it. Raises StorageFailed if the log has failed."""
        if self.failure is not None:
            raise self.failure
        await self.log.until_written()

    async def catch_up(self, fold: Callable[[State, bytes], State]) -> None:
        """Fold the lines that other processes have appended, if the log is shared.

        Args:
            fold: Returns the state after one more line. Raises InvalidLine.

        Raises:
            StorageFailed: The log cannot be read, or is damaged; then it must be opened again.
        """
        try:
            while self.failure is None and (lines := await self.log.catch_up(self.position)):
                for line in lines:
                    verify(line, self._sum, self.head + 1)
                    self.state = fold(self.state, line)
                    self.position = self.position.after(line)
                    self.head, self._sum = self.position.seq, self.position.sum
                self.durable, self.durable_state = self.head, self.state
        except (LogReplaced, InvalidLine) as error:
            replaced = LogReplaced(f"The log was changed by another process: {error}")
            self._fail(replaced)
            await self.log.close()
            raise replaced from error

    async def close(self) -> None:
        """Commit what was appended and close the log."""
        await self.log.close()

    def _advance(self, durable: int) -> None:
        """Record that the log is durable up to an offset."""
        while self._pending and self._pending[0][0].offset <= durable:
            self.position, line, self.durable_state = self._pending.popleft()
            self.durable = self.position.seq
            self._committed(line)
        self._release(self.durable, None)

    def _committed(self, line: bytes) -> None:
        """Handle a line that has become durable."""

    def _fail(self, failure: StorageFailed) -> None:
        self.failure = failure
        self._pending.clear()
        self._release(self.head, failure)

    def _release(self, upto: int, failure: StorageFailed | None) -> None:
        later: deque[tuple[int, asyncio.Future[None]]] = deque()
        for seq, waiter in self._waiters:
            if seq > upto:
                later.append((seq, waiter))
            elif not waiter.done():
                waiter.set_exception(failure) if failure else waiter.set_result(None)
        self._waiters = later


def stamp(now: datetime) -> str:
    """Format a time as RFC 3339 in UTC with milliseconds and `Z`."""
    return now.astimezone(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00") + "Z"
