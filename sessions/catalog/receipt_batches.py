"""Stored receipts: batches of the messages between two positions of a journal, and the messages after the last batch.

A batch is used only if its checksum is valid, it continues the one before, and its end is still a line of the journal. If
anything is missing, the journal is read backwards until enough ids are found.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from sessions.catalog.catalog_file import add_checksum, verify_checksum
from sessions.events.codec import InvalidLine, decode, is_complete_line, seq_of
from sessions.events.errors import JournalDamaged
from sessions.events.events import MessageReceived
from sessions.store.protocols import START, Lines, LogReader, Position
from sessions.store.reading import verify_position
from sessions.store.receipts import SeenMessage, seen_message

MANY = 64
"""Number of batches of a session at which they are merged when read."""

_KIND = b'"kind":"message_received"'
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


def encode_batch(batch: ReceiptBatch) -> bytes:
    """Encode a batch, with a checksum."""
    return add_checksum(batch.session, msgspec.msgpack.encode(batch))


def decode_batch(session: str, sealed: object) -> ReceiptBatch | None:
    """Decode a batch of this session; None if it is invalid."""
    value = verify_checksum(session, sealed)
    try:
        return msgspec.msgpack.decode(value, type=ReceiptBatch) if value is not None else None
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
        if (message := _message(line)) is not None:
            messages.append(message)
            if len(messages) >= wanted:
                break
    return messages[::-1], upto


def _message(line: bytes) -> SeenMessage | None:
    if line.find(_KIND, 0, _HEAD) < 0:
        return None
    try:
        recorded = decode(line)
    except InvalidLine:
        return None  # damage, which is reported when the journal is opened
    return seen_message(recorded.seq, recorded.event) if isinstance(recorded.event, MessageReceived) else None


def _position(line: bytes, end: int) -> Position:
    return Position(seq=seq_of(line), offset=end, sum=line[-19:-3])
