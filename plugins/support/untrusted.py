"""Calling third-party code, which may raise anything or never return."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import TypeVar

from plugins.support.secrets import scrubbed

T = TypeVar("T")

SENTENCE = 300
"""The maximum length of an error message in characters."""


class PluginCallFailed(Exception):
    """Third-party code raised an exception; `str(error)` names it on one line."""


class PluginCallTimedOut(PluginCallFailed):
    """A third-party function did not return in time and cannot be stopped."""


LAYERS = ("gateway", "plugins", "sessions")
"""The top-level packages of the project."""


def is_own_object(value: object) -> bool:
    """Return True if an object's class is one of the project's own."""
    return is_own_class(type(value))


def is_own_class(kind: type) -> bool:
    """Return True if a class is one of the project's own."""
    return kind.__module__.partition(".")[0] in LAYERS


def reraise_cancellation(error: BaseException) -> None:
    """Raise `error` again if it is the cancellation of the running task.

    Call it first in each `except BaseException` around a third-party coroutine: anything else that such code raises
    (SystemExit, a CancelledError of its own, a subclass of BaseException) is a failure of the plugin, not of the gateway.
    Ctrl-C is not raised as an exception while a gateway runs; the event loop handles the signal.
    """
    if isinstance(error, asyncio.CancelledError) and is_cancelling():
        raise error


def is_cancelling() -> bool:
    """Return True if the running task, if there is one, is being cancelled."""
    try:
        task = asyncio.current_task()
    except RuntimeError:  # no event loop runs in this thread
        return False
    return task is not None and task.cancelling() > 0


def may_pass(error: BaseException) -> bool:
    """Return True for an error of this machine that may pass: of the disk or the network, or for want of memory, threads or
    file descriptors."""
    return isinstance(error, OSError | MemoryError) or (
        isinstance(error, RuntimeError) and "can't start new thread" in str(error)
    )


def attempt(call: Callable[[], T]) -> T:
    """Return the result of a call.

    Raises:
        PluginCallFailed: It raised any exception, including `SystemExit` and `KeyboardInterrupt`.
    """
    try:
        return call()
    except PluginCallFailed:
        raise
    except BaseException as error:
        raise call_failure(error) from error


def within(seconds: float, call: Callable[[], T], *, thread: str) -> T:
    """Run a call in a daemon thread and return its result as `attempt` does. Blocks for at most `seconds`.

    Raises:
        PluginCallFailed: It raised any exception.
        PluginCallTimedOut: It did not return in time. The thread is abandoned.
    """
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
    """Return the error for a call that did not return in time."""
    return PluginCallTimedOut(f"it did not return within {seconds:g} seconds")


def call_failure(error: BaseException) -> PluginCallFailed:
    """Return an exception of third-party code as a `PluginCallFailed`."""
    words, name = error_text(error), type(error).__name__[:SENTENCE]
    return PluginCallFailed(f"{name}: {words}" if words else name)


def error_text(error: BaseException) -> str:
    """Return the message of an error on one line of limited length; "" if it has none or cannot produce it."""
    try:
        text = scrubbed(str(error)[: 100 * SENTENCE])[: 10 * SENTENCE]
    except BaseException:
        return ""
    printable = "".join(character if character.isprintable() else " " for character in text)
    return " ".join(printable.split())[:SENTENCE]
