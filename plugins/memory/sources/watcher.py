"""Watching of the notes' folders with the system's notifications, in the library's thread.

Editors write a file several times, and tools write many files, so changes are reported after a quiet period. File systems
without notifications, such as network file systems, are checked periodically.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path

from plugins.api.memory.source import WatchedFolders
from plugins.memory.sources.notes import folders_in
from plugins.support.file_watcher import changes

QUIET_SECONDS, AT_LATEST_SECONDS = 1.5, 6.0
"""Seconds without a change after which changes are reported, and the maximum seconds that one waits for that."""

BETWEEN_LOOKS = 300.0
"""Seconds after which changes are assumed even without notifications."""

AGAIN_SECONDS = 30.0
"""Seconds before watching is retried after a failure."""

BETWEEN_CHECKS = 5.0
"""Seconds between checks for changed folders."""

ADDED = 1
"""`watchfiles.Change.added`."""

STEP_MS = 100
"""Milliseconds between checks of the library's thread for its end."""


class Watcher:
    """Watches folders while it runs.

    Args:
        places: Returns the folders to watch. Blocks briefly.
        news: Called when something may have changed.
    """

    def __init__(self, places: Callable[[], WatchedFolders], news: Callable[[], None]) -> None:
        self._places = places
        self._news = news
        self._reported = asyncio.Event()
        self.fault = "watching has not started"
        """Why changes are not noticed, as the end of a sentence; "" while they are."""

    async def run(self) -> None:
        """Watch until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass_on())
                tasks.create_task(self._listen())
        finally:
            self.fault = "watching has not started"

    async def _pass_on(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await _within(BETWEEN_LOOKS, self._reported)
            until = loop.time() + AT_LATEST_SECONDS
            self._reported.clear()
            while loop.time() < until and await _within(QUIET_SECONDS, self._reported):
                self._reported.clear()
            self._news()

    async def _listen(self) -> None:
        while True:
            try:
                await self._follow()
            except Exception as error:  # searches check for changes themselves meanwhile
                self.fault = f"{type(error).__name__}: {error}"
                await asyncio.sleep(AGAIN_SECONDS)

    async def _follow(self) -> None:
        """Report changes until the folders to watch change."""
        places = await asyncio.to_thread(self._places)
        folders = await asyncio.to_thread(_every_folder, places)
        self._reported.set()  # changes before the watching starts
        if not folders:
            await asyncio.sleep(BETWEEN_CHECKS)
            return
        watch = changes(
            *folders,
            watch_filter=_matters,
            recursive=False,
            step=STEP_MS,
            rust_timeout=round(BETWEEN_CHECKS * 1000),
            yield_on_timeout=True,
        )
        self.fault = ""
        compared = False
        async with contextlib.aclosing(watch):
            async for changed in watch:
                if changed:
                    self._reported.set()
                if any(kind == ADDED and _is_folder(path) for kind, path in changed):
                    return
                if await asyncio.to_thread(self._places) != places:
                    return
                if not compared and await asyncio.to_thread(_every_folder, places) != folders:
                    return  # one was added before its parent was watched
                compared = True


def _every_folder(places: WatchedFolders) -> frozenset[Path]:
    """Return the folders to watch, one by one: the library's recursive watches follow links, also one to the root."""
    return places.flat.union(*(folders_in(folder) for folder in places.deep))


async def _within(seconds: float, event: asyncio.Event) -> bool:
    """Return True if an event is set within this time."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False


def _matters(kind: int, path: str) -> bool:
    """Return True for a path that may affect notes: a Markdown file or possibly a folder."""
    name = path.rpartition("/")[2]
    return name.endswith(".md") or "." not in name or (kind == ADDED and _is_folder(path))


def _is_folder(path: str) -> bool:
    return os.path.isdir(path) and not os.path.islink(path)
