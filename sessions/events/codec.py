"""Encoding of events as lines of JSON, each chained to the line before.

A line is `{"seq":7,"at":"2026-11-21T03:12:41.123Z","turn":2,"kind":"…", …fields… ,"sum":"0123456789abcdef"}` and a newline.
Its last 27 bytes (`,"sum":"`, sixteen hexadecimal digits, `"}` and the newline) are the trailer. `sum` is BLAKE2b with an
8-byte digest over the bytes before the trailer, keyed with the 16 ASCII characters of the previous line's sum, or with
`exuvia` for the first line. The key is not secret: the sum detects damage, loss, reordering and splicing, but not forgery.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TypeVar

import msgspec

from sessions.events.events import KINDS, Event, Recorded, UnknownEvent
from sessions.events.messages import clamp_count

E = TypeVar("E", bound=msgspec.Struct)

TRAILER = 27
"""Size in bytes of a line's trailer, which the sum does not cover."""

FIRST = b"exuvia"
"""The key of the first line's sum, in place of a previous sum."""

_encode = msgspec.json.Encoder().encode
_SHAPE = re.compile(rb'\A\{"seq":([1-9][0-9]{0,18}),"at":"[^"]{20,30}","turn":(?:null|[0-9]+),"kind":"')
_CLOSING = re.compile(rb',"sum":"[0-9a-f]{16}"\}\n\Z')


class InvalidLine(ValueError):
    """A line that violates the format; `str(error)` is the reason."""


class _Envelope(msgspec.Struct, frozen=True):
    seq: int
    at: str
    turn: int | None
    kind: str


_envelope = msgspec.json.Decoder(_Envelope).decode
_event = {kind: msgspec.json.Decoder(type_) for kind, type_ in KINDS.items()}


def encode(recorded: Recorded, previous: bytes) -> tuple[bytes, bytes]:
    """Return an event's line, newline included, and its sum.

    Args:
        recorded: The event with its envelope.
        previous: The sum of the previous line, or `FIRST`.

    Returns:
        The line, and its sum as 16 ASCII bytes.

    Raises:
        UnicodeEncodeError: A text contains a lone surrogate, which UTF-8 cannot encode; see `replace_surrogates`.
        TypeError: The event is of an unknown kind, which is copied as bytes and never encoded.
    """
    if isinstance(recorded.event, UnknownEvent):
        raise TypeError("an event of an unknown kind cannot be encoded; copy its line")
    return encode_line(recorded.seq, recorded.at, recorded.turn, recorded.event, previous)


def encode_line(seq: int, at: str, turn: int | None, event: msgspec.Struct, previous: bytes) -> tuple[bytes, bytes]:
    """Return the line and the sum of an `event` whose struct is tagged with its `kind`, for any chained log."""
    head = b'{"seq":%d,"at":"%s","turn":%s,' % (seq, at.encode(), b"null" if turn is None else b"%d" % turn)
    body = head + _encode(event)[1:-1]
    digest = line_sum(body, previous)
    return b'%s,"sum":"%s"}\n' % (body, digest), digest


def line_sum(body: bytes | memoryview, previous: bytes) -> bytes:
    """Return the sum of a line whose bytes before the trailer are `body`."""
    return blake2b(body, digest_size=8, key=previous).hexdigest().encode()


def is_complete_line(line: bytes) -> bool:
    """Return True if the bytes have the shape of one complete line. The chain is not checked."""
    return _seq_of_whole(line) is not None


def _seq_of_whole(line: bytes) -> int | None:
    head = _SHAPE.match(line)
    if head is None or 0 in line or not _CLOSING.match(line, len(line) - TRAILER):
        return None
    return int(head[1])


def seq_of(line: bytes) -> int:
    """Return the seq at the start of a line, without parsing the rest. Raises InvalidLine."""
    match = _SHAPE.match(line)
    if match is None:
        raise InvalidLine("it does not begin like an event")
    return int(match[1])


def verify(line: bytes, previous: bytes, seq: int) -> bytes:
    """Check the shape, the seq and the sum of the next line of a log, and return its sum. Raises InvalidLine."""
    if not line.endswith(b"\n"):
        raise InvalidLine("it has no newline")
    there = _seq_of_whole(line)
    if there is None:
        raise InvalidLine("it is not an event line")
    if there != seq:
        raise InvalidLine(f"its seq is {there}, expected {seq}")
    stated = line[-19:-3]
    if line_sum(memoryview(line)[:-TRAILER], previous) != stated:
        raise InvalidLine("its sum does not match its bytes and the previous line")
    return stated


def decode(line: bytes) -> Recorded:
    """Parse one line without checking its sum. Raises InvalidLine if a field of a known kind is missing or has the wrong
    type."""
    try:
        envelope = _envelope(line)
        decoder = _event.get(envelope.kind)
        event: Event | UnknownEvent = (
            decode_fields(line, decoder) if decoder else UnknownEvent(kind=envelope.kind, line=bytes(line))
        )
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidLine(f"it cannot be decoded: {error}") from error
    return Recorded(seq=envelope.seq, at=envelope.at, turn=envelope.turn, event=event)


def decode_fields(line: bytes, decoder: msgspec.json.Decoder[E]) -> E:
    """Decode the fields of an event. Raises MsgspecError.

    Earlier versions wrote a provider's usage unchecked; counts that are not integers are converted by `clamp_count`.
    """
    try:
        return decoder.decode(line)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(line)
        if not isinstance(usage := fields.get("usage"), dict):
            raise
        counts = {name: clamp_count(value) or 0 for name, value in usage.items()}
        return msgspec.convert(fields | {"usage": counts}, decoder.type)


def replace_surrogates(text: str) -> str:
    """Return the text with each lone surrogate, which UTF-8 cannot encode, replaced by U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def without_sum(line: bytes) -> bytes:
    """Return the event as clients receive it: the bytes of the line without `sum`."""
    return line[:-TRAILER] + b"}"
