"""What the tests tell their stories with: a clock that is set, a log in memory, events made short."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sessions.events.codec import FIRST, encode
from sessions.events.events import Event, MessageReceived, Recorded, SessionOpened
from sessions.events.messages import Message
from sessions.state.view import View

AT = "2026-11-21T12:00:00.000Z"


def view_of(messages: Sequence[Message]) -> View:
    """A view of these messages, placed at 1, 2, …"""
    view = View()
    for placed, message in enumerate(messages, start=1):
        view = view.grown(message, placed)
    return view


def lines_of(events: Sequence[Event | tuple[Event, int]]) -> list[bytes]:
    """The lines of a journal with these events, the first with seq 1; a pair carries its turn."""
    lines, digest = [], FIRST
    for seq, item in enumerate(events, 1):
        event, turn = item if isinstance(item, tuple) else (item, None)
        line, digest = encode(Recorded(seq=seq, at=AT, turn=turn, event=event), digest)
        lines.append(line)
    return lines


def opened(session: str = "20261121-120000-aaaaaa", key: str = "main", **fields: Any) -> SessionOpened:
    return SessionOpened(**{"format": 1, "session": session, "key": key, "person": "owner", **fields})


def received(text: str, id_: str = "m1") -> MessageReceived:
    return MessageReceived(
        id=id_, client="test", sender="owner", channel="websocket", chat="private", text=text, attachments=()
    )
