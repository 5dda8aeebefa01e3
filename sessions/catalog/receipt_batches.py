"""Receipts at rest: batches, each of the messages between two positions of a journal, and what a journal has beyond them.

A batch is believed only if it is sealed, linked to the one before, and its end is still a line of the journal. Where
anything is missing the journal is asked instead: read backwards, which ends as soon as enough ids are known.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from sessions.catalog.checksums import seal, unseal
from sessions.catalog.receipts import SeenMessage, seen
from sessions.events.codec import InvalidLine, decode, is_whole, seq_of
from sessions.events.errors import JournalDamaged
from sessions.events.events import MessageReceived
from sessions.files.reverse_reader import lines_backwards
from sessions.files.verify import open_to_read, verify_position
from sessions.store.protocols import START, Position

MANY = 64
"""So many batches of a session are rewritten as one when they are read."""

_KIND = b'"kind":"message_received"'
_FORKED = b'"kind":"session_forked"'
"""What stands before this was said in another session, and a fork starts with no ids."""
_HEAD = 128
"""Bytes of a line within which its kind stands."""


class ReceiptBatch(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a session with a seq above `after` and up to `upto`, oldest first; the newest REMEMBERED of them at
    least. One with `after` 0 replaces all others of its session."""

    session: str
    after: int
    upto: Position
    messages: tuple[SeenMessage, ...]


class CollectedReceipts(msgspec.Struct, frozen=True, kw_only=True):
    """A session's newest messages, oldest first, the position up to which they are known, and what is worth storing."""

    messages: list[SeenMessage]
    upto: Position
    new: ReceiptBatch | None


def encode_batch(batch: ReceiptBatch) -> bytes:
    """The batch as sealed bytes."""
    return seal(batch.session, msgspec.msgpack.encode(batch))


def decode_batch(session: str, sealed: object) -> ReceiptBatch | None:
    """What `encode_batch` was given, or None where these are not its bytes for this session."""
    value = unseal(session, sealed)
    try:
        return msgspec.msgpack.decode(value, type=ReceiptBatch) if value is not None else None
    except msgspec.MsgspecError:
        return None  # written by a version whose values look different


def collect(path: Path, stored: Sequence[object], wanted: int) -> CollectedReceipts:
    """The newest `wanted` messages of a journal, or all where it has fewer, from its stored batches (sealed, newest first)
    and the lines behind them. Blocks. Raises UnknownSession or OSError."""
    descriptor = open_to_read(path)
    try:
        size = os.fstat(descriptor).st_size
        batches = _believed(descriptor, path, size, _linked(path.stem, stored, wanted))
        after = batches[0].upto if batches else START
        fresh, upto = _read(descriptor, after, size, wanted)
    finally:
        os.close(descriptor)
    messages = [message for batch in reversed(batches) for message in batch.messages] + fresh
    new = None
    if len(batches) >= MANY:
        new = ReceiptBatch(session=path.stem, after=0, upto=upto, messages=tuple(messages))
    elif upto != after:
        new = ReceiptBatch(session=path.stem, after=after.seq, upto=upto, messages=tuple(fresh))
    return CollectedReceipts(messages=messages, upto=upto, new=new)


def _linked(session: str, stored: Sequence[object], wanted: int) -> list[ReceiptBatch]:
    """The batches, newest first, back to the journal's beginning or until they are enough; none where one is missing."""
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


def _believed(descriptor: int, path: Path, size: int, batches: list[ReceiptBatch]) -> list[ReceiptBatch]:
    try:
        if batches:
            verify_position(descriptor, path, batches[0].upto, size)
    except JournalDamaged:
        return []
    return batches


def _read(descriptor: int, after: Position, size: int, wanted: int) -> tuple[list[SeenMessage], Position]:
    """The newest messages between `after` and the end of the file, oldest first, and the position of the last whole line."""
    upto = after
    messages: list[SeenMessage] = []
    for line, end in lines_backwards(descriptor, after.offset, size):
        if upto is after:
            if not is_whole(line):
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
        return None  # damage, which opening the journal will tell in full
    return seen(recorded.seq, recorded.event) if isinstance(recorded.event, MessageReceived) else None


def _position(line: bytes, end: int) -> Position:
    return Position(seq=seq_of(line), offset=end, sum=line[-19:-3])
