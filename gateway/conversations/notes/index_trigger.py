"""Has the memory look at the journals when that may be worth it: soon after something left a model's view, and when nothing
was said for a while."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from plugins.memory.sources.transcripts import RESTED
from sessions.events.events import ContextCompacted, Recorded, SessionClosed, TurnEnded

SOON = 1.0
"""Seconds after which the event that left something behind is on the disk for sure."""


class IndexTrigger:
    """Reads along in all sessions; `wake` has the sources looked at."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._rested = 0.0
        """When nothing will have been said for a while, by the loop's clock."""

    def read(self, recorded: Recorded) -> None:
        """Take in an event."""
        now = asyncio.get_running_loop().time()
        if isinstance(recorded.event, TurnEnded):
            self._rested = now + RESTED + SOON
            self._tell_at(self._rested)
        elif isinstance(recorded.event, ContextCompacted | SessionClosed):
            self._tell_at(now + SOON)

    def _tell_at(self, when: float) -> None:
        if self._timer is not None and self._timer.when() <= when:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._tell)

    def _tell(self) -> None:
        self._timer = None
        self._wake()
        if self._rested > asyncio.get_running_loop().time():
            self._tell_at(self._rested)
