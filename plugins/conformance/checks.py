"""`check`, and `plain_check` for what blocks: what makes a test of the kit. It runs in plain pytest, and says how to mend
what failed; an async one ends in time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, ParamSpec

P = ParamSpec("P")

SECONDS = 30.0
"""How long one check may take."""


def check(story: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test from an async method: it has an event loop of its own, is given up after `SECONDS`, and must leave no task
    behind. Where it fails, its docstring, which says how to mend that, stands below the failure."""

    @functools.wraps(story)
    def told(*arguments: P.args, **named: P.kwargs) -> None:
        with _mended_so(story.__doc__):
            asyncio.run(_bounded(story(*arguments, **named)))

    return told


def plain_check(story: Callable[P, None]) -> Callable[P, None]:
    """A test from a method that blocks; where it fails, its docstring stands below the failure."""

    @functools.wraps(story)
    def told(*arguments: P.args, **named: P.kwargs) -> None:
        with _mended_so(story.__doc__):
            story(*arguments, **named)

    return told


@contextlib.contextmanager
def _mended_so(docstring: str | None) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"\nHow to mend it:\n{inspect.cleandoc(docstring or '')}")
        raise


async def _bounded(story: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.timeout(SECONDS):
            await story
    except TimeoutError as error:
        raise AssertionError(f"It was not done after {SECONDS:g} seconds.") from error
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, f"Tasks are left running: {', '.join(left)}. Whatever a plugin starts ends in its __aexit__."
