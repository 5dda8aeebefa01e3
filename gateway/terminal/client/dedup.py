"""How far a client has read a key's sessions: which event is new, which was seen, and where to go on after a break.

After `/new` the old session may have something to finish while the new one goes on, so there is a position in each.
"""

from __future__ import annotations

from enum import Enum


class NewEvent(Enum):
    """What an event that arrives is to a client."""

    NEW = "new"
    REPEATED = "repeated"
    AHEAD = "ahead"
    """Events before it are missing: ask for them again, and it will come again behind them."""


class EventDedup:
    """The last seq that was seen of each session, oldest session first."""

    def __init__(self) -> None:
        self._last: dict[str, int] = {}
        self._closed: set[str] = set()

    def start(self, session_id: str, seq: int) -> None:
        """Everything up to `seq` of a session that was not known yet counts as seen."""
        self._last.setdefault(session_id, seq)

    def reset(self) -> None:
        """Forget everything."""
        self._last.clear()
        self._closed.clear()

    def arrive(self, session_id: str, seq: int) -> NewEvent:
        """Take note of an event, unless events before it are missing."""
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
        """Nothing more comes in this session."""
        self._closed.add(session_id)

    @property
    def position(self) -> tuple[str, int] | None:
        """The oldest session that may have more, and the last seq seen in it: what to ask for after a lost connection.
        None before anything was seen."""
        for session_id, seq in self._last.items():
            if session_id not in self._closed:
                return session_id, seq
        return next(reversed(self._last.items())) if self._last else None
