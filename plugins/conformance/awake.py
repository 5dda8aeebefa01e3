"""Whether something lets the event loop breathe while it runs."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from typing import TypeVar

T = TypeVar("T")

LONGEST = 1.0
"""Seconds for which a plugin may hold up everybody in a check: far more than it should, so that no slow machine fails it."""


async def kept_awake(running: Awaitable[T]) -> T:
    """What it returns; AssertionError where it held up the event loop."""
    longest = 0.0
    done = asyncio.Event()

    async def watch() -> None:
        nonlocal longest
        while not done.is_set():
            before = time.monotonic()
            await asyncio.sleep(0.01)
            longest = max(longest, time.monotonic() - before)

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    try:
        return await running
    finally:
        await asyncio.sleep(0.02)
        done.set()
        await watching
        assert longest < LONGEST, f"It held up the event loop, and with it everybody, for {longest:.1f} seconds."
