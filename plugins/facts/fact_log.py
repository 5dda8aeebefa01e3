"""The writer of the facts' log: it numbers, applies and encodes events. There is one per log."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime

import msgspec

from plugins.api.facts.fact_events import FactEvent, LoggedFactEvent
from plugins.api.facts.fact_values import Fact
from plugins.facts.fact_book import FactBook
from plugins.facts.fact_codec import decode, encode
from sessions.events.errors import StorageFailed
from sessions.store.protocols import Log, Position
from sessions.store.recorder import LONGEST_LINE, stamp

PORTION = LONGEST_LINE // 2
"""Maximum bytes of facts in one event."""


class FactLog:
    """An open log with its state `book`.

    After a failed append, `failure` is set and the log must be opened again, since the state may be ahead of the disk.
    """

    def __init__(self, log: Log, position: Position, book: FactBook, now: Callable[[], datetime]) -> None:
        self.book = book
        self.failure: StorageFailed | None = None
        self._log = log
        self._seq, self._sum = position.seq, position.sum
        self._now = now
        self._waiting: deque[tuple[int, asyncio.Future[None]]] = deque()
        log.on_commit(self._settle, self._fail)

    @property
    def is_new(self) -> bool:
        """True if nothing was ever written."""
        return self._seq == 0

    def note(self, event: FactEvent, *, urgent: bool = False) -> LoggedFactEvent:
        """Append an event and apply it to the state.

        Raises:
            StorageFailed: The event was not appended; nothing changed.
        """
        if self.failure is not None:
            raise self.failure
        happened = LoggedFactEvent(seq=self._seq + 1, at=stamp(self._now()), event=event)
        line, digest = encode(happened.seq, happened.at, event, self._sum)
        self._log.append(line, urgent=urgent)
        self._seq, self._sum = happened.seq, digest
        self.book.apply(happened)
        return happened

    async def record(self, event: FactEvent) -> LoggedFactEvent:
        """Append an event and wait until it is durable. A cancelled wait does not revoke it."""
        happened = self.note(event, urgent=True)
        await self._all_durable()
        return happened

    async def events(self, seqs: Iterable[int]) -> list[LoggedFactEvent]:
        """Return the events with these sequence numbers, once they are durable."""
        await self._all_durable()
        found = []
        for seq in seqs:
            lines = await self._log.lines(seq, limit=1)
            found += [happened for line in lines[:1] if (happened := decode(line)).seq == seq]
        return found

    async def close(self) -> None:
        """Commit pending events and close the log."""
        await self._log.close()

    async def _all_durable(self) -> None:
        """Wait until all appended events are durable.

        Raises:
            StorageFailed: Writing failed.
        """
        if self.failure is not None:
            raise self.failure
        if self._log.durable < self._log.end:
            durable: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._waiting.append((self._log.end, durable))
            await durable

    def _settle(self, durable: int) -> None:
        while self._waiting and self._waiting[0][0] <= durable:
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_result(None)

    def _fail(self, failure: StorageFailed) -> None:
        self.failure = failure
        while self._waiting:
            _, waiter = self._waiting.popleft()
            if not waiter.done():
                waiter.set_exception(failure)


def portions(entries: Iterable[Fact]) -> Iterator[tuple[Fact, ...]]:
    """Split facts into groups that each fit into one line."""
    portion: list[Fact] = []
    size = 0
    for fact in entries:
        length = len(msgspec.json.encode(fact))
        if portion and size + length > PORTION:
            yield tuple(portion)
            portion, size = [], 0
        portion.append(fact)
        size += length
    if portion:
        yield tuple(portion)
