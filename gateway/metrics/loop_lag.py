"""How late the event loop is: a timer that should run every quarter of a second, and by how much it did not."""

from __future__ import annotations

import asyncio
from collections import deque

from gateway.metrics.prometheus import Histogram

EVERY = 0.25
"""Seconds between two looks."""

LATELY, RECENTLY = 60.0, 300.0
"""Seconds that `lately` and `recent` look back. Whoever asks changes nothing for others who ask."""


class LoopLag:
    """Use as a context manager on a running loop; `observed` takes each delay in seconds."""

    def __init__(self, observed: Histogram) -> None:
        self._observed = observed
        self._lately, self._recent = LongestLag(LATELY), LongestLag(RECENTLY)
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> LoopLag:
        self._loop = asyncio.get_running_loop()
        self._wind()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def lately(self) -> float:
        """The longest delay of the last minute, in seconds."""
        return self._lately.value

    @property
    def recent(self) -> float:
        """The longest delay of the last minutes, in seconds."""
        return self._recent.value

    def _wind(self) -> None:
        due = self._loop.time() + EVERY
        self._timer = self._loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        now = self._loop.time()
        delay = max(0.0, now - due)
        self._observed.observe(delay)
        for longest in (self._lately, self._recent):
            longest.add(now, delay)
        self._wind()


class LongestLag:
    """The longest delay within a window of so many seconds that slides along."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._peaks: deque[tuple[float, float]] = deque()
        """When each came and how long it was. Each is longer than all after it: the others can never be the longest."""

    @property
    def value(self) -> float:
        """The longest, when the last was added; 0 where there is none."""
        return self._peaks[0][1] if self._peaks else 0.0

    def add(self, now: float, delay: float) -> None:
        """One more, in the order of time."""
        while self._peaks and self._peaks[-1][1] <= delay:
            self._peaks.pop()
        self._peaks.append((now, delay))
        while self._peaks[0][0] <= now - self._seconds:
            self._peaks.popleft()
