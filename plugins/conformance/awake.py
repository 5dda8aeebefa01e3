"""Whether something lets the event loop breathe while it runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

LONGEST = 0.5
"""Seconds for which a plugin may hold up everybody in a check: far more than it should."""

TRIES = 3
"""So often it may: a machine that is busy with something else does not stand still each time."""


async def kept_awake(run: Callable[[], Awaitable[object]]) -> None:
    """Run it; AssertionError where it holds up the event loop each time."""
    for _ in range(TRIES):
        longest = await _longest_pause(run)
        if longest < LONGEST:
            return
    raise AssertionError(f"It held up the event loop, and with it everybody, for {longest:.1f} seconds.")


async def _longest_pause(run: Callable[[], Awaitable[object]]) -> float:
    """For how many seconds nobody else was heard while it ran."""
    longest, last = 0.0, time.monotonic()

    async def watch() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()

    watching = asyncio.create_task(watch())
    try:
        await run()
        await asyncio.sleep(0.02)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return longest
