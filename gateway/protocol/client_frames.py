"""The gateway's frames as a client decodes them, each into its own type.

Unknown frame types and unknown fields are ignored: the gateway may be newer.
"""

from __future__ import annotations

from typing import Any, TypeAlias, get_args

import msgspec

from sessions.events.events import CallRef


class _Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """The common base; each frame's tag is its `type`."""


class CommandLine(msgspec.Struct, frozen=True, kw_only=True):
    """A command of the gateway: its name, usage and summary."""

    name: str
    usage: str = ""
    summary: str = ""


class Welcome(_Frame, tag="welcome", frozen=True, kw_only=True):
    """The greeting. `server` is the program with its version, `model` the model that would answer now, and `commands`
    the gateway's commands; the last two may be missing."""

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
    """One event of a session, its JSON not decoded."""

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


class Reasoning(_Frame, tag="reasoning", frozen=True, kw_only=True):
    """A piece of the reasoning before an answer: `text` begins `offset` code points into that of reply number `reply` of
    `turn`."""

    session: str
    session_id: str
    turn: int
    reply: int
    offset: int
    text: str


class Output(_Frame, tag="output", frozen=True, kw_only=True):
    """A piece of a running tool's output: `text` begins `offset` code points into what `call` of `turn` has shown."""

    session: str
    session_id: str
    turn: int
    call: CallRef
    offset: int
    text: str


class SessionSummary(msgspec.Struct, frozen=True, kw_only=True):
    """A key's current session, its last seq, the time of its last event (RFC 3339) and its title, or the beginning of its
    first message; `question` is the seq of the oldest open question about a tool call, `parent` the key of the conversation
    that started this one as a subagent."""

    session: str
    session_id: str
    head: int
    at: str = ""
    title: str = ""
    beginning: str = ""
    question: int | None = None
    parent: str = ""

    @property
    def key(self) -> str:
        """The key."""
        return self.session


class Paused(_Frame, tag="paused", frozen=True, kw_only=True):
    """A request of `turn` was refused for a `reason`, and is sent again in `seconds`."""

    session: str
    session_id: str
    turn: int
    seconds: float
    reason: str


class SessionList(_Frame, tag="sessions", frozen=True, kw_only=True):
    """The sessions of this person."""

    id: str
    sessions: list[SessionSummary]


class HistoryPage(_Frame, tag="history", frozen=True, kw_only=True):
    """Earlier events of a session, oldest first, their JSON not decoded."""

    id: str
    session_id: str
    events: list[msgspec.Raw]


class Settings(_Frame, tag="settings", frozen=True, kw_only=True):
    """The settings of a session: its queue mode, and whether clients show more than the conversation. `id` is that of the
    request, if any."""

    session: str
    session_id: str
    queue: str
    verbose: bool
    id: str | None = None


class Forked(_Frame, tag="forked", frozen=True, kw_only=True):
    """A new session, which continues from event `parent_seq` of the session `parent`."""

    id: str
    session: str
    session_id: str
    parent: str
    parent_seq: int


class RemovedCount(msgspec.Struct, frozen=True, kw_only=True):
    """The number of sessions that were removed."""

    sessions: int


class Deleted(_Frame, tag="deleted", frozen=True, kw_only=True):
    """A conversation was deleted. `remains` says what stays elsewhere; `id` is that of the request of this connection."""

    session: str
    removed: RemovedCount
    remains: list[str] = []
    id: str | None = None


class Refusal(_Frame, tag="error", frozen=True, kw_only=True):
    """An error. `id` is that of the request's frame; `retry_after` is in seconds. With `session` and without `id`, the
    subscription to that key ended."""

    code: str
    message: str
    id: str | None = None
    retry_after: float | None = None
    head: int | None = None
    session: str | None = None


class SessionUpdate(_Frame, tag="session_update", frozen=True, kw_only=True):
    """Something happened in a session of this person's; what it was is left out here."""

    session: str
    session_id: str


GatewayFrame: TypeAlias = (
    Welcome
    | Accepted
    | EventFrame
    | Delta
    | Reasoning
    | Output
    | Paused
    | SessionList
    | SessionUpdate
    | HistoryPage
    | Settings
    | Forked
    | Deleted
    | Refusal
)


class _Any(msgspec.Struct, frozen=True):
    type: str


_type = msgspec.json.Decoder(_Any).decode
_frames: dict[Any, msgspec.json.Decoder[Any]] = {
    form.__struct_config__.tag: msgspec.json.Decoder(form) for form in get_args(GatewayFrame)
}


def read_frame(text: str | bytes) -> GatewayFrame | None:
    """Return the decoded frame, or None for a type that this version does not know. Raises msgspec.MsgspecError if it is
    invalid."""
    decoder = _frames.get(_type(text).type)
    frame: GatewayFrame | None = decoder.decode(text) if decoder else None
    return frame
