"""Triggers the indexing of journals: soon after messages left a view, and after a while without new ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from plugins.memory.sources.transcripts import RESTED
from sessions.events.events import ContextCompacted, Recorded, SessionClosed, TurnEnded

SOON = 1.0
"""Seconds after which the event that triggers the indexing is surely durable."""


class IndexTrigger:
    """Follows the events of all sessions; `wake` starts the indexing."""

    def __init__(self, wake: Callable[[], None]) -> None:
        self._wake = wake
        self._timer: asyncio.TimerHandle | None = None
        self._rested = 0.0
        """The time at which sessions count as idle, on the event loop's clock."""

    def on_event(self, recorded: Recorded) -> None:
        """Schedule the indexing if an event calls for it."""
        if isinstance(recorded.event, TurnEnded):
            self._rested = asyncio.get_running_loop().time() + RESTED + SOON
            self._wake_at(self._rested)
        elif isinstance(recorded.event, ContextCompacted | SessionClosed):
            self._wake_at(asyncio.get_running_loop().time() + SOON)

    def _wake_at(self, when: float) -> None:
        if self._timer is not None and self._timer.when() <= when:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer = asyncio.get_running_loop().call_at(when, self._fire)

    def _fire(self) -> None:
        self._timer = None
        self._wake()
        if self._rested > asyncio.get_running_loop().time():
            self._wake_at(self._rested)
