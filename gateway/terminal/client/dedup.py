"""The position in a key's sessions: which events are new, and where to resume after a lost connection.

After `/new` the old session may still append events while the new one runs, so there is a position in each.
"""

from __future__ import annotations

from enum import Enum


class NewEvent(Enum):
    """The relation of an event to the position."""

    NEW = "new"
    REPEATED = "repeated"
    AHEAD = "ahead"
    """Earlier events are missing: request them, and this one is sent again after them."""


class EventDedup:
    """The last seq seen of each session, oldest session first."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._closed: set[str] = set()

    def start(self, session_id: str, seq: int) -> None:
        """Mark everything up to `seq` of an unknown session as seen."""
        self._last.setdefault(session_id, seq)

    def reset(self) -> None:
        """Forget all positions."""
        self._last.clear()
        self._closed.clear()

    def arrive(self, session_id: str, seq: int) -> NewEvent:
        """Record an event unless earlier events are missing; return its relation to the position."""
        last = self._last.get(session_id)
        if last is None:
            # The first event of all may be any; a later session is followed from its first event on.
            last = 0 if self._last else seq - 1
        if seq <= last:
            return NewEvent.REPEATED
        if seq > last + 1:
            return NewEvent.AHEAD
        self._last[session_id] = seq
        return NewEvent.NEW

    def close(self, session_id: str) -> None:
        """Mark a session as complete."""
        self._closed.add(session_id)

    @property
    def position(self) -> tuple[str, int] | None:
        """The oldest session that may have more events, and the last seq seen in it; None before any event.

        A client subscribes from here after a lost connection.
        """
        for session_id, seq in self._last.items():
            if session_id not in self._closed:
                return session_id, seq
        return next(reversed(self._last.items())) if self._last else None
