"""Stored receipts: batches of the messages between two positions of a journal, and the messages after the last batch.

A batch is used only if its checksum is valid, it continues the one before, and its end is still a line of the journal. If
anything is missing, the journal is read backwards until enough ids are found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence

import msgspec

from sessions.catalog.catalog_file import add_checksum, verify_checksum
from sessions.events.codec import is_complete_line, seq_of
from sessions.events.errors import JournalDamaged, StorageFailed, UnknownSession
from sessions.files.fsync import UNSURE
from sessions.store.catalog import SessionRow
from sessions.store.protocols import START, Lines, LogReader, Position
from sessions.store.reading import verify_position
from sessions.store.receipts import REMEMBERED, Receipts, SeenMessage, message_in

MANY = 64
"""Number of batches of a session at which they are merged when read."""

_FORKED = b'"kind":"session_forked"'
"""Messages before this event belong to another session; a fork starts without ids."""
_HEAD = 128
"""Bytes at the start of a line that contain its kind."""


class ReceiptBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a session with a seq above `after` and up to `upto`, oldest first; at least the newest REMEMBERED of
    them. A batch with `after` 0 replaces all others of its session."""

    session: str
    after: int
    upto: Position
    messages: tuple[SeenMessage, ...]


class CollectedReceipts(msgspec.Struct, frozen=True, kw_only=True):
    """A session's newest messages, oldest first, the position up to which they are known, and the batch to store, if any."""

    messages: list[SeenMessage]
    upto: Position
    new: ReceiptBatch | None


class ReceiptCoverage:
    """Reads the receipts of keys, and divides new ones into batches to store.

    Args:
        logs: The logs of the sessions.
        stored: Returns the encoded batches of a session, newest first.
        keep: Called with each batch that is to be stored.
        unreadable: Receives the reason for each session whose log cannot be read.
    """

    def __init__(
        self,
        logs: LogReader,
        stored: Callable[[str], Awaitable[Sequence[object]]],
        keep: Callable[[ReceiptBatch], None],
        unreadable: dict[str, str],
    ) -> None:
        self._logs = logs
        self._stored = stored
        self._keep = keep
        self._unreadable = unreadable
        self._covered: dict[str, Position] = {}

    def begin(self, session: str) -> None:
        """Follow a new session: its ids come with its first checkpoints."""
        self._covered[session] = START

    def drop(self, session: str) -> None:
        """Forget a session."""
        self._covered.pop(session, None)

    def extend(self, session: str, position: Position, receipts: Receipts) -> None:
        """Have the ids of a session stored up to a position, if its ids before it are known to be."""
        covered = self._covered.get(session)
        if covered is not None and covered.seq < position.seq:
            messages = tuple(receipts.between(session, covered.seq, position.seq))
            self._cover(ReceiptBatch(session=session, after=covered.seq, upto=position, messages=messages))

    async def of(self, rows: Iterable[SessionRow]) -> Receipts:
        """Return the newest ids of the sessions of a key, newest session first. Raises StorageFailed."""
        found: list[tuple[str, CollectedReceipts]] = []
        wanted = REMEMBERED
        for row in rows:
            if wanted <= 0:
                break
            if (collected := await self._collect(row.session, wanted)) is not None:
                found.append((row.session, collected))
                wanted -= len(collected.messages)
        receipts = Receipts()
        for session, collected in reversed(found):
            receipts.extend(session, collected.messages, upto=collected.upto.seq)
        return receipts

    async def _collect(self, session: str, wanted: int) -> CollectedReceipts | None:
        stored = await self._stored(session)
        try:
            collected = await asyncio.to_thread(collect_receipts, self._logs, session, stored, wanted)
        except (UnknownSession, StorageFailed) as error:
            cause = error.__cause__
            if isinstance(error, StorageFailed) and not (isinstance(cause, OSError) and cause.errno not in UNSURE):
                raise  # the ids exist and must not be treated as unknown
            self._unreadable[session] = str(error)
            return None
        self._covered[session] = collected.upto
        if collected.new is not None:
            self._cover(collected.new)
        return collected

    def _cover(self, batch: ReceiptBatch) -> None:
        self._covered[batch.session] = batch.upto
        self._keep(batch)


_decode = msgspec.msgpack.Decoder(ReceiptBatch).decode  # made by one thread: two that examine a type at once crash


def encode_batch(batch: ReceiptBatch) -> bytes:
    """Encode a batch, with a checksum."""
    return add_checksum(batch.session, msgspec.msgpack.encode(batch))


def decode_batch(session: str, sealed: object) -> ReceiptBatch | None:
    """Decode a batch of this session; None if it is invalid."""
    value = verify_checksum(session, sealed)
    try:
        return _decode(value) if value is not None else None
    except msgspec.MsgspecError:
        return None  # written by a version with another format


def collect_receipts(logs: LogReader, session: str, stored: Sequence[object], wanted: int) -> CollectedReceipts:
    """Return the newest `wanted` messages of a log, or all if it has fewer. Blocks; raises UnknownSession, StorageFailed.

    Args:
        logs: The logs of the sessions.
        session: The session's id.
        stored: Its encoded batches, newest first; the lines after them are read.
        wanted: The number of messages.
    """
    with logs.read(session) as lines:
        batches = _verified(lines, _linked(session, stored, wanted))
        after = batches[0].upto if batches else START
        fresh, upto = _read(lines, after, wanted)
    messages = [message for batch in reversed(batches) for message in batch.messages] + fresh
    new = None
    if len(batches) >= MANY:
        new = ReceiptBatch(session=session, after=0, upto=upto, messages=tuple(messages))
    elif upto != after:
        new = ReceiptBatch(session=session, after=after.seq, upto=upto, messages=tuple(fresh))
    return CollectedReceipts(messages=messages, upto=upto, new=new)


def _linked(session: str, stored: Sequence[object], wanted: int) -> list[ReceiptBatch]:
    """Return the batches, newest first, back to the journal's beginning or until they are enough; empty
    if one is missing."""
    batches: list[ReceiptBatch] = []
    count = 0
    for sealed in stored:
        batch = decode_batch(session, sealed)
        if batch is None or (batches and batch.upto.seq < batches[-1].after):
            return []
        batches.append(batch)
        count += len(batch.messages)
        if batch.after == 0 or count >= wanted:
            return batches
    return []


def _verified(lines: Lines, batches: list[ReceiptBatch]) -> list[ReceiptBatch]:
    try:
        if batches:
            verify_position(lines, batches[0].upto)
    except JournalDamaged:
        return []
    return batches


def _read(lines: Lines, after: Position, wanted: int) -> tuple[list[SeenMessage], Position]:
    """Return the newest messages between `after` and the end of the log, oldest first, and the position of the last whole
    line."""
    upto = after
    messages: list[SeenMessage] = []
    for line, end in lines.backward():
        if end <= after.offset:
            break
        if upto is after:
            if not is_complete_line(line):
                continue
            upto = _position(line, end)
        if line.find(_FORKED, 0, _HEAD) >= 0:
            break
        if (message := message_in(line)) is not None:
            messages.append(message)
            if len(messages) >= wanted:
                break
    return messages[::-1], upto


def _position(line: bytes, end: int) -> Position:
    return Position(seq=seq_of(line), offset=end, sum=line[-19:-3])
