"""What an idle hour of a channel costs, under virtual time. Its service must be on the same event loop."""

from __future__ import annotations

import asyncio
import gc
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.waiting import VirtualTime

HOUR = 3600.0

WARM_UP = 3.5 * HOUR
"""After this the caches of the HTTP libraries are full, which remember the addresses of some hundred requests."""


class Costs(NamedTuple):
    """What an hour cost.

    Attributes:
        requests: What the channel sent.
        pauses: How often the event loop waited for a timer, of the channel or of its service.
        written: The files that were written.
        grown: The bytes by which the memory has grown, the lesser of two hours.
        tasks: How many more tasks there are.
    """

    requests: int
    pauses: int
    written: set[str]
    grown: int
    tasks: int


async def idle_hour(folder: Path, requests: Callable[[], int]) -> Costs:
    """Let some hours pass, and then one that counts.

    Args:
        folder: Everything that the channel stores.
        requests: Returns how many requests the channel has sent.
    """
    with VirtualTime() as time:
        tracemalloc.start()
        try:
            await asyncio.sleep(WARM_UP)
            before = requests(), time.pauses, _files(folder), _memory(), len(asyncio.all_tasks())
            await asyncio.sleep(HOUR)
            costs = Costs(
                requests() - before[0],
                time.pauses - before[1],
                {path for path, written in _files(folder).items() if before[2].get(path) != written},
                _memory() - before[3],
                len(asyncio.all_tasks()) - before[4],
            )
            memory = _memory()
            await asyncio.sleep(HOUR)  # what grows by itself grows in both hours; caches of the libraries do so in one
            return costs._replace(grown=min(costs.grown, _memory() - memory))
        finally:
            tracemalloc.stop()


def _memory() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


def _files(folder: Path) -> dict[str, tuple[int, int]]:
    """Return the files in a folder, with what changes whenever one is written."""
    return {str(path): (path.stat().st_ino, path.stat().st_mtime_ns) for path in folder.rglob("*") if path.is_file()}
