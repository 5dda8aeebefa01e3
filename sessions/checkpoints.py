"""Checkpoints at rest: a transcript and the position it was folded to, so that a restart need not fold a whole journal."""

from __future__ import annotations

import msgspec

from sessions.seals import seal, unseal
from sessions.store import Position
from sessions.transcript import FOLD, Transcript, from_checkpoint, to_checkpoint


class _Stored(msgspec.Struct, frozen=True, kw_only=True):
    fold: int
    position: Position
    transcript: bytes


def encode_checkpoint(session: str, position: Position, transcript: Transcript) -> bytes:
    """The checkpoint of a session as sealed bytes. Costs what the transcript holds: not for the event loop."""
    stored = _Stored(fold=FOLD, position=position, transcript=to_checkpoint(transcript))
    return seal(session, msgspec.msgpack.encode(stored))


def decode_checkpoint(session: str, sealed: object) -> tuple[Position, Transcript] | None:
    """What `encode_checkpoint` was given, or None where these are not its bytes for this session and this fold."""
    value = unseal(session, sealed)
    if value is None:
        return None
    try:
        stored = msgspec.msgpack.decode(value, type=_Stored)
        if stored.fold != FOLD:
            return None
        return stored.position, from_checkpoint(stored.transcript)
    except msgspec.MsgspecError:
        return None  # written by a version whose values look different
