"""Cancelling tasks that a third-party plugin leaves running after its call, and naming the plugin.

A context variable, which tasks inherit, tells the task factory which call a task belongs to. Tasks that the project itself
starts on behalf of a plugin (a search, a connection) are not affected.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any

import structlog

from plugins.support.untrusted import LAYERS, SENTENCE

GRACE = 1.0
"""Seconds that a task may take to end after the call, and again after it was cancelled."""

MAX_NAMED = 3
"""The maximum number of tasks that a message names."""

_OWN_FOLDERS = tuple(f"{Path(__file__).parents[2] / layer}/" for layer in LAYERS)

_CLIENTS = ("aiohttp", "httpx", "anyio")
"""The packages of the HTTP client, whose connections are shared by all callers."""

_started: ContextVar[set[asyncio.Task[Any]] | None] = ContextVar("started", default=None)

log = structlog.get_logger("exuvia.plugins")


def task_factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **options: Any) -> asyncio.Task[Any]:
    """Create a task and record it if it belongs to a plugin's call; see `AbstractEventLoop.set_task_factory`."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, **options)
    started = _started.get()
    if started is not None and not _is_own(coroutine):
        started.add(task)
        task.add_done_callback(started.discard)
    return task


@contextmanager
def cancelling_leaks(plugin: str, report: Callable[[str], None]) -> Iterator[None]:
    """Cancel the tasks that a plugin starts in the `with` block and leaves running after it.

    `report` is called with the end of a sentence that names them.
    """
    started: set[asyncio.Task[Any]] = set()
    token = _started.set(started)
    try:
        yield
    finally:
        _started.reset(token)
        if started:
            asyncio.get_running_loop().call_later(GRACE, _cancel_running, plugin, started, report)


def _cancel_running(plugin: str, started: set[asyncio.Task[Any]], report: Callable[[str], None]) -> None:
    left = [task for task in started if not task.done()]
    if not left:
        return
    names = ", ".join(_name(task) for task in left[:MAX_NAMED]) + (
        f" and {len(left) - MAX_NAMED} more" if len(left) > MAX_NAMED else ""
    )
    for task in left:
        task.cancel()
    report(f"it left tasks running after its call, which were cancelled: {names}")
    asyncio.get_running_loop().call_later(GRACE, _check_ended, plugin, left)


def _check_ended(plugin: str, left: list[asyncio.Task[Any]]) -> None:
    for task in left:
        if not task.done():
            log.error("task_does_not_end", plugin=plugin, task=_name(task))
        elif not task.cancelled():
            task.exception()  # retrieved, else asyncio logs that it never was


def _name(task: asyncio.Task[Any]) -> str:
    return str(getattr(task.get_coro(), "__qualname__", "") or task.get_name())[:SENTENCE]


def _is_own(coroutine: Any) -> bool:
    """Return True if a coroutine belongs to the project or its HTTP client."""
    code = getattr(coroutine, "cr_code", None)
    file = getattr(code, "co_filename", "")
    return file.startswith(_OWN_FOLDERS) or file.startswith(tuple(_client_folders()))


def _client_folders() -> Iterator[str]:
    for name in _CLIENTS:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            yield str(Path(file).parent) + "/"
