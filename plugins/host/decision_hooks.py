"""Calling decision hooks during a turn, those of third-party plugins in a thread with a timeout.

Failures are returned, never raised, and do not affect other plugins. A plugin that keeps failing is disabled.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

import msgspec

from plugins.host.implementations import Implementation, Implementations
from plugins.support.untrusted import PluginCallFailed, PluginCallTimedOut, attempt, timed_out_after
from sessions.events.events import PluginFailed

T = TypeVar("T")

SECONDS = 2.0
"""The timeout for a third-party plugin's decision."""


class DecisionOutcome(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The validated result of one plugin's hook, or None, and its failure, if any."""

    value: T | None = None
    failure: PluginFailed | None = None


class Decision:
    """A decision hook and its implementations. `seconds` is the timeout for third-party plugins."""

    def __init__(self, implementations: Implementations, *, seconds: float = SECONDS) -> None:
        self._implementations = implementations
        self._seconds = seconds

    def implementations(self) -> tuple[Implementation, ...]:
        """Return the enabled implementations, in order."""
        return self._implementations.active()

    async def ask(
        self, asked: Implementation, given: Mapping[str, object], check: Callable[[object], tuple[T, str]]
    ) -> DecisionOutcome[T]:
        """Call one implementation.

        Args:
            asked: The implementation.
            given: The hook's arguments by name.
            check: Validates the result. Returns the value to use and what is wrong with it ("" if nothing), or raises
                `PluginCallFailed`. Runs in the same thread.
        """

        def call() -> tuple[T, str]:
            return attempt(lambda: check(asked.function(*(given[name] for name in asked.wants))))

        try:
            value, complaint = (
                call() if asked.ours else await run_in_thread(call, self._seconds, thread=f"plugin:{asked.plugin}")
            )
        except PluginCallFailed as failed:
            return DecisionOutcome(
                failure=self._implementations.record_failure(asked, failed, off=isinstance(failed, PluginCallTimedOut))
            )
        if complaint:
            return DecisionOutcome(
                value=value, failure=self._implementations.record_failure(asked, PluginCallFailed(complaint))
            )
        self._implementations.record_success(asked)
        return DecisionOutcome(value=value)


async def run_in_thread(call: Callable[[], T], seconds: float, *, thread: str) -> T:
    """Run a function in a daemon thread and return its result.

    Raises:
        PluginCallTimedOut: It did not return in time. The thread is abandoned.
    """
    loop = asyncio.get_running_loop()
    result: asyncio.Future[T] = loop.create_future()

    def settle(settled: Callable[[asyncio.Future[T]], None]) -> None:
        if not result.done():
            settled(result)

    def run() -> None:
        settled = _settled_by(call)
        try:
            loop.call_soon_threadsafe(settle, settled)
        except RuntimeError:
            return  # it comes after the end of the loop, and nobody listens

    threading.Thread(target=run, name=thread, daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            return await result
    except TimeoutError:
        raise timed_out_after(seconds) from None


def _settled_by(call: Callable[[], T]) -> Callable[[asyncio.Future[T]], None]:
    """Call the function and return a callback that sets its outcome on a future."""
    try:
        value = call()
    except BaseException as odd:  # a KeyboardInterrupt of third-party code is not a Ctrl-C
        failed = odd if isinstance(odd, PluginCallFailed) else PluginCallFailed(type(odd).__name__)
        return lambda result: result.set_exception(failed)
    return lambda result: result.set_result(value)
