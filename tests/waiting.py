"""Waiting for what a test expects: for an event, never for a number of seconds."""

from __future__ import annotations

import asyncio
import contextlib
import sys
import traceback
from collections.abc import AsyncIterator, Callable, Iterator
from types import FrameType
from typing import Any, Self

from gateway.plugin_runtime.watchdog import current_frames

DEADLINE = 90.0
"""Seconds after which a test that waits has failed. Only a fault takes this long, however busy the machine is."""


@contextlib.asynccontextmanager
async def deadline() -> AsyncIterator[None]:
    """Raise TimeoutError where the block hangs, and print where every task and thread of this process waits."""
    try:
        async with asyncio.timeout(DEADLINE) as timeout:
            yield
    except TimeoutError:
        if timeout.expired():
            sys.stderr.writelines(f"{line}\n" for line in waiting_places())
        raise


def waiting_places() -> Iterator[str]:
    """Return a line for each task of the running event loop and each thread: where it waits, its innermost frame first."""
    for task in asyncio.all_tasks():
        frames = list[str]()
        awaited: Any = task.get_coro()
        while (frame := getattr(awaited, "cr_frame", None) or getattr(awaited, "ag_frame", None)) is not None:
            frames.append(_place(frame, frame.f_lineno))
            awaited = getattr(awaited, "cr_await", None) or getattr(awaited, "ag_await", None)
        yield f"task {task.get_name()}: {' < '.join(reversed(frames))}, waits for {awaited!r}"
    for thread, innermost in current_frames().items():
        yield f"thread {thread}: {' < '.join(_place(*each) for each in [*traceback.walk_stack(innermost)][:12])}"


def _place(frame: FrameType, line: int) -> str:
    return f"{frame.f_code.co_filename.rpartition('/')[2]}:{line} {frame.f_code.co_name}"


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
