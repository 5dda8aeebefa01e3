"""The channels that are open: one that fails or ends is opened again after a pause, and the others are not affected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping

import structlog

from gateway.conversations.channels.channel_instances import ChannelInstance
from gateway.support.printable import one_line
from plugins.api.channel import Channel, ChannelInbox
from plugins.api.context import PluginContext
from plugins.support.errors import PluginError
from plugins.support.untrusted import call_failure, error_text, reraise_cancellation

log = structlog.get_logger("exuvia.channels")

PAUSES = (1.0, 5.0, 30.0, 60.0)
"""Seconds until a channel is opened again, by its consecutive failures; the last for all later ones."""

STABLE_SECONDS = 60.0
"""Seconds of normal operation after which earlier failures no longer count."""

CLOSE_SECONDS = 5.0
"""Seconds that the channels have to close at shutdown."""

PROBLEM_CHARS = 300
"""Maximum characters of a problem that a channel reports."""


class ChannelRunner:
    """Runs all channels. `context` returns the context of one."""

    def __init__(self, context: Callable[[ChannelInstance], PluginContext]) -> None:
        self._context = context
        self._wanted: dict[str, ChannelInstance] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._inbox: Callable[[str], ChannelInbox] | None = None
        """Set while `run` runs."""
        self._changing = asyncio.Lock()
        self._open: dict[str, Channel] = {}
        self._closed: dict[str, str] = {}
        """The channels that wait to be opened again, each with the reason."""
        self._disconnected: dict[str, str] = {}
        """The open channels that reported a problem."""

    def opened(self, name: str) -> Channel | None:
        """Return an open channel; None while it is closed."""
        return self._open.get(name)

    def problems(self) -> list[str]:
        """Return a sentence for each channel that is closed or not connected."""
        return [
            *(
                f"The channel {name!r} is closed and will be opened again: {why.rstrip('.')}."
                for name, why in self._closed.items()
            ),
            *(f"The channel {name!r} is not connected: {problem}" for name, problem in self._disconnected.items()),
        ]

    def report(self, name: str, problem: str) -> None:
        """Note what an open channel reported of its connection, see `ChannelInbox.report`."""
        problem = one_line(problem, PROBLEM_CHARS)
        if name not in self._open or problem == self._disconnected.get(name, ""):
            return
        if problem:
            self._disconnected[name] = problem
            log.warning("channel_disconnected", channel=name, reason=problem)
        else:
            del self._disconnected[name]
            log.info("channel_connected", channel=name)

    async def run(self, inbox: Callable[[str], ChannelInbox]) -> None:
        """Keep all channels open until cancelled, then close them.

        Args:
            inbox: Returns the inbox to which a channel hands its messages, by the channel's name.
        """
        self._inbox = inbox
        try:
            await self.reconfigure(self._wanted)
            await asyncio.Event().wait()
        finally:
            self._inbox = None
            await self._close(list(self._tasks))

    async def reconfigure(self, wanted: Mapping[str, ChannelInstance]) -> None:
        """Close the channels that are not wanted any more or changed, and open the new ones, if the runner runs."""
        async with self._changing:
            await self._close([name for name, channel in self._wanted.items() if wanted.get(name) != channel])
            self._wanted = dict(wanted)
            if (inbox := self._inbox) is not None:
                for name, channel in self._wanted.items():
                    if name not in self._tasks:
                        self._tasks[name] = asyncio.create_task(self._keep_open(channel, inbox(name)))

    async def _close(self, names: Collection[str]) -> None:
        tasks = {name: task for name in names if (task := self._tasks.pop(name, None)) is not None}
        for task in tasks.values():
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks.values(), timeout=CLOSE_SECONDS)
            if late:
                log.error("channels_not_closed", channels=[name for name, task in tasks.items() if task in late])
        for name in names:
            self._closed.pop(name, None)

    async def _keep_open(self, channel: ChannelInstance, inbox: ChannelInbox) -> None:
        loop, failures, name = asyncio.get_running_loop(), 0, channel.name
        while True:
            began = loop.time()
            try:
                await self._listen(channel, inbox)
                why = "it stopped listening"
            except BaseException as error:
                reraise_cancellation(error)
                why = (isinstance(error, PluginError) and error_text(error)) or str(call_failure(error))
            failures = 0 if loop.time() - began > STABLE_SECONDS else failures
            self._closed[name] = why
            log.error("channel_closed", channel=name, reason=why)
            await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
            failures += 1

    async def _listen(self, channel: ChannelInstance, inbox: ChannelInbox) -> None:
        name = channel.name
        async with channel.kind(self._context(channel)) as opened:
            self._open[name] = opened
            self._closed.pop(name, None)
            log.info("channel_open", channel=name)
            try:
                await opened.run(inbox)
            finally:
                if self._open.get(name) is opened:
                    del self._open[name]
                    self._disconnected.pop(name, None)
