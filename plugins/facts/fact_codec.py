"""Encoding of fact events as lines of the log, in the format of `sessions.events.codec`."""

from __future__ import annotations

import msgspec

from plugins.api.facts.fact_events import KINDS, FactEvent, LoggedFactEvent, Unknown
from sessions.events.codec import InvalidLine, decode_fields, encode_line


class _Envelope(msgspec.Struct, frozen=True):
    seq: int
    at: str
    kind: str


_envelope = msgspec.json.Decoder(_Envelope).decode
_event = {kind: msgspec.json.Decoder(type_) for kind, type_ in KINDS.items()}


def encode(seq: int, at: str, event: FactEvent, previous: bytes) -> tuple[bytes, bytes]:
    """Encode an event as a line with its newline, and return the line and its checksum."""
    return encode_line(seq, at, None, event, previous)


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
