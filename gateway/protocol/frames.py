"""The frames of the websocket: client frames, validated, and gateway frames, encoded.

Every frame is one JSON object whose `type` names it. `event` frames are cut from the journal's own bytes and never encoded
again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal, TypeAlias

import msgspec

from plugins.support.secrets import scrubbed
from sessions.events.codec import without_sum
from sessions.events.events import ApprovalScope, Decision

PROTOCOL = 1
FRAME_LIMIT = 1024 * 1024
"""Bytes of the largest frame that is accepted."""
GREETING_LIMIT = 64 * 1024
"""Bytes of the largest frame before authentication."""
ATTACHMENTS = 20
"""Maximum number of files of one message."""
TITLE_CHARACTERS = 100
SETTING_CHARACTERS = 300

SettingName: TypeAlias = Literal["model", "effort", "temperature", "queue", "verbose"]
"""The settings of a session that a client may change."""

AGENT_SETTING: Literal["agent"] = "agent"
"""What a client may choose besides, for a session that does not exist yet."""

_KEY, _SESSION_ID, _SHA256 = r"\A[A-Za-z0-9._:-]{1,64}\Z", r"\A[A-Za-z0-9-]{1,64}\Z", r"\A[0-9a-f]{64}\Z"

KEY_RULE = "letters from A to Z, digits, dots, hyphens, underscores and colons, 64 at most"
"""The characters of a conversation's name, in words."""

_RULES = {
    _KEY: f"the name of a conversation is {KEY_RULE}",
    _SESSION_ID: "a session id is one from `sessions` or `accepted`",
    _SHA256: "a SHA-256 is 64 of 0-9 and a-f",
}
"""The patterns in words, for error messages."""

Key: TypeAlias = Annotated[str, msgspec.Meta(pattern=_KEY)]
SessionId: TypeAlias = Annotated[str, msgspec.Meta(pattern=_SESSION_ID)]
FrameId: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=128)]
Seq: TypeAlias = Annotated[int, msgspec.Meta(ge=0, le=2**53)]


class _Frame(msgspec.Struct, frozen=True, kw_only=True, tag_field="type"):
    """The common base; each frame's tag is its `type`."""


class Hello(_Frame, frozen=True, kw_only=True, tag="hello"):
    protocol: int
    token: str | None = None
    client: Annotated[str, msgspec.Meta(max_length=128)] | None = None


