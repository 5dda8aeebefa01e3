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
"""Bytes that the watcher's thread takes at most: a stack of 2 MB, and what its runtime adds."""


async def changes(*folders: Path, **options: Any) -> AsyncGenerator[set[tuple[Any, str]], None]:
    """Watch folders.

    Setting the watches holds the interpreter, 9 µs for each folder, so that a thread would not free the event loop.

    Args:
        folders: What is watched.
        options: Those of `watchfiles.awatch`.

    Yields:
        What `watchfiles.awatch` does.

    Raises:
        RuntimeError: The system gives no further thread.
        OSError: It sets no further watch, or gives no descriptor or memory for it.
    """
    found = (await asyncio.to_thread(library)).awatch(*folders, **options)
    async with contextlib.aclosing(found):
        async for each in found:
            yield each


def library() -> Any:
    """Return watchfiles for one use that begins at once. Its watcher needs a thread of its own, and where that cannot begin
    it aborts the process. Blocks: 80 ms for the import, the first time. Raises RuntimeError where no thread can be started,
    OSError where there is no memory for it."""
    module = importlib.import_module("watchfiles")
    with contextlib.suppress(ImportError):  # what anyio would import later, on the event loop
        importlib.import_module("anyio._backends._asyncio")
    thread = threading.Thread(target=lambda: None, name="watching")
    thread.start()
    thread.join()  # its stack stays with the C library for the next thread
    mmap.mmap(-1, SPARE).close()
    return module
