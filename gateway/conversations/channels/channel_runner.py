"""The channels that are open: one that fails or ends is opened again after a pause, and the others are not affected."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from datetime import datetime
from functools import partial
from typing import Literal, TypeAlias

import msgspec
import structlog

from gateway.conversations.channels.channel_instances import ChannelInstance
from gateway.support.printable import one_line
from plugins.api.channel import Channel, ChannelInbox, HandlesHooks
from plugins.api.context import PluginContext
from plugins.support.errors import PluginError, SettingsRefused
from plugins.support.untrusted import call_failure, error_text, reraise_cancellation
from sessions.store.leases import Leases, SoleLeases

log = structlog.get_logger("exuvia.channels")

PAUSES = (1.0, 5.0, 30.0, 60.0)
"""Seconds until a channel is opened again, by its consecutive failures; the last for all later ones."""

REFUSED_PAUSES = (30.0, 300.0, 900.0)
"""The same for a channel whose settings were refused, such as its password: services lock out whoever tries too often.
Changed settings are tried at once."""

STABLE_SECONDS = 60.0
"""Seconds of normal operation after which earlier failures no longer count."""

CLOSE_SECONDS = 5.0
"""Seconds that the channels have to close at shutdown."""

PROBLEM_CHARS = 300
"""Maximum characters of a problem that a channel reports."""


Connection: TypeAlias = Literal["opening", "connected", "disconnected", "closed", "elsewhere"]
"""`elsewhere` if another gateway of the same database has the channel open."""


class ChannelState(msgspec.Struct, frozen=True, kw_only=True):
    """The connection of a channel `since` a time. `problem` says why it is disconnected, as a sentence, or closed, without a
    full stop."""

    connection: Connection
    since: datetime
    problem: str = ""


class ChannelRunner:
    """Runs all channels.

    Args:
        context: Returns the context of one.
        now: Returns the current time in UTC.
        leases: One gateway at a time has a channel open.
    """

    def __init__(
        self,
        context: Callable[[ChannelInstance], PluginContext],
        now: Callable[[], datetime],
        leases: Leases | None = None,
    ) -> None:
        self._context = context
        self._now = now
        self._leases = leases or SoleLeases()
        self._wanted: dict[str, ChannelInstance] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._inbox: Callable[[str], ChannelInbox] | None = None
        """Set while `run` runs."""
        self._changing = asyncio.Lock()
        self._open: dict[str, Channel] = {}
        self._states: dict[str, ChannelState] = {}
        self._keepers: dict[str, asyncio.Task[None] | None] = {}
        """The task that keeps each channel open while this gateway has its lease."""

    def states(self) -> Mapping[str, ChannelState]:
        """Return the state of each channel by its name."""
        return self._states

    def kind(self, name: str) -> str:
        """Return the kind of a channel."""
        return self._wanted[name].kind.name

    def opened(self, name: str) -> Channel | None:
        """Return an open channel; None while it is closed."""
        return self._open.get(name)

    def hooked(self, name: str) -> tuple[HandlesHooks, ChannelInbox] | None:
        """Return an open channel and an inbox for the requests that it handles; None while it is closed.

        Raises:
            LookupError: No channel of this name handles requests.
        """
        if not hasattr(self._wanted[name].kind, "handle"):
            raise LookupError(name)
        channel = self._open.get(name)
        return (channel, self._inbox(name)) if self._inbox and isinstance(channel, HandlesHooks) else None

    def holder(self, name: str) -> str:
        """Return the gateway of the cluster that has a channel open, as far as it is known; "" if it is not."""
        return self._leases.holder(f"channel/{name}")

    def problems(self) -> list[str]:
        """Return a sentence for each channel that is closed or not connected."""
        return [problem for name, state in self._states.items() if (problem := _problem(name, state))]

    def report(self, name: str, problem: str) -> None:
        """Note what an open channel reported of its connection, see `ChannelInbox.report`."""
        problem = one_line(problem, PROBLEM_CHARS)
        if name not in self._open or problem == self._states[name].problem:
            return
        if problem:
            self._note(name, "disconnected", problem)
            log.warning("channel_disconnected", channel=name, reason=problem)
        else:
            self._note(name, "connected")
            log.info("channel_connected", channel=name)

    def _note(self, name: str, connection: Connection, problem: str = "") -> None:
        """Set the state of a channel; the time stays as long as it is not connected."""
        before = self._states.get(name)
        down = ("disconnected", "closed")
        stays = before is not None and before.connection in down and connection in down
        since = before.since if stays and before is not None else self._now()
        self._states[name] = ChannelState(connection=connection, since=since, problem=problem)

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
                        keep_open = partial(self._keep_open, channel, inbox(name))
                        if hasattr(channel.kind, "handle"):  # its requests arrive at any gateway
                            self._note(name, "opening")
                            self._tasks[name] = asyncio.create_task(keep_open())
                            continue
                        lease = f"channel/{name}"
                        self._note(name, "opening" if self._leases.holds(lease) else "elsewhere")
                        self._tasks[name] = asyncio.create_task(self._leases.hold(lease, keep_open))

    async def _close(self, names: Collection[str]) -> None:
        tasks = {name: task for name in names if (task := self._tasks.pop(name, None)) is not None}
        for name, task in tasks.items():
            self._keepers.pop(name, None)
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks.values(), timeout=CLOSE_SECONDS)
            if late:
                log.error("channels_not_closed", channels=[name for name, task in tasks.items() if task in late])
        for name in names:
            self._states.pop(name, None)

    async def _keep_open(self, channel: ChannelInstance, inbox: ChannelInbox) -> None:
        name = channel.name
        self._keepers[name] = asyncio.current_task()
        try:
            await self._reopen(channel, inbox)
        finally:
            if self._is_current(name):
                self._note(name, "elsewhere")

    async def _reopen(self, channel: ChannelInstance, inbox: ChannelInbox) -> None:
        loop, failures, name = asyncio.get_running_loop(), 0, channel.name
        self._note(name, "opening")
        while True:
            began = loop.time()
            pauses: tuple[float, ...] = PAUSES
            try:
                await self._listen(channel, inbox)
                why = "it stopped listening"
            except BaseException as error:
                reraise_cancellation(error)
                pauses = REFUSED_PAUSES if isinstance(error, SettingsRefused) else PAUSES
                why = (isinstance(error, PluginError) and error_text(error)) or str(call_failure(error))
            failures = 0 if loop.time() - began > STABLE_SECONDS else failures
            if self._is_current(name):
                self._note(name, "closed", why)
            log.error("channel_closed", channel=name, reason=why)
            await asyncio.sleep(pauses[min(failures, len(pauses) - 1)])
            failures += 1

    async def _listen(self, channel: ChannelInstance, inbox: ChannelInbox) -> None:
        name = channel.name
        async with channel.kind(self._context(channel)) as opened:
            self._open[name] = opened
            if self._is_current(name):
                self._note(name, "connected")
            log.info("channel_open", channel=name)
            try:
                await opened.run(inbox)
            finally:
                if self._open.get(name) is opened:
                    del self._open[name]

    def _is_current(self, name: str) -> bool:
        """Return False in the task of a channel that did not close in time."""
        return self._keepers.get(name) is asyncio.current_task()


def _problem(name: str, state: ChannelState) -> str:
    """Return the problem of a channel as a sentence; "" if there is none."""
    match state.connection:
        case "closed":
            return f"The channel {name!r} is closed and will be opened again: {state.problem.rstrip('.')}."
        case "disconnected":
            return f"The channel {name!r} is not connected: {state.problem}"
        case "opening" | "connected" | "elsewhere":
            return ""
