"""Tasks that a stranger's code begins and leaves behind when its call is over: they are cancelled, and the plugin is named.

The task factory notes for each task in whose call it was begun; a context variable, which tasks inherit, says so. What the
house itself begins on a plugin's behalf (a search, a connection) is its own and stays.
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
"""Seconds that a task may take to end by itself when the call that began it is over, and again when it is cancelled."""

TOLD = 3
"""Tasks that are named."""

_HOUSE = tuple(str(Path(__file__).parents[2] / floor) + "/" for floor in ("gateway", "plugins", "sessions"))

_CLIENTS = ("aiohttp", "httpx", "httpx_aiohttp", "anyio")
"""What the house's transport is made of. Its connections serve everybody, whoever they were opened for."""

_begun: ContextVar[set[asyncio.Task[Any]] | None] = ContextVar("begun", default=None)

log = structlog.get_logger("exuvia.plugins")


def task_factory(loop: asyncio.AbstractEventLoop, work: Any, **more: Any) -> asyncio.Task[Any]:
    """The task factory; see `AbstractEventLoop.set_task_factory`."""
    task: asyncio.Task[Any] = asyncio.Task(work, loop=loop, **more)
    begun = _begun.get()
    if begun is not None and not _is_ours(work):
        begun.add(task)
        task.add_done_callback(begun.discard)
    return task


@contextmanager
def cancelling_leaks(plugin: str, told: Callable[[str], None]) -> Iterator[None]:
    """While the block runs, a plugin's code may begin tasks. Those that go on after it and the grace are cancelled, and
    `told` hears of it as the end of a sentence."""
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
    """Whether a coroutine is the house's, or its HTTP client's."""
    code = getattr(work, "cr_code", None)
    file = getattr(code, "co_filename", "")
    return file.startswith(_HOUSE) or file.startswith(tuple(_of_clients()))


def _of_clients() -> Iterator[str]:
    for name in _CLIENTS:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file:
            yield str(Path(file).parent) + "/"
