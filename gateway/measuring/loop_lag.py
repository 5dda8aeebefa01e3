"""How late the event loop is: a timer that should run every quarter of a second, and by how much it did not."""

from __future__ import annotations

import asyncio

from gateway.measuring.metrics import Histogram

EVERY = 0.25
"""Seconds between two looks."""

RECENTLY = 300.0
"""Seconds that `recent` looks back at least; twice as long at most."""


class LoopLag:
    """Use as a context manager on a running loop; `observed` takes each delay in seconds."""

    def __init__(self, observed: Histogram) -> None:
        self._observed = observed
        self._since_asked = 0.0
        self._now = self._before = 0.0
        """The longest delay of this stretch of `RECENTLY` seconds, and of the one before."""
        self._stretch_ends = 0.0
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> LoopLag:
        self._loop = asyncio.get_running_loop()
        self._stretch_ends = self._loop.time() + RECENTLY
        self._wind()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def recent(self) -> float:
        """The longest delay of the last minutes, in seconds."""
        return max(self._now, self._before)

    def longest(self) -> float:
        """The longest delay since this was asked last, in seconds."""
        longest, self._since_asked = self._since_asked, 0.0
        return longest

    def _wind(self) -> None:
        due = self._loop.time() + EVERY
        self._timer = self._loop.call_at(due, self._look, due)

    def _look(self, due: float) -> None:
        now = self._loop.time()
        delay = max(0.0, now - due)
        if now > self._stretch_ends:
            self._before, self._now = self._now, 0.0
            self._stretch_ends = now + RECENTLY
        self._observed.observe(delay)
        self._since_asked = max(self._since_asked, delay)
        self._now = max(self._now, delay)
        self._wind()
