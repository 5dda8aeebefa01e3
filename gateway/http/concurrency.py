"""Limits for what is in use at the same time, and a count of requests in flight."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal


class Quota:
    """A limit for units in use at the same time: requests, connections or bytes.

    It is `of_one` for one user, which is a person or an address, and `of_all` for all together.
    """

    def __init__(self, of_one: int, of_all: int) -> None:
        self._of_one = of_one
        self._of_all = of_all
        self._used: Counter[str] = Counter()

    def exceeded(self, user: str, units: int = 1) -> Literal["one", "all"] | None:
        """Return the limit that further units of a user would exceed; None if they are available."""
        if self._used[user] + units > self._of_one:
            return "one"
        return "all" if self._used.total() + units > self._of_all else None

    def add(self, user: str, units: int) -> None:
        """Count further units of a user, or fewer if `units` is negative."""
        self._used[user] += units
        if self._used[user] == 0:
            del self._used[user]

    @contextmanager
    def unit(self, user: str) -> Iterator[None]:
        """Count one unit of a user while the block runs."""
        self.add(user, 1)
        try:
            yield
        finally:
            self.add(user, -1)


class InFlight:
    """A count of stateless requests in flight. A gateway that stops waits for them as for turns."""

    def __init__(self) -> None:
        self._count = 0
        self._none = asyncio.Event()
        self._none.set()

    @contextmanager
    def one(self) -> Iterator[None]:
        """Count a request while the block runs."""
        self._count += 1
        self._none.clear()
        try:
            yield
        finally:
            self._count -= 1
            if self._count == 0:
                self._none.set()

    async def until_none(self, seconds: float) -> None:
        """Return once the count is zero, or after `seconds`."""
        try:
            async with asyncio.timeout(seconds):
                await self._none.wait()
        except TimeoutError:
            return
