"""The position in each session, by which repeated events are skipped and missing ones requested."""

from __future__ import annotations

from enum import Enum


class NewEvent(Enum):
    """The relation of an event to the last one seen of its session."""

    NEW = "new"
    REPEATED = "repeated"
    AHEAD = "ahead"
    """Earlier events are missing: request them, and this one is sent again after them."""


class EventDedup:
    """The last seq seen of each session, oldest session first: repeated events are skipped, missing ones requested.

    After `/new` the old session may still append events while the new one runs, so there is a position in each.
    """

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
        """Record an event unless earlier ones are missing; return how it relates to the last one seen."""
        last = self._last.get(session_id)
        if last is None:
            # In the first session any event may come first; a later session is followed from its beginning.
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
