"""The system's clock, as plugins and the gateway see it."""

from __future__ import annotations

import time
from datetime import UTC, datetime


class SystemClock:
    """The time as the machine tells it."""

    def now(self) -> datetime:
        """The time of day in UTC."""
        return datetime.now(UTC)

    def monotonic(self) -> float:
        """Seconds that only go forward."""
        return time.monotonic()
