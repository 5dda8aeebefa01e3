"""What the gateway says, as a client reads it: each frame decoded into a value of its own.

Frames of types that this version does not know, and fields that it does not know, are passed over: the gateway may be newer.
"""

from __future__ import annotations

from typing import Any, TypeAlias, get_args

import msgspec


class _Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """The common form; each frame's tag is its `type`."""


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    """A command that the gateway knows: how it is written, and what it does."""

    name: str
    usage: str = ""
    summary: str = ""


class Welcome(_Frame, tag="welcome", frozen=True, kw_only=True):
    """The greeting. `server` names the program and its version; `model` what would answer now, and `commands` what can be
    asked of the gateway, where it is told."""

    protocol: int
    server: str
    limits: dict[str, int] = {}
    model: str | None = None
    verbose: bool = False
    commands: list[CommandLine] = []


class Accepted(_Frame, tag="accepted", frozen=True, kw_only=True):
    """A message is on the gateway's disk, at `seq` of `session_id`; `duplicate` if it was there before."""

    id: str
    session: str
    session_id: str
    seq: int
    duplicate: bool


class EventFrame(_Frame, tag="event", frozen=True, kw_only=True):
    """One event of a session, its JSON unread."""

    session: str
    session_id: str
    event: msgspec.Raw


class Delta(_Frame, tag="delta", frozen=True, kw_only=True):
    """A piece of an answer: `text` begins `offset` code points into reply number `reply` of `turn`."""

    session: str
    session_id: str
    turn: int
    reply: int
    offset: int
    text: str


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A key's current session and its last seq."""

    session: str
    session_id: str
    head: int


class Paused(_Frame, tag="paused", frozen=True, kw_only=True):
    """A request of `turn` was refused for a `reason`, and is sent again in so many `seconds`."""

    session: str
    session_id: str
    turn: int
    seconds: float
    reason: str


class SessionList(_Frame, tag="sessions", frozen=True, kw_only=True):
    """The sessions of this person."""

    id: str
    sessions: list[SessionSummary]


class Settings(_Frame, tag="settings", frozen=True, kw_only=True):
    """How a session is set: its queue mode, and whether clients show what happens beside the conversation."""

    session: str
    session_id: str
    queue: str
    verbose: bool


class Refusal(_Frame, tag="error", frozen=True, kw_only=True):
    """Something was not done. `id` is that of the frame which asked for it; `retry_after` is in seconds. With `session` and
    without `id`, the subscription to that key ended."""

    code: str
    message: str
    id: str | None = None
    retry_after: float | None = None
    head: int | None = None
    session: str | None = None


GatewayFrame: TypeAlias = Welcome | Accepted | EventFrame | Delta | Paused | SessionList | Settings | Refusal


class _Any(msgspec.Struct, frozen=True):
    type: str


_type = msgspec.json.Decoder(_Any).decode
_frames: dict[Any, msgspec.json.Decoder[Any]] = {
    form.__struct_config__.tag: msgspec.json.Decoder(form) for form in get_args(GatewayFrame)
}


def read_frame(text: str | bytes) -> GatewayFrame | None:
    """The frame that a text is, or None for one that this version does not know; msgspec.MsgspecError if it is broken."""
    decoder = _frames.get(_type(text).type)
    frame: GatewayFrame | None = decoder.decode(text) if decoder else None
    return frame
