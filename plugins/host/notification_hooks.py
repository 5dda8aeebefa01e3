"""Calling notification hooks one by one, each with a timeout. A failure does not affect other plugins."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import nullcontext

import structlog

from plugins.host.implementations import Implementation, Implementations
from plugins.support import task_leaks
from plugins.support.untrusted import PluginCallFailed, call_failure
from sessions.events.events import PluginFailed

SECONDS = 5.0
"""The timeout for one plugin."""

STOP_SECONDS = 1.0
"""The time that a cancelled hook has to end."""

log = structlog.get_logger("exuvia.plugins")


class Notification:
    """A notification hook and its implementations. `lasting`: tasks that are started there may keep running."""

    def __init__(self, implementations: Implementations, *, seconds: float = SECONDS, lasting: bool = False) -> None:
        self._implementations = implementations
        self._seconds = seconds
        self._lasting = lasting
        self._stopping: set[asyncio.Task[PluginCallFailed | None]] = set()

    async def notify(self, given: Callable[[str], Mapping[str, object]], *, only: str = "") -> tuple[PluginFailed, ...]:
        """Call all implementations, or that of one plugin, and return the failures.

        `given` returns the arguments for a plugin by name. Raises only if the caller is cancelled.
        """
        failures = []
        for told in self._implementations.active():
            if only not in ("", told.plugin):
                continue
            if (failed := await self._told(told, given(told.plugin))) is None:
                self._implementations.record_success(told)
            else:
                failures.append(self._implementations.record_failure(told, failed))
        return tuple(failures)

    async def _told(self, told: Implementation, given: Mapping[str, object]) -> PluginCallFailed | None:
        running = asyncio.create_task(self._run(told, given))
        try:
            await asyncio.wait([running], timeout=self._seconds)
        except asyncio.CancelledError:
            await self._stop(running, told.plugin)
            raise
        if running.done():
            return running.result()
        await self._stop(running, told.plugin)
        return PluginCallFailed(f"it did not return within {self._seconds:g} seconds")

    async def _run(self, told: Implementation, given: Mapping[str, object]) -> PluginCallFailed | None:
        def left(sentence: str) -> None:
            self._implementations.record_failure(told, PluginCallFailed(sentence))
            log.error("plugin_failed", plugin=told.plugin, reason=sentence)

        with task_leaks.cancelling_leaks(told.plugin, left) if not (self._lasting or told.ours) else nullcontext():
            return await _run(told, given)

    async def _stop(self, running: asyncio.Task[PluginCallFailed | None], plugin: str) -> None:
        """Cancel a hook. One that does not end is abandoned."""
        self._stopping.add(running)
        running.add_done_callback(self._stopping.discard)
        running.cancel()
        await asyncio.wait([running], timeout=STOP_SECONDS)
        if not running.done():
            log.error("notice_does_not_stop", plugin=plugin)


async def _run(told: Implementation, given: Mapping[str, object]) -> PluginCallFailed | None:
    """Call a hook and return its failure. If the task raised it, SystemExit would end the process."""
    try:
        await told.function(*(given[name] for name in told.wants))
    except BaseException as error:  # what is cancelled ends here too, and nobody asks how
        return call_failure(error)
    return None