class SentAttachment(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a message: the `sha256` of one that was uploaded before, or `data` in base64 with its declared `media`
    type."""

    sha256: Annotated[str, msgspec.Meta(pattern=_SHA256)] | None = None
    data: bytes | None = None
    media: Annotated[str, msgspec.Meta(max_length=200)] = ""
    name: Annotated[str, msgspec.Meta(max_length=1000)] = ""


class Send(_Frame, frozen=True, kw_only=True, tag="send"):
    id: FrameId
    session: Key
    text: str
    attachments: Annotated[list[SentAttachment], msgspec.Meta(max_length=ATTACHMENTS)] = []


class Subscribe(_Frame, frozen=True, kw_only=True, tag="subscribe"):
    session: Key
    id: FrameId | None = None
    after: Seq | None = None
    session_id: SessionId | None = None


class Unsubscribe(_Frame, frozen=True, kw_only=True, tag="unsubscribe"):
    session: Key
    id: FrameId | None = None


class Cancel(_Frame, frozen=True, kw_only=True, tag="cancel"):
    session: Key
    id: FrameId | None = None


class History(_Frame, frozen=True, kw_only=True, tag="history"):
    id: FrameId
    session: Key
    session_id: SessionId | None = None
    before: Seq | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=500)] = 50


class Sessions(_Frame, frozen=True, kw_only=True, tag="sessions"):
    id: FrameId
    follow: bool = False


class Fork(_Frame, frozen=True, kw_only=True, tag="fork"):
    id: FrameId
    session: Key
    session_id: SessionId | None = None
    upto: Seq | None = None
    key: Key | None = None


class Rename(_Frame, frozen=True, kw_only=True, tag="rename"):
    id: FrameId
    session: Key
    title: Annotated[str, msgspec.Meta(max_length=TITLE_CHARACTERS)]


class Pin(_Frame, frozen=True, kw_only=True, tag="pin"):
    id: FrameId
    session: Key
    pinned: bool


class Archive(_Frame, frozen=True, kw_only=True, tag="archive"):
    id: FrameId
    session: Key
    archived: bool


class Delete(_Frame, frozen=True, kw_only=True, tag="delete"):
    id: FrameId
    session: Key
    facts: bool = False


class Configure(_Frame, frozen=True, kw_only=True, tag="configure"):
    id: FrameId
    session: Key
    name: SettingName | Literal["agent"]
    value: Annotated[str, msgspec.Meta(max_length=SETTING_CHARACTERS)] | float | None = None


class Approve(_Frame, frozen=True, kw_only=True, tag="approve"):
    id: FrameId
    session: Key
    approval: Annotated[str, msgspec.Meta(min_length=1, max_length=64)]
    decision: Decision
    scope: ApprovalScope = "once"


class Ping(_Frame, frozen=True, kw_only=True, tag="ping"):
    id: FrameId | None = None


ClientFrame: TypeAlias = (
    Hello
    | Send
    | Subscribe
    | Unsubscribe
    | Cancel
    | History
    | Sessions
    | Fork
    | Rename
    | Pin
    | Archive
    | Delete
    | Configure
    | Approve
    | Ping
)

_decode: Callable[[str], ClientFrame] = msgspec.json.Decoder(ClientFrame).decode
_encode = msgspec.json.Encoder().encode
_ID = re.compile(r'"id"\s*:\s*"([^"\\]{1,128})"')


_KIND = b'"kind":"'
_NEAR = 4096
"""Characters at either end of a frame that are searched for its id."""


class InvalidFrame(ValueError):
    """An invalid frame; `str(error)` is the message for the client, `id` the frame's own if it can be found."""

    def __init__(self, sentence: str, frame_id: str | None = None) -> None:
        super().__init__(sentence)
        self.id = frame_id


def parse(text: str) -> ClientFrame:
    """Return a client's frame from its JSON text. Raises InvalidFrame."""
    try:
        return _decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else _in_words(str(error))
        raise InvalidFrame(f"The frame is not valid: {reason[:300]}", id_in(text)) from error


def id_in(text: str) -> str | None:
    """Return the id of a frame that is not decoded, if it stands near its beginning or its end.

    Inside a JSON string each quotation mark has a backslash before it, so no content can be taken for it.
    """
    match = _ID.search(text[:_NEAR]) or _ID.search(text[-_NEAR:])
    return match[1] if match else None


def _in_words(reason: str) -> str:
    """Return the decoder's message with the rule in words in place of the pattern."""
    for pattern, rule in _RULES.items():
        before, found, behind = reason.partition(f"Expected `str` matching regex {pattern!r}")
        if found:
            return f"{before}{rule}{behind}"
    return reason


def frame(kind: str, **fields: Any) -> bytes:
    """Return an encoded gateway frame; fields that are None are left out."""
    return _encode({"type": kind, **{name: value for name, value in fields.items() if value is not None}})


def error(code: str, message: str, frame_id: str | None = None, **fields: Any) -> bytes:
    """Return an encoded `error` frame."""
    return frame("error", id=frame_id, code=code, message=scrubbed(message), **fields)


def event(prefix: bytes, line: bytes) -> bytes:
    """Return an `event` frame for a journal's line; `prefix` comes from `event_prefix`."""
    return prefix + without_sum(line) + b"}"


def event_prefix(session: str, session_id: str) -> bytes:
    """Return the bytes before the event in each `event` frame of a session."""
    return frame("event", session=session, session_id=session_id)[:-1] + b',"event":'


def is_of_kind(event_frame: bytes, kinds: tuple[bytes, ...]) -> bool:
    """Return True if an `event` frame holds an event of one of these kinds, each with the quotation mark after it. The kind
    stands near the frame's beginning."""
    return event_frame.startswith(kinds, event_frame.find(_KIND, 0, 512) + len(_KIND))


def listed(conversations: Sequence[object]) -> bytes:
    """Return some of the conversations of a `sessions` frame, encoded."""
    return _encode(conversations)[1:-1]


def sessions(frame_id: str, pieces: Sequence[bytes]) -> bytes:
    """Return a `sessions` frame; `pieces` come from `listed`."""
    return frame("sessions", id=frame_id)[:-1] + b',"sessions":[' + b",".join(pieces) + b"]}"


def history(frame_id: str, session: str, session_id: str, lines: list[bytes], more: bool) -> bytes:
    """Return a `history` frame, its events cut from the journal's own bytes."""
    head = frame("history", id=frame_id, session=session, session_id=session_id, more=more)[:-1]
    return head + b',"events":[' + b",".join(without_sum(line) for line in lines) + b"]}"
