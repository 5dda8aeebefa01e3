"""Checkpoints: transcripts as bytes, so that opening a session need not read its whole log."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress

import msgspec

from sessions.catalog.catalog_file import add_checksum, verify_checksum
from sessions.state.transcript import FOLD, Transcript, from_checkpoint, to_checkpoint
from sessions.store.protocols import Position


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    fold: int
    position: Position
    transcript: bytes


_decode = msgspec.msgpack.Decoder(_Stored).decode  # made by one thread, see `from_checkpoint`


def encode_checkpoint(session: str, position: Position, transcript: Transcript) -> bytes:
    """Return the checkpoint of a session with a checksum. The cost grows with the transcript: do not call it on the event
    loop."""
    stored = _Stored(fold=FOLD, position=position, transcript=to_checkpoint(transcript))
    return add_checksum(session, msgspec.msgpack.encode(stored))


def encode_checkpoints(saved: Mapping[str, tuple[Position, Transcript]]) -> Iterator[tuple[str, bytes]]:
    """Yield the checkpoints that can be encoded. If a log holds a number outside MessagePack's range, the session is folded
    from its log."""
    for session, (position, transcript) in saved.items():
        with suppress(OverflowError):
            yield session, encode_checkpoint(session, position, transcript)


def decode_checkpoint(session: str, sealed: object) -> tuple[Position, Transcript] | None:
    """Decode a checkpoint of this session; None if it is invalid, or of another version of the fold."""
    value = verify_checksum(session, sealed)
    if value is None:
        return None
    try:
        stored = _decode(value)
        if stored.fold != FOLD:
            return None
        return stored.position, from_checkpoint(stored.transcript)
    except msgspec.MsgspecError:
        return None  # written by a version with another format
