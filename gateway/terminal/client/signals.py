"""What a client tells the program that uses it: how the connection is, and what comes over it."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from gateway.protocol.client_frames import Delta, Paused, Refusal, Settings, Welcome
from sessions.events.events import Recorded


class Connected(msgspec.Struct, frozen=True):
    """A connection was made and greeted."""

    welcome: Welcome


class Disconnected(msgspec.Struct, frozen=True):
    """The connection was lost; the next one is being tried."""

    reason: str


class Postponed(msgspec.Struct, frozen=True):
    """The gateway does not take messages at the moment; they are kept and sent again."""

    reason: str


class Happened(msgspec.Struct, frozen=True):
    """An event of the session, each of them once and in the session's order."""

    session_id: str
    recorded: Recorded


Signal: TypeAlias = Connected | Disconnected | Postponed | Happened | Delta | Paused | Settings | Refusal
