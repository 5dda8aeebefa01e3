"""Figures of the running process: the lag of its event loop, and what the operating system counts.

A figure is None where the system does not provide it.
"""

from __future__ import annotations

import asyncio
import os
import resource
import sys
from collections import deque
from pathlib import Path

from gateway.metrics.prometheus import Histogram

EVERY = 0.25
"""Interval of the timer, in seconds."""

LAST_MINUTE, LAST_MINUTES = 60.0, 300.0
"""The windows of `last_minute` and `last_minutes`, in seconds."""


class LoopLag:
    """The measured lag of a running event loop, as a context manager; `observed` receives each delay in seconds."""

    def __init__(self, observed: Histogram) -> None:
        self._observed = observed
        self._last_minute, self._last_minutes = LongestLag(LAST_MINUTE), LongestLag(LAST_MINUTES)
        self._loop: asyncio.AbstractEventLoop
        self._timer: asyncio.TimerHandle | None = None

    def __enter__(self) -> LoopLag:
        self._loop = asyncio.get_running_loop()
        self._schedule()
        return self

    def __exit__(self, *_: object) -> None:
        if self._timer is not None:
            self._timer.cancel()

    @property
    def last_minute(self) -> float:
        """The longest delay of the last minute, in seconds."""
        return self._last_minute.value

    @property
    def last_minutes(self) -> float:
        """The longest delay of the last five minutes, in seconds."""
        return self._last_minutes.value

    def _schedule(self) -> None:
        due = self._loop.time() + EVERY
        self._timer = self._loop.call_at(due, self._measure, due)

    def _measure(self, due: float) -> None:
        now = self._loop.time()
        delay = max(0.0, now - due)
        self._observed.observe(delay)
        for longest in (self._last_minute, self._last_minutes):
            longest.add(now, delay)
        self._schedule()


class LongestLag:
    """The longest delay within a sliding window of this number of seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._peaks: deque[tuple[float, float]] = deque()
        """Time and length of each delay that may become the longest: each is longer than all after it."""

    @property
    def value(self) -> float:
        """The longest delay in the window that ended with the last `add`, in seconds; 0 if there is none."""
        return self._peaks[0][1] if self._peaks else 0.0

    def add(self, now: float, delay: float) -> None:
        """Add a delay, in the order of time."""
        while self._peaks and self._peaks[-1][1] <= delay:
            self._peaks.pop()
        self._peaks.append((now, delay))
        while self._peaks[0][0] <= now - self._seconds:
            self._peaks.popleft()


_STATM = Path("/proc/self/statm")
_DESCRIPTORS = (Path("/proc/self/fd"), Path("/dev/fd"))


def memory() -> int:
    """Return the resident memory in bytes; without /proc, its peak."""
    try:
        return int(_STATM.read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024


def descriptors() -> int | None:
    """Return the number of open file descriptors."""
    for folder in _DESCRIPTORS:
        try:
            return len(os.listdir(folder)) - 1  # the listing itself needs one
        except OSError:
            continue
    return None


def most_descriptors() -> int | None:
    """Return the limit of open file descriptors; None if there is none."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return None if limit == resource.RLIM_INFINITY else limit
