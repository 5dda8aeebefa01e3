"""A clock that a test sets."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


class SetClock:
    """A clock that stands still until it is moved."""

    def __init__(self, now: datetime = NOON) -> None:
        self._now = now
        self._seconds = 0.0

    def now(self) -> datetime:
        """The time of day."""
        return self._now

    def monotonic(self) -> float:
        """Seconds that only go forward."""
        return self._seconds

    def move(self, seconds: float) -> None:
        """Let so much time pass."""
        self._now += timedelta(seconds=seconds)
        self._seconds += seconds
