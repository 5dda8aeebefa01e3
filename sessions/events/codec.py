"""One event ⇄ one line of JSON, chained to the line before.

A line is `{"seq":7,"at":"2026-11-21T03:12:41.123Z","turn":2,"kind":"…", …fields… ,"sum":"0123456789abcdef"}` and a newline.
Its last 27 bytes (`,"sum":"`, sixteen hexadecimal digits, `"}` and the newline) are the closing. `sum` is blake2b with an
8-byte digest over the bytes before the closing, keyed with the 16 ASCII characters of the previous line's sum, or with
`exuvia` for the first line. It is not a secret: it finds damage, loss, reordering and splicing, never forgery.
"""

from __future__ import annotations

import re
from hashlib import blake2b
from typing import TypeVar

import msgspec

from sessions.events.events import KINDS, Event, Recorded, UnknownEvent
from sessions.events.messages import count_of

E = TypeVar("E", bound=msgspec.Struct)

CLOSING = 27
"""Bytes of a line's end that its sum does not cover."""

FIRST = b"exuvia"
"""The key of the first line's sum, in the place of a previous one."""

_encode = msgspec.json.Encoder().encode
_SHAPE = re.compile(rb'\A\{"seq":([1-9][0-9]{0,18}),"at":"[^"]{20,30}","turn":(?:null|[0-9]+),"kind":"')
_CLOSING = re.compile(rb',"sum":"[0-9a-f]{16}"\}\n\Z')


class InvalidLine(ValueError):
    """A line is not what this format says; `str(error)` is the reason."""


class _Envelope(msgspec.Struct, frozen=True):
    seq: int
    at: str
    turn: int | None
    kind: str


_envelope = msgspec.json.Decoder(_Envelope).decode
_event = {kind: msgspec.json.Decoder(type_) for kind, type_ in KINDS.items()}


def encode(recorded: Recorded, previous: bytes) -> tuple[bytes, bytes]:
    """Return the event's line, newline included, and its sum (16 ASCII bytes), given the previous line's sum.

    Text that UTF-8 cannot carry (a lone surrogate) raises UnicodeEncodeError; whoever let it in cleans it.
    """
    if isinstance(recorded.event, UnknownEvent):
        raise TypeError("an event of an unknown kind is copied as bytes, never encoded again")
    return sealed(recorded.seq, recorded.at, recorded.turn, recorded.event, previous)


def sealed(seq: int, at: str, turn: int | None, event: msgspec.Struct, previous: bytes) -> tuple[bytes, bytes]:
    """A line of any log of the house, for an `event` whose struct is tagged with its `kind`; returns as `encode` does."""
    head = b'{"seq":%d,"at":"%s","turn":%s,' % (seq, at.encode(), b"null" if turn is None else b"%d" % turn)
    body = head + _encode(event)[1:-1]
    digest = line_sum(body, previous)
    return b'%s,"sum":"%s"}\n' % (body, digest), digest


def line_sum(body: bytes | memoryview, previous: bytes) -> bytes:
    """The sum of a line whose bytes before the closing are `body`."""
    return blake2b(body, digest_size=8, key=previous).hexdigest().encode()


def is_whole(line: bytes) -> bool:
    """Whether these bytes have the shape of one complete line; says nothing about the chain."""
    return _seq_of_whole(line) is not None


def _seq_of_whole(line: bytes) -> int | None:
    head = _SHAPE.match(line)
    if head is None or 0 in line or not _CLOSING.match(line, len(line) - CLOSING):
        return None
    return int(head[1])


def seq_of(line: bytes) -> int:
    """The seq that stands first on a line, without parsing the rest."""
    match = _SHAPE.match(line)
    if match is None:
        raise InvalidLine("it does not begin like an event")
    return int(match[1])


def verify(line: bytes, previous: bytes, seq: int) -> bytes:
    """Check shape, seq and sum of the line that must come next, and return its sum. InvalidLine says what is wrong."""
    if not line.endswith(b"\n"):
        raise InvalidLine("it has no end")
    there = _seq_of_whole(line)
    if there is None:
        raise InvalidLine("it is not an event line")
    if there != seq:
        raise InvalidLine(f"seq {there} stands where {seq} must")
    stated = line[-19:-3]
    if line_sum(memoryview(line)[:-CLOSING], previous) != stated:
        raise InvalidLine("its sum does not fit its bytes and the line before")
    return stated


def decode(line: bytes) -> Recorded:
    """Parse one line; its sum is not looked at. InvalidLine where a known kind lacks or mistypes a field."""
    try:
        envelope = _envelope(line)
        decoder = _event.get(envelope.kind)
        event: Event | UnknownEvent = (
            parsed(line, decoder) if decoder else UnknownEvent(kind=envelope.kind, line=bytes(line))
        )
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidLine(f"it cannot be read: {error}") from error
    return Recorded(seq=envelope.seq, at=envelope.at, turn=envelope.turn, event=event)


def parsed(line: bytes, decoder: msgspec.json.Decoder[E]) -> E:
    """Parse the fields of an event. Counts of a usage that are no integers, which earlier versions wrote as a provider gave
    them, are read as `count_of` has them. Raises MsgspecError."""
    try:
        return decoder.decode(line)
    except msgspec.ValidationError:
        fields = msgspec.json.decode(line)
        if not isinstance(usage := fields.get("usage"), dict):
            raise
        counts = {name: count_of(value) or 0 for name, value in usage.items()}
        return msgspec.convert(fields | {"usage": counts}, decoder.type)


def carriable(text: str) -> str:
    """Text that a line can carry: lone surrogates, which UTF-8 has no bytes for, become U+FFFD."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def public(line: bytes) -> bytes:
    """The event as clients see it: the line without `sum`, cut from the journal's own bytes."""
    return line[:-CLOSING] + b"}"
