"""Notices that notes changed, from the system's own reports: the library's thread waits for them, not the event loop.

An editor writes a file more than once, and a tool many of them: news is passed on when it has been quiet for a while. What
is not reported, as on network file systems, is found by a look now and then.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection
from pathlib import Path

from plugins.api.memory.source import WatchedFolders
from plugins.support.file_watcher import changes

QUIET_SECONDS, AT_LATEST_SECONDS = 1.5, 6.0
"""How long it must have been quiet, and how long news waits for that at most."""

BETWEEN_LOOKS = 300.0
"""Seconds after which there is a look though nothing was reported."""

AGAIN_SECONDS = 30.0
"""How long after a failure of the watching it is tried again."""

BETWEEN_CHECKS = 5.0
"""How often it is asked whether there are other folders to be watched."""

STEP_MS = 100
"""How often the library's thread looks whether it is to end."""


class Watcher:
    """Watches while it runs. `places` blocks for a moment; `news` is called when something may have changed."""

    def __init__(self, places: Callable[[], WatchedFolders], news: Callable[[], None]) -> None:
        self._places = places
        self._news = news
        self._reported = asyncio.Event()
        self.fault = "nobody watches them"
        """Why what changes is not noticed, as the end of a sentence; empty while it is."""

    async def run(self) -> None:
        """Until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(self._pass_on())
                tasks.create_task(self._listen())
        finally:
            self.fault = "nobody watches them"

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
            places = await asyncio.to_thread(self._places)
            self._reported.set()  # what happened since the last look, and before the watching begins
            try:
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(self._follow(places.flat, places, recursive=False))
                    tasks.create_task(self._follow(places.deep, places, recursive=True))
            except* _Moved:
                pass  # no fault: the places are other ones, and are watched anew
            except* Exception as errors:  # a limit of the system, or the library's own: searches look themselves meanwhile
                self.fault = f"{type(errors.exceptions[0]).__name__}: {errors.exceptions[0]}"
                await asyncio.sleep(AGAIN_SECONDS)

    async def _follow(self, folders: Collection[Path], places: WatchedFolders, *, recursive: bool) -> None:
        """Report what happens in folders until there are other places to be watched."""
        if not folders:
            return
        watch = changes(
            *folders,
            watch_filter=_matters,
            recursive=recursive,
            step=STEP_MS,
            rust_timeout=round(BETWEEN_CHECKS * 1000),
            yield_on_timeout=True,
        )
        self.fault = ""
        async with contextlib.aclosing(watch):
            async for changed in watch:
                if changed:
                    self._reported.set()
                if await asyncio.to_thread(self._places) != places:
                    raise _Moved


class _Moved(Exception):
    """There are other places to be watched."""


async def _within(seconds: float, event: asyncio.Event) -> bool:
    """Whether an event came in so many seconds."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            return await event.wait()
    return False


def _matters(_: object, path: str) -> bool:
    """Whether a note may have changed by what happened to this path: a Markdown file, or what may be a folder."""
    name = path.rpartition("/")[2]
    return name.endswith(".md") or "." not in name
