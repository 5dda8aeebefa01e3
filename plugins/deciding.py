"""Asking plugins to decide something inside a turn: one by one, a stranger's in a thread that may be lost.

Whatever a plugin does, nobody else is kept from being asked, and nothing raises. One that keeps failing is let be.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import msgspec

from plugins.strangers import StrangerFailed, attempt, words_of
from sessions.events import PluginFailed

T = TypeVar("T")

SECONDS = 2.0
"""How long a stranger's decision may take."""

IN_A_ROW = 3
"""Failures, one after the other, after which a hook is switched off."""


class Implementation(msgspec.Struct, frozen=True, kw_only=True):
    """One plugin's function, with the names of the arguments that it wants, in order. `ours`: a built-in, which is called
    without a thread of its own."""

    plugin: str
    function: Callable[..., Any]
    wants: tuple[str, ...]
    ours: bool


class Decided(msgspec.Struct, Generic[T], frozen=True, kw_only=True):
    """What was made of one plugin's answer, None where there is none; and how it failed, if it did."""

    value: T | None = None
    failure: PluginFailed | None = None


class Decision:
    """Everybody who implements one hook. `switched_off` is told who is not asked any more, and why, as the end of a
    sentence; `seconds` is how long a stranger may take."""

    def __init__(
        self,
        hook: str,
        implementations: Sequence[Implementation],
        *,
        switched_off: Callable[[str, str], None],
        seconds: float = SECONDS,
    ) -> None:
        self._hook = hook
        self._implementations = list(implementations)
        self._switched_off = switched_off
        self._seconds = seconds
        self._failures: dict[str, int] = {}

    def implementations(self) -> tuple[Implementation, ...]:
        """Whom to ask now, in order."""
        return tuple(self._implementations)

    async def ask(
        self, asked: Implementation, given: Mapping[str, object], check: Callable[[object], tuple[T, str]]
    ) -> Decided[T]:
        """What one of `implementations` decides. `given` holds the arguments by name; `check` says what is to be made of the
        answer and what is wrong with it (empty if nothing), as the end of a sentence, or raises StrangerFailed. Both run in
        the thread."""

        def call() -> tuple[T, str]:
            return attempt(lambda: check(asked.function(*(given[name] for name in asked.wants))))

        try:
            value, complaint = call() if asked.ours else await in_thread(call, self._seconds)
        except StrangerFailed as failed:
            return Decided(
                failure=self._failed(asked, words_of(failed) or "it failed without a word", off=isinstance(failed, Lost))
            )
        if complaint:
            return Decided(value=value, failure=self._failed(asked, words_of(StrangerFailed(complaint))))
        self._failures.pop(asked.plugin, None)
        return Decided(value=value)

    def _failed(self, asked: Implementation, sentence: str, *, off: bool = False) -> PluginFailed:
        count = self._failures[asked.plugin] = self._failures.get(asked.plugin, 0) + 1
        off = off or count >= IN_A_ROW
        if off and asked in self._implementations:  # another session may have been told so a moment ago
            self._implementations.remove(asked)
            self._switched_off(asked.plugin, sentence)
        return PluginFailed(plugin=asked.plugin, hook=self._hook, sentence=sentence, off=off)


class Lost(StrangerFailed):
    """A stranger's function has not returned in time, and nobody can stop it."""


async def in_thread(call: Callable[[], T], seconds: float) -> T:
    """What the call returns, from a thread that keeps nobody waiting at the end; Lost when it takes longer."""
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

    threading.Thread(target=run, name="decision", daemon=True).start()
    try:
        async with asyncio.timeout(seconds):
            return await result
    except TimeoutError:
        raise Lost(f"it did not return within {seconds:g} seconds") from None


def _settled_by(call: Callable[[], T]) -> Callable[[asyncio.Future[T]], None]:
    """Make the call, and return what puts its outcome into a future."""
    try:
        value = call()
    except BaseException as odd:  # a stranger's KeyboardInterrupt is nobody at the terminal
        failed = odd if isinstance(odd, StrangerFailed) else StrangerFailed(type(odd).__name__)
        return lambda result: result.set_exception(failed)
    return lambda result: result.set_result(value)
