"""Waiting for what a test expects: for an event, never for a number of seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Self

DEADLINE = 90.0
"""Seconds after which a test that waits has failed. Only a fault takes this long, however busy the machine is."""


def deadline() -> asyncio.Timeout:
    """Return a context manager that raises TimeoutError where its block hangs."""
    return asyncio.timeout(DEADLINE)


async def until(holds: Callable[[], object]) -> None:
    """Wait until `holds()` is true. Raises TimeoutError if it never becomes so."""
    async with deadline():
        while not holds():
            await asyncio.sleep(0.005)


class VirtualTime:
    """The time of the running event loop, which passes only while nothing else is left to do, and then at once.

    For code that waits for timers alone: what a thread or another process does takes no time by this clock.

    Attributes:
        pauses: How often the event loop has waited for a timer.
    """

    def __init__(self) -> None:
        self.pauses = 0
        loop: Any = asyncio.get_running_loop()
        self._loop, self._select, self._now = loop, loop._selector.select, loop.time()

    def __enter__(self) -> Self:
        self._loop._selector.select = self._pass
        self._loop.time = lambda: self._now
        return self

    def __exit__(self, *_: object) -> None:
        self._loop._selector.select = self._select
        del self._loop.time

    def block(self, seconds: float) -> None:
        """Let time pass in which the event loop does nothing, as code that blocks it does."""
        self._now += seconds

    def _pass(self, timeout: float | None) -> object:
        events = self._select(0)
        if not events:
            self._now += timeout or 0.0
            self.pauses += bool(timeout)
        return events
