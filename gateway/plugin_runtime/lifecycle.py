"""What plugins hear of the gateway's life: that it is about to serve, that it ends, and each turn that is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import structlog

from plugins.api.context import PluginContext
from plugins.api.hookspecs import EndedTurn
from plugins.host.hooks import Hooks
from sessions.events.errors import SessionsError
from sessions.events.events import PluginFailed, Recorded, TurnEnded
from sessions.store.recorder import Recorder

WAITING = 1000
"""Turns that are over and not told yet. Of more than that the plugins hear nothing: they are slower than the gateway."""

STOPPING_SECONDS = 10.0
"""So long all plugins together may take to hear that the gateway ends."""

log = structlog.get_logger("exuvia.plugins")


class Lifecycle:
    """Tells the plugins. `context` gives a plugin what it is opened with, by its name and its settings."""

    def __init__(self, hooks: Hooks, context: Callable[[str, Any], PluginContext]) -> None:
        self._hooks = hooks
        self._house = context
        self._ended: asyncio.Queue[tuple[Recorder, EndedTurn]] = asyncio.Queue(WAITING)
        self._dropped = 0

    async def started(self, *, only: str = "") -> None:
        """Tell all plugins, or one, that the gateway is about to serve."""
        self._log(await self._hooks.gateway_started(lambda name: self._house(name, self._hooks.settings(name)), only=only))

    async def stopping(self) -> None:
        """Tell them that it ends."""
        try:
            async with asyncio.timeout(STOPPING_SECONDS):
                self._log(await self._hooks.gateway_stopping())
        except TimeoutError:
            log.error("plugins_do_not_stop", seconds=STOPPING_SECONDS)

    def heard(self, recorder: Recorder, recorded: Recorded) -> None:
        """Take in an event of a session; a turn's end is told later."""
        event = recorded.event
        if not isinstance(event, TurnEnded) or not self._hooks.anybody("turn_ended"):
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
                log.error("turns_not_told", reason=f"{WAITING} turns wait already; the plugins that hear of them are slow")
        else:
            self._ended.put_nowait((recorder, ended))

    async def run(self) -> None:
        """Tell of the turns that ended, for ever."""
        while True:
            recorder, ended = await self._ended.get()
            for failure in await self._hooks.turn_ended(ended):
                with suppress(SessionsError):  # the conversation may be gone by now
                    recorder.append(failure)
                self._log([failure])

    def _log(self, failures: Iterable[PluginFailed]) -> None:
        for failure in failures:
            log.error("plugin_failed", plugin=failure.plugin, hook=failure.hook, reason=failure.sentence, off=failure.off)
