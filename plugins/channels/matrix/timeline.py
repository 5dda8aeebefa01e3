"""The events of a sync response, in order and without gaps."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import structlog

from plugins.channels.matrix.matrix_api import MatrixClient

MOST_PAGES = 50
"""Pages of a gap that are asked for. What is older is not read, and the log says so."""

KINDS = (
    "m.room.message",
    "m.room.encrypted",
    "m.room.redaction",
    "m.reaction",
    "m.room.member",
    "m.room.encryption",
)

_EVENTS = {"types": list(KINDS), "lazy_load_members": True}

EVENTS_FILTER = json.dumps(_EVENTS)

SYNC_FILTER = json.dumps(
    {
        "presence": {"types": []},
        "account_data": {"types": []},
        "room": {
            "account_data": {"types": []},
            "ephemeral": {"types": []},
            "state": {"types": ["m.room.member", "m.room.encryption"], "lazy_load_members": True},
            "timeline": _EVENTS | {"limit": 50},
        },
    }
)

FIRST_SYNC_FILTER = json.dumps(
    json.loads(SYNC_FILTER) | {"room": {"timeline": {"limit": 1, "types": []}, "state": {"types": []}}}
)
"""The first sync only finds the place from which the channel listens; and the invitations."""

log = structlog.get_logger("exuvia.channels")


class Timeline:
    """The new events of one room: those of a sync response and, where it left some out, the ones before."""

    def __init__(self, room: str, content: Any, since: str) -> None:
        timeline = content.get("timeline") if isinstance(content, dict) else None
        timeline = timeline if isinstance(timeline, dict) else {}
        self.room = room
        self.events = valid(timeline.get("events"))
        self._is_limited = timeline.get("limited") is True
        self._start = start if isinstance(start := timeline.get("prev_batch"), str) else ""
        self._since = since

    async def complete(self, client: MatrixClient, user: str) -> list[dict[str, Any]]:
        """Return all events, the oldest first. If the user has just joined, those since the invitation.

        Raises:
            MatrixError, ProviderError: The server does not return the events of a gap.
        """
        events = await self._fill(client, self.events, self._since, user) if self._is_limited else self.events
        joined = _joined(events, user)
        if joined is None:
            return events
        if _membership_before(events[joined]) == "invite" and _invited(events, user) is None:
            # The invitation may be older than `since`, and so may be what was said after it.
            events = await self._fill(client, self.events, "", user)
            joined = _joined(events, user)
        invited = _invited(events[:joined], user)
        first = joined if invited is None else invited
        return events if first is None else events[first + 1 :]

    async def _fill(self, client: MatrixClient, events: list[dict[str, Any]], end: str, user: str) -> list[dict[str, Any]]:
        """Return the events with those before them: back to the invitation of the user, or to `end`."""
        start = self._start
        for _ in range(MOST_PAGES):
            if not start or _invited(events, user) is not None:
                return events
            page = await client.messages(self.room, start, end, EVENTS_FILTER)
            events = [*reversed(valid(page.get("chunk"))), *events]
            end_of_page = page.get("end")
            start = end_of_page if isinstance(end_of_page, str) and end_of_page != start else ""
        log.warning("matrix_gap_not_read", room=self.room, events=len(events))
        return events


def valid(events: Any) -> list[dict[str, Any]]:
    """Return those events of a list that have the form of an event."""
    return [
        event
        for event in (events if isinstance(events, list) else [])
        if isinstance(event, dict)
        and isinstance(event.get("content"), dict)
        and all(isinstance(event.get(key), str) for key in ("type", "event_id", "sender"))
    ]


def _membership(event: dict[str, Any], user: str) -> Any:
    if event["type"] == "m.room.member" and event.get("state_key") == user:
        return event["content"].get("membership")
    return None


def _invited(events: Sequence[dict[str, Any]], user: str) -> int | None:
    return next((place for place in reversed(range(len(events))) if _membership(events[place], user) == "invite"), None)


def _joined(events: Sequence[dict[str, Any]], user: str) -> int | None:
    """Return the place at which the user joined last; None if there is none. A changed name is a join after a join."""
    for place in reversed(range(len(events))):
        if _membership(events[place], user) == "join" and _membership_before(events[place]) != "join":
            return place
    return None


def _membership_before(event: dict[str, Any]) -> Any:
    unsigned = event.get("unsigned")
    before = unsigned.get("prev_content") if isinstance(unsigned, dict) else None
    return before.get("membership") if isinstance(before, dict) else None
