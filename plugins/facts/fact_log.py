"""The facts' log: its writer, and the decoding of its lines, in the format of `sessions.events.codec`."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Iterator
from datetime import datetime
from typing import Protocol

import msgspec

from plugins.api.fact_values import Fact
from plugins.facts.fact_book import FactBook
from plugins.facts.fact_events import KINDS, FactEvent, LoggedFactEvent, Unknown
from sessions.events.codec import InvalidLine, decode_fields
from sessions.store.log_writer import LogWriter
from sessions.store.protocols import LONGEST_LINE, Log, Position

DOCUMENT = "facts.jsonl"
"""The document name of recalled facts; their line is that of the event that wrote them."""

PORTION = LONGEST_LINE // 2
"""Maximum bytes of facts in one event."""


class Opener(Protocol):
    """Opens or creates the facts' log, passing its lines to `fold`. Raises SessionsError."""

    def __call__(self, fold: Callable[[bytes], None]) -> Awaitable[tuple[Log, Position]]: ...


class _Envelope(msgspec.Struct, frozen=True):
    seq: int
    at: str
    kind: str


_envelope = msgspec.json.Decoder(_Envelope).decode
_event = {kind: msgspec.json.Decoder(type_) for kind, type_ in KINDS.items()}


def decode(line: bytes) -> LoggedFactEvent:
    """Decode one line without checking its checksum.

    Raises:
        InvalidLine: A field of a known kind is missing or has the wrong type.
    """
    try:
        envelope = _envelope(line)
        decoder = _event.get(envelope.kind)
        event: FactEvent | Unknown = decode_fields(line, decoder) if decoder else Unknown(kind=envelope.kind)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidLine(f"it cannot be read: {error}") from error
    return LoggedFactEvent(seq=envelope.seq, at=envelope.at, event=event)


class FactLog(LogWriter[FactEvent, FactBook]):
    """The writer of the facts' log; `state` is the book, which is changed in place."""

    def __init__(self, log: Log, position: Position, book: FactBook, now: Callable[[], datetime]) -> None:
        super().__init__(log, position, book, now, _apply)

    async def follow(self) -> None:
        """Apply what other processes have appended, if the log is shared. Raises StorageFailed."""
        await self.catch_up(_apply_line)

    async def events(self, seqs: Iterable[int]) -> list[LoggedFactEvent]:
        """Return the events with these sequence numbers, once they are durable. Raises StorageFailed, JournalDamaged and
        InvalidLine."""
        await self.until_durable(self.head)
        found = []
        for seq in seqs:
            lines = await self.log.lines(seq, limit=1)
            found += [happened for line in lines[:1] if (happened := decode(line)).seq == seq]
        return found


def _apply(book: FactBook, event: FactEvent, *, seq: int, at: str, turn: int | None, size: int) -> FactBook:
    book.apply(LoggedFactEvent(seq=seq, at=at, event=event))
    return book


def _apply_line(book: FactBook, line: bytes) -> FactBook:
    book.apply(decode(line))
    return book


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


def fact_digest(fact: Fact, line: int) -> str:
    """Return the digest of a fact in a recall: its id, and the line of its text if that was edited."""
    return f"{fact.id}@{line}" if fact.edited else fact.id


def recalled_fact(digest: str) -> str:
    """Return the id of the fact with this digest."""
    return digest.partition("@")[0]
