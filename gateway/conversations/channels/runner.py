"""Runs the channels of plugins: one that fails or ends is opened again after a pause; the others are not affected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping

import structlog

from plugins.api.channel import Channel, ChannelInbox
from plugins.api.context import PluginContext
from plugins.support.untrusted import error_text, reraise_cancellation

PAUSES = (1.0, 5.0, 30.0, 60.0)
"""Seconds until a channel is opened again, by its consecutive failures; the last for all later ones."""

WELL = 60.0
"""Seconds of normal operation after which earlier failures no longer count."""

CLOSE_SECONDS = 5.0
"""Seconds that the channels have to close at shutdown."""

log = structlog.get_logger("exuvia.channels")


class ChannelRunner:
    """Runs all channels. `context` returns the context of a channel by its name."""

    def __init__(self, kinds: Mapping[str, type[Channel]], context: Callable[[str], PluginContext]) -> None:
        self._kinds = kinds
        self._context = context
        self._open: dict[str, Channel] = {}
        self._problems: dict[str, str] = {}

    def opened(self, name: str) -> Channel | None:
        """Return an open channel; None while it is closed."""
        return self._open.get(name)

    def problems(self) -> list[str]:
        """Return a sentence for each closed channel."""
        return [f"The channel {name!r} is closed and will be opened again: {why}." for name, why in self._problems.items()]

    async def run(self, inbox: Callable[[str], ChannelInbox]) -> None:
        """Keep all channels open until cancelled, then close them.

        Args:
            inbox: Returns the inbox to which a channel hands its messages, by the channel's name.
        """
        tasks = [asyncio.create_task(self._keep(name, kind, inbox(name))) for name, kind in self._kinds.items()]
        if not tasks:
            return
        try:
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            _, late = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
            if late:
                log.error("channels_not_closed", channels=list(self._open))

    async def _keep(self, name: str, kind: type[Channel], inbox: ChannelInbox) -> None:
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            try:
                await self._listen(name, kind, inbox)
                why = "it stopped listening"
            except BaseException as error:
                reraise_cancellation(error)
                why = f"{type(error).__name__}: {error_text(error)}".removesuffix(": ")
            failures = 0 if loop.time() - began > WELL else failures
            self._problems[name] = why
            log.error("channel_closed", channel=name, reason=why)
            await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
            failures += 1

    async def _listen(self, name: str, kind: type[Channel], inbox: ChannelInbox) -> None:
        async with kind(self._context(name)) as channel:
            self._open[name] = channel
            self._problems.pop(name, None)
            log.info("channel_open", channel=name)
            try:
                await channel.run(inbox)
            finally:
                del self._open[name]
