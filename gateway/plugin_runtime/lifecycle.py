"""Notifications to plugins: the gateway starts, the gateway stops, a turn ended."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import structlog

from gateway.support.errors import error_fields
from plugins.api.context import PluginContext
from plugins.api.hookspecs import EndedTurn
from plugins.host.hooks import Hooks
from sessions.events.errors import SessionsError
from sessions.events.events import PluginFailed, Recorded, TurnEnded
from sessions.store.recorder import Recorder

WAITING = 1000
"""Turn notifications that may be queued. Further ones are dropped: the plugins are slower than the gateway."""

STOPPING_SECONDS = 10.0
"""Seconds that all plugins together have to handle the shutdown."""

log = structlog.get_logger("exuvia.plugins")


class Lifecycle:
    """Notifies the plugins. `context` returns the context of a plugin by its name and settings."""

    def __init__(self, hooks: Hooks, context: Callable[[str, Any], PluginContext]) -> None:
        self._hooks = hooks
        self._context = context
        self._ended: asyncio.Queue[tuple[Recorder, EndedTurn]] = asyncio.Queue(WAITING)
        self._dropped = 0

    async def started(self, *, only: str = "") -> None:
        """Notify all plugins, or one, that the gateway is about to serve."""
        self._log(await self._hooks.gateway_started(lambda name: self._context(name, self._hooks.settings(name)), only=only))

    async def stopping(self) -> None:
        """Notify all plugins that the gateway stops."""
        try:
            async with asyncio.timeout(STOPPING_SECONDS):
                self._log(await self._hooks.gateway_stopping())
        except TimeoutError:
            log.error("plugins_do_not_stop", seconds=STOPPING_SECONDS)

    def on_event(self, recorder: Recorder, recorded: Recorded) -> None:
        """Queue a notification if a session's event ends a turn."""
        event = recorded.event
        if not isinstance(event, TurnEnded) or not self._hooks.is_implemented("turn_ended"):
            return
        transcript = recorder.transcript
        ended = EndedTurn(
            session=transcript.session,
            person=transcript.person,
            key=transcript.key,
            turn=recorded.turn or 0,
            outcome=event.outcome,
            millis=event.millis,
            code=event.error.code if event.error else "",
            sentence=event.error.sentence if event.error else "",
        )
        if self._ended.full():
            self._dropped += 1
            if self._dropped == 1:
                log.error("turns_not_told", reason=f"{WAITING} notifications are queued; the plugins are too slow")
        else:
            self._ended.put_nowait((recorder, ended))

    async def run(self) -> None:
        """Send the queued notifications until cancelled."""
        while True:
            recorder, ended = await self._ended.get()
            try:
                for failure in await self._hooks.turn_ended(ended):
                    with suppress(SessionsError):  # the conversation may be gone by now
                        recorder.append(failure)
                    self._log([failure])
            except Exception as error:  # the plugins are told of the other turns
                log.error("turn_not_told", session=ended.session, turn=ended.turn, **error_fields(error))

    def _log(self, failures: Iterable[PluginFailed]) -> None:
        for failure in failures:
            log.error("plugin_failed", plugin=failure.plugin, hook=failure.hook, reason=failure.sentence, off=failure.off)
