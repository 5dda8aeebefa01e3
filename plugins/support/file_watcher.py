"""Watching folders for changes with watchfiles."""

from __future__ import annotations

import asyncio
import contextlib
import importlib
import mmap
import threading
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

SPARE = 4 * 1024 * 1024
"""Maximum memory of the watcher's thread in bytes: a stack of 2 MB, and its runtime."""


async def changes(*folders: Path, **options: Any) -> AsyncGenerator[set[tuple[Any, str]], None]:
    """Watch folders. The options and what is yielded are those of `watchfiles.awatch`.

    Adding watches blocks the interpreter for 9 µs per folder; in a thread it would block the event loop, too.

    Raises:
        RuntimeError: No thread can be started.
        OSError: No watch can be added, or there is no descriptor or memory for it.
    """
    found = (await asyncio.to_thread(library)).awatch(*folders, **options)
    async with contextlib.aclosing(found):
        async for each in found:
            yield each


def library() -> Any:
    """Return watchfiles for one use, after checking that a thread can be started: its watcher starts one, and aborts the
    process if that fails. The first call blocks for 80 ms for the import. Raises RuntimeError if no thread can be started,
    OSError if there is no memory for it."""
    module = importlib.import_module("watchfiles")
    with contextlib.suppress(ImportError):  # anyio would import it later, on the event loop
        importlib.import_module("anyio._backends._asyncio")
    thread = threading.Thread(target=lambda: None, name="watching")
    thread.start()
    thread.join()  # the C library keeps its stack for the next thread
    mmap.mmap(-1, SPARE).close()
    return module
