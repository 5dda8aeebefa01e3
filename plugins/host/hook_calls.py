"""Calling hooks one by one, each with a timeout: decisions of third-party plugins in a thread, notifications as tasks.

Failures are returned, never raised, and do not affect other plugins. A plugin that times out with a decision, or fails three
times in a row, is disabled.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from typing import Any, ClassVar, Generic, TypeVar

import msgspec
import structlog

from plugins.support import task_leaks
from plugins.support.untrusted import (
    PluginCallFailed,
    PluginCallTimedOut,
    attempt,
    call_failure,
    error_text,
    timed_out_after,
)
from sessions.events.events import PluginFailed

LASTING = frozenset({"gateway_started"})
"""The notification hooks whose tasks may keep running."""

MAX_FAILURES = 3
"""The number of consecutive failures after which an implementation is disabled."""


T = TypeVar("T")

DECISION_SECONDS = 2.0
"""The timeout in seconds for a third-party plugin's decision."""

NOTIFICATION_SECONDS = 5.0
"""The timeout in seconds for a plugin's notification hook."""

STOP_SECONDS = 1.0
"""Seconds that a cancelled hook has to end."""

log = structlog.get_logger("exuvia.plugins")


class Implementation(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin's function and the names of the parameters that it declares. `builtin` is True for a built-in plugin."""

    plugin: str
    function: Callable[..., Any]
    parameters: tuple[str, ...]
    builtin: bool


class HookCalls:
    """The implementations of one hook that are still enabled.

    Args:
        hook: The name of the hook.
        implementations: The implementations, in order.
        seconds: The timeout of a call.
        on_disabled: Called with the plugin and the reason, as the end of a sentence, when an implementation is disabled.
    """

    def __init__(
        self,
        hook: str,
        implementations: Iterable[Implementation],
        *,
        seconds: float,
        on_disabled: Callable[[str, str], None],
    ) -> None:
        self._hook = hook
        self._implementations = list(implementations)
        self._seconds = seconds
        self._on_disabled = on_disabled
        self._failures: dict[str, int] = {}

    def implementations(self) -> tuple[Implementation, ...]:
        """Return the enabled implementations, in order."""
        return tuple(self._implementations)

    def _record_success(self, called: Implementation) -> None:
        """Reset the count of consecutive failures."""
        self._failures.pop(called.plugin, None)

    def _record_failure(self, called: Implementation, error: PluginCallFailed, *, off: bool = False) -> PluginFailed:
        """Record a failure, disable the implementation after too many or if `off`, and return the event for the log."""
        sentence = error_text(error) or "it failed without a message"
        count = self._failures[called.plugin] = self._failures.get(called.plugin, 0) + 1
        off = off or count >= MAX_FAILURES
        if off and called in self._implementations:  # another session may have disabled it a moment ago
            self._implementations.remove(called)
            self._on_disabled(called.plugin, sentence)
        return PluginFailed(plugin=called.plugin, hook=self._hook, sentence=sentence, off=off)


class DecisionOutcome(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """The validated result of one plugin's hook, or None, and its failure, if any."""

    value: T | None = None
    failure: PluginFailed | None = None


class Decision(HookCalls):
    """A decision hook. Only third-party plugins have a timeout."""

    async def ask(
        self, called: Implementation, given: Mapping[str, object], check: Callable[[object], tuple[T, str]]
    ) -> DecisionOutcome[T]:
        """Call one implementation.

        Args:
            called: The implementation.
            given: The hook's arguments by name.
            check: Validates the result. Returns the value to use and what is wrong with it ("" if nothing), or raises
                `PluginCallFailed`. Runs in the same thread.
        """

        def call() -> tuple[T, str]:
            return attempt(lambda: check(called.function(*(given[name] for name in called.parameters))))

        try:
            value, complaint = (
                call() if called.builtin else await run_in_thread(call, self._seconds, thread=f"plugin:{called.plugin}")
            )
        except PluginCallFailed as failed:
            failure = self._record_failure(called, failed, off=isinstance(failed, PluginCallTimedOut))
            return DecisionOutcome(failure=failure)
        if complaint:
            return DecisionOutcome(value=value, failure=self._record_failure(called, PluginCallFailed(complaint)))
        self._record_success(called)
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
        settled = _outcome_setter(call)
        try:
            loop.call_soon_threadsafe(settle, settled)
        except RuntimeError:
            return  # the event loop has ended

    threading.Thread(target=run, name=thread, daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            return await result
    except TimeoutError:
        raise timed_out_after(seconds) from None


def _outcome_setter(call: Callable[[], T]) -> Callable[[asyncio.Future[T]], None]:
    """Call the function and return a callback that sets its outcome on a future."""
    try:
        value = call()
    except BaseException as odd:  # a KeyboardInterrupt raised by third-party code is not a Ctrl-C
        failed = odd if isinstance(odd, PluginCallFailed) else PluginCallFailed(type(odd).__name__)
        return lambda result: result.set_exception(failed)
    return lambda result: result.set_result(value)


class Notification(HookCalls):
    """A notification hook."""

    _stopping: ClassVar[set[asyncio.Task[PluginCallFailed | None]]] = set()
    """The cancelled hooks that have not ended yet, because the event loop refers to them only weakly."""

    async def notify(self, given: Callable[[str], Mapping[str, object]], *, only: str = "") -> tuple[PluginFailed, ...]:
        """Call all implementations, or that of one plugin, and return the failures.

        `given` returns the arguments for a plugin by name. Raises only if the caller is cancelled.
        """
        failures = []
        for called in self.implementations():
            if only not in ("", called.plugin):
                continue
            if (failed := await self._call(called, given(called.plugin))) is None:
                self._record_success(called)
            else:
                failures.append(self._record_failure(called, failed))
        return tuple(failures)

    async def _call(self, called: Implementation, given: Mapping[str, object]) -> PluginCallFailed | None:
        running = asyncio.create_task(self._run(called, given))
        try:
            await asyncio.wait([running], timeout=self._seconds)
        except asyncio.CancelledError:
            await self._stop(running, called.plugin)
            raise
        if running.done():
            return running.result()
        await self._stop(running, called.plugin)
        return PluginCallFailed(f"it did not return within {self._seconds:g} seconds")

    async def _run(self, called: Implementation, given: Mapping[str, object]) -> PluginCallFailed | None:
        def record_leak(sentence: str) -> None:
            self._record_failure(called, PluginCallFailed(sentence))
            log.error("plugin_failed", plugin=called.plugin, reason=sentence)

        with (
            task_leaks.cancelling_leaks(called.plugin, record_leak)
            if not (called.builtin or self._hook in LASTING)
            else nullcontext()
        ):
            return await _run(called, given)

    async def _stop(self, running: asyncio.Task[PluginCallFailed | None], plugin: str) -> None:
        """Cancel a hook. One that does not end is abandoned."""
        self._stopping.add(running)
        running.add_done_callback(self._stopping.discard)
        running.cancel()
        await asyncio.wait([running], timeout=STOP_SECONDS)
        if not running.done():
            log.error("notice_does_not_stop", plugin=plugin)


async def _run(called: Implementation, given: Mapping[str, object]) -> PluginCallFailed | None:
    """Call a hook and return its failure. It is not raised, because a SystemExit raised in a task would end the process."""
    try:
        await called.function(*(given[name] for name in called.parameters))
    except BaseException as error:  # a cancellation is reported like any other failure
        return call_failure(error)
    return None
