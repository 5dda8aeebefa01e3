"""Watching folders for changes with watchfiles."""

from __future__ import annotations

import asyncio
import importlib
import mmap
import threading
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

SPARE = 4 * 1024 * 1024
"""Maximum memory of the watcher's thread in bytes: a stack of 2 MB, and its runtime."""


async def changes(*folders: Path, **options: Any) -> AsyncGenerator[set[tuple[Any, str]], None]:
    """Watch folders in a thread. The options and what is yielded are those of `watchfiles.watch`.

    Its asynchronous counterpart imports anyio's backend, which takes four times as long as all the rest.

    Raises:
        RuntimeError: No thread can be started.
        OSError: No watch can be added, or there is no descriptor or memory for it.
    """
    stop, loop = threading.Event(), asyncio.get_running_loop()
    # Its own thread: the shared ones are few, and this one waits most of the time.
    thread = ThreadPoolExecutor(1, "watching")
    try:
        found = (await loop.run_in_executor(thread, library)).watch(*folders, stop_event=stop, **options)
        try:
            while (each := await loop.run_in_executor(thread, next, found, None)) is not None:
                yield each
        finally:
            stop.set()
            await loop.run_in_executor(thread, found.close)
    finally:
        thread.shutdown(wait=False)


def library() -> Any:
    """Return watchfiles for one use, after checking that a thread can be started: its watcher starts one, and aborts the
    process if that fails. The first call blocks for some 10 ms for the import. Raises RuntimeError if no thread can be
    started, OSError if there is no memory for it."""
    module = importlib.import_module("watchfiles")
    thread = threading.Thread(target=lambda: None, name="watching")
    thread.start()
    thread.join()  # the C library keeps its stack for the next thread
    mmap.mmap(-1, SPARE).close()
    return module
