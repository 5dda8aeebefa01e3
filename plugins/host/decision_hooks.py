"""Asking plugins to decide something inside a turn: one by one, a stranger's in a thread that may be lost.

Whatever a plugin does, nobody else is kept from being asked, and nothing raises. One that keeps failing is let be.
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
"""How long a stranger's decision may take."""


class DecisionOutcome(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What was made of one plugin's answer, None where there is none; and how it failed, if it did."""

    value: T | None = None
    failure: PluginFailed | None = None


class Decision:
    """One hook that decides, and everybody who implements it; `seconds` is how long a stranger may take."""

    def __init__(self, implementations: Implementations, *, seconds: float = SECONDS) -> None:
        self._implementations = implementations
        self._seconds = seconds

    def implementations(self) -> tuple[Implementation, ...]:
        """Whom to ask now, in order."""
        return self._implementations.active()

    async def ask(
        self, asked: Implementation, given: Mapping[str, object], check: Callable[[object], tuple[T, str]]
    ) -> DecisionOutcome[T]:
        """What one of `implementations` decides. `given` holds the arguments by name; `check` says what is to be made of the
        answer and what is wrong with it (empty if nothing), as the end of a sentence, or raises StrangerFailed. Both run in
        the thread."""

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
    """What the call returns, from a thread of that name which keeps nobody waiting at the end; Lost when it takes longer."""
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
    """Make the call, and return what puts its outcome into a future."""
    try:
        value = call()
    except BaseException as odd:  # a stranger's KeyboardInterrupt is nobody at the terminal
        failed = odd if isinstance(odd, PluginCallFailed) else PluginCallFailed(type(odd).__name__)
        return lambda result: result.set_exception(failed)
    return lambda result: result.set_result(value)
