"""Calling code that may raise anything, or never return: a stranger's plugin while it is imported, inspected and asked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from plugins.support.secrets import scrubbed

T = TypeVar("T")

SENTENCE = 300
"""Characters of a stranger's error that are worth showing."""


class PluginCallFailed(Exception):
    """A stranger's code raised; `str(error)` names what, on one line."""


class PluginCallTimedOut(PluginCallFailed):
    """A stranger's function has not returned in time, and nobody can stop it."""


_FLOORS = ("gateway", "plugins", "sessions")


def is_own_object(thing: object) -> bool:
    """Return True if an object's class is one of the project's own."""
    return is_our_class(type(thing))


def is_our_class(kind: type) -> bool:
    """Return True if a class is one of the project's own."""
    return kind.__module__.partition(".")[0] in _FLOORS


def reraise_cancellation(error: BaseException) -> None:
    """Raise `error` again if it is the cancellation of the running task.

    To be called first in each `except BaseException` around a third-party coroutine: whatever else such code raises
    (SystemExit, a CancelledError of its own, a subclass of BaseException) is a failure of the plugin, not of the gateway.
    A person's Ctrl-C does not come as an exception while a gateway runs; it is a signal to the event loop.
    """
    if isinstance(error, asyncio.CancelledError) and is_cancelling():
        raise error


def is_cancelling() -> bool:
    """Return True if the running task, if there is one, has been asked to end."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return False
    return task is not None and task.cancelling() > 0


def attempt(call: Callable[[], T]) -> T:
    """Return what `call` returns; StrangerFailed when it raises anything at all, `SystemExit` and KeyboardInterrupt too. A
    StrangerFailed that was raised further in stays as it is."""
    try:
        return call()
    except PluginCallFailed:
        raise
    except BaseException as error:
        raise call_failure(error) from error


def within(seconds: float, call: Callable[[], T], *, thread: str) -> T:
    """What `call` returns or raises, as `attempt` has it, from a thread of that name which keeps nobody waiting at the end.
    Blocks for so long at most, and raises Lost then. A person's Ctrl-C ends the waiting."""
    returned: list[T] = []
    failed: list[PluginCallFailed] = []

    def run() -> None:
        try:
            returned.append(attempt(call))
        except PluginCallFailed as error:
            failed.append(error)

    running = threading.Thread(target=run, name=thread, daemon=True)
    running.start()
    running.join(seconds)
    if failed:
        raise failed[0]
    if not returned:
        raise timed_out_after(seconds)
    return returned[0]


def timed_out_after(seconds: float) -> PluginCallTimedOut:
    """That something did not return in its time."""
    return PluginCallTimedOut(f"it did not return within {seconds:g} seconds")


def call_failure(error: BaseException) -> PluginCallFailed:
    """What a stranger's code raised, as a failure that names it."""
    words, name = error_text(error), type(error).__name__[:SENTENCE]
    return PluginCallFailed(f"{name}: {words}" if words else name)


def error_text(error: BaseException) -> str:
    """What an error says, on one line and not long; empty where it says nothing or cannot even do that."""
    try:
        text = scrubbed(str(error)[: 100 * SENTENCE])[: 10 * SENTENCE]
    except BaseException:
        return ""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())[:SENTENCE]
