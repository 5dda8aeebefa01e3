"""Notifications from the client to its user: the connection's state, and what arrives over it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from gateway.protocol.client_frames import Deleted, Delta, Output, Paused, Reasoning, Refusal, Settings, Welcome
from sessions.events.events import Recorded


class Connected(msgspec.Struct, frozen=True):
    """A connection was opened and greeted."""

    welcome: Welcome


class Disconnected(msgspec.Struct, frozen=True):
    """The connection was lost; the client reconnects."""

    reason: str


class Postponed(msgspec.Struct, frozen=True):
    """The gateway accepts no messages at the moment; they are kept and sent again."""

    reason: str


class Happened(msgspec.Struct, frozen=True):
    """An event of the session, once and in order."""

    session_id: str
    recorded: Recorded


class Earlier(msgspec.Struct, frozen=True):
    """The last events before those that are reported, in order."""

    events: tuple[Recorded, ...]


Signal: TypeAlias = (
    Connected
    | Disconnected
    | Postponed
    | Earlier
    | Happened
    | Delta
    | Reasoning
    | Output
    | Paused
    | Settings
    | Deleted
    | Refusal
)
