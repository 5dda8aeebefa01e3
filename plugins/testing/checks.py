"""The decorators `check` and `plain_check`, which turn a method into a test, and assertions that the kit shares."""

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
"""The timeout of a check."""

LONGEST = 0.5
"""The longest time in seconds that a plugin may block the event loop in a check."""

TRIES = 3
"""The number of attempts, since a busy machine may cause a delay too."""


async def assert_not_blocking(run: Callable[[], Awaitable[object]]) -> None:
    """Run something, and fail if it blocks the event loop in every attempt."""
    for _ in range(TRIES):
        longest = await _longest_pause(run)
        if longest < LONGEST:
            return
    raise AssertionError(f"It blocked the event loop for {longest:.1f} seconds.")


async def _longest_pause(run: Callable[[], Awaitable[object]]) -> float:
    """Return the longest time in seconds for which the event loop was blocked."""
    longest, last = 0.0, time.monotonic()

    async def watch() -> None:
        nonlocal longest, last
        while True:
            await asyncio.sleep(0.01)
            longest, last = max(longest, time.monotonic() - last), time.monotonic()

    watching = asyncio.create_task(watch())
    try:
        await run()
        longest = max(longest, time.monotonic() - last)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    return longest


SENTENCE = 500
"""The maximum length of an error message."""


async def error_of(asked: Awaitable[Any], *meant: type[ProviderError], secret: str = "") -> ProviderError:
    """Return the exception that an awaitable raises.

    Fail if it is not one of `meant`, or if its message is unsuitable for people or contains `secret`.
    """
    error = await _raised(asked)
    names = " or ".join(kind.__name__ for kind in meant)
    assert type(error) in meant, f"{type(error).__name__} was raised ({error}), but {names} was expected."
    check_sentence(str(error), secret)
    return error


async def _raised(asked: Awaitable[Any]) -> ProviderError:
    try:
        answer = await asked
    except ProviderError as error:
        return error
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} was raised instead of a ProviderError: {error}") from error
    raise AssertionError(f"It answered {str(answer)[:100]!r} instead of raising an error.")


def check_sentence(sentence: str, secret: str = "") -> None:
    """Fail if a message is not suitable for people."""
    assert sentence.strip(), "The error message is empty."
    assert sentence.isprintable(), f"The error is not one line of text: {sentence!r}"
    assert len(sentence) <= SENTENCE, f"The error has {len(sentence)} characters: {sentence[:100]!r}…"
    assert not secret or secret not in sentence, "The error shows the key."


def check(method: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """Turn an async method into a test with its own event loop, a timeout and a check for tasks left running.

    On failure its docstring, which explains how to fix the problem, is added to the exception.
    """

    @functools.wraps(method)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        with _with_hint(method.__doc__):
            asyncio.run(_bounded(method(*arguments, **named)))

    return run


def plain_check(method: Callable[P, None]) -> Callable[P, None]:
    """Turn a blocking method into a test. On failure its docstring is added to the exception."""

    @functools.wraps(method)
    def run(*arguments: P.args, **named: P.kwargs) -> None:
        with _with_hint(method.__doc__):
            method(*arguments, **named)

    return run


@contextlib.contextmanager
def _with_hint(docstring: str | None) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        error.add_note(f"\nHow to fix it:\n{inspect.cleandoc(docstring or '')}")
        raise


async def _bounded(running: Coroutine[Any, Any, None]) -> None:
    try:
        async with asyncio.timeout(SECONDS):
            await running
    except TimeoutError as error:
        raise AssertionError(f"It was not done after {SECONDS:g} seconds.") from error
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not left, f"Tasks are left running: {', '.join(left)}. Whatever a plugin starts ends in its __aexit__."
