"""`check`, and `plain_check` for what blocks: what makes a test of the kit. It runs in plain pytest, and says how to mend
what failed; an async one ends in time."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import inspect
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from typing import Any, ParamSpec

from plugins.support.errors import ProviderError

P = ParamSpec("P")

SECONDS = 30.0
"""How long one check may take."""

LONGEST = 0.5
"""Seconds for which a plugin may hold up everybody in a check: far more than it should."""

TRIES = 3
"""So often it may: a machine that is busy with something else does not stand still each time."""


async def assert_not_blocking(run: Callable[[], Awaitable[object]]) -> None:
    """Run it; AssertionError where it holds up the event loop each time."""
    for _ in range(TRIES):
        longest = await _longest_pause(run)
        if longest < LONGEST:
            return
    raise AssertionError(f"It held up the event loop, and with it everybody, for {longest:.1f} seconds.")


async def _longest_pause(run: Callable[[], Awaitable[object]]) -> float:
    """For how many seconds nobody else was heard while it ran."""
    longest, last = 0.0, time.monotonic()

    async def watch() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()

    watching = asyncio.create_task(watch())
    try:
        await run()
        await asyncio.sleep(0.02)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return longest


SENTENCE = 500
"""Characters that a person reads at most."""


async def error_of(asked: Awaitable[Any], *meant: type[ProviderError], secret: str = "") -> ProviderError:
    """The error with which something ends that must fail, in one of the kinds that are `meant`, as one line for a person in
    which `secret` does not stand."""
    error = await _raised(asked)
    names = " or ".join(kind.__name__ for kind in meant)
    assert type(error) in meant, f"{type(error).__name__} was raised ({error}), and {names} is meant."
    check_sentence(str(error), secret)
    return error


async def _raised(asked: Awaitable[Any]) -> ProviderError:
    try:
        answer = await asked
    except ProviderError as error:
        return error
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} was raised, which is no ProviderError: {error}") from error
    raise AssertionError(f"It answered {str(answer)[:100]!r} where there was no answer.")


def check_sentence(sentence: str, secret: str = "") -> None:
    """Whether a sentence can be shown to a person."""
    assert sentence.strip(), "The error says nothing."
    assert sentence.isprintable(), f"The error is not one line of text: {sentence!r}"
    assert len(sentence) <= SENTENCE, f"The error has {len(sentence)} characters: {sentence[:100]!r}…"
    assert not secret or secret not in sentence, "The error shows the key."


def check(story: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test from an async method: it has an event loop of its own, is given up after `SECONDS`, and must leave no task
    behind. Where it fails, its docstring, which says how to mend that, stands below the failure."""

    @functools.wraps(story)
    def told(*arguments: P.args, **named: P.kwargs) -> None:
        with _with_hint(story.__doc__):
            asyncio.run(_bounded(story(*arguments, **named)))

    return told


def plain_check(story: Callable[P, None]) -> Callable[P, None]:
    """A test from a method that blocks; where it fails, its docstring stands below the failure."""

    @functools.wraps(story)
    def told(*arguments: P.args, **named: P.kwargs) -> None:
        with _with_hint(story.__doc__):
            story(*arguments, **named)

    return told


@contextlib.contextmanager
def _with_hint(docstring: str | None) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"\nHow to fix it:\n{inspect.cleandoc(docstring or '')}")
        raise


async def _bounded(story: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.timeout(SECONDS):
            await story
    except TimeoutError as error:
        raise AssertionError(f"It was not done after {SECONDS:g} seconds.") from error
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, f"Tasks are left running: {', '.join(left)}. Whatever a plugin starts ends in its __aexit__."
