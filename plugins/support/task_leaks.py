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

from plugins.support.untrusted import SENTENCE

GRACE = 1.0
"""Seconds that a task may take to end after the call, and again after it was cancelled."""

TOLD = 3
"""The maximum number of tasks that a message names."""

_HOUSE = tuple(str(Path(__file__).parents[2] / floor) + "/" for floor in ("gateway", "plugins", "sessions"))

_CLIENTS = ("aiohttp", "httpx", "anyio")
"""The packages of the HTTP client, whose connections are shared by all callers."""

_begun: ContextVar[set[asyncio.Task[Any]] | None] = ContextVar("begun", default=None)

log = structlog.get_logger("exuvia.plugins")


def task_factory(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
    """Create a task and record it if it belongs to a plugin's call; see `AbstractEventLoop.set_task_factory`."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **more)
    begun = _begun.get()
    if begun is not None and not _is_ours(work):
        begun.add(task)
        task.add_done_callback(begun.discard)
    return task


@contextmanager
def cancelling_leaks(plugin: str, told: Callable[[str], None]) -> Iterator[None]:
    """Cancel the tasks that a plugin starts in the `with` block and leaves running after it.

    `told` is called with the end of a sentence that names them.
    """
    begun: set[asyncio.Task[Any]] = set()
    token = _begun.set(begun)
    try:
        yield
    finally:
        _begun.reset(token)
        if begun:
            asyncio.get_running_loop().call_later(GRACE, _end, plugin, begun, told)


def _end(plugin: str, begun: set[asyncio.Task[Any]], told: Callable[[str], None]) -> None:
    left = [task for task in begun if not task.done()]
    if not left:
        return
    names = ", ".join(_name(task) for task in left[:TOLD]) + (f" and {len(left) - TOLD} more" if len(left) > TOLD else "")
    for task in left:
        task.cancel()
    told(f"it left tasks running after its call, which were cancelled: {names}")
    asyncio.get_running_loop().call_later(GRACE, _see_to_the_end, plugin, left)


def _see_to_the_end(plugin: str, left: list[asyncio.Task[Any]]) -> None:
    for task in left:
        if not task.done():
            log.error("task_does_not_end", plugin=plugin, task=_name(task))
        elif not task.cancelled():
            task.exception()  # asked for, so that nobody is told that nobody did


def _name(task: asyncio.Task[Any]) -> str:
    return str(getattr(task.get_coro(), "__qualname__", "") or task.get_name())[:SENTENCE]


def _is_ours(work: Any) -> bool:
    """Return True if a coroutine belongs to the project or its HTTP client."""
    code = getattr(work, "cr_code", None)
    file = getattr(code, "co_filename", "")
    return file.startswith(_HOUSE) or file.startswith(tuple(_of_clients()))


def _of_clients() -> Iterator[str]:
    for name in _CLIENTS:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            yield str(Path(file).parent) + "/"
