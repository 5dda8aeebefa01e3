"""Events that are handled one after the other for each channel, and at the same time for different ones."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

import structlog

from plugins.api.channel import MessageRejected, TryLater
from plugins.channels.discord.discord_api import Refused
from plugins.channels.discord.discord_progress import Pending, Progress
from plugins.support.errors import PluginError

LATER_SECONDS = (1.0, 5.0, 30.0)
"""Seconds before an event is handled again that the gateway could not take; the last one repeats."""

WAITING = 2000
"""Events that wait to be handled, at most; then no further ones are read."""

Work = Callable[[], Awaitable[None]]

log = structlog.get_logger("exuvia.channels")


class Lanes:
    """The events that are being handled, in the tasks of a group."""

    def __init__(self, progress: Progress, tasks: asyncio.TaskGroup) -> None:
        self._progress = progress
        self._tasks = tasks
        self._lanes: dict[str, deque[tuple[Work, Pending]]] = {}
        self._waiting = 0
        self._room = asyncio.Event()

    def enqueue(self, channel: str, work: Work, message: str = "") -> None:
        """Have the event that arrived last handled after those of the same channel that came before.

        Args:
            channel: The channel's id.
            work: Handles it. Repeated after a `TryLater`, a `MessageRejected` with `later` and other passing errors.
            message: The id of its message, if it is a new one.
        """
        self._waiting += 1
        entry = work, self._progress.begin(message)
        if (lane := self._lanes.get(channel)) is not None:
            lane.append(entry)
        else:
            self._lanes[channel] = deque([entry])
            self._tasks.create_task(self._work_off(channel))

    async def until_room(self) -> None:
        """Wait while too many events are being handled."""
        while self._waiting >= WAITING:
            self._room.clear()
            await self._room.wait()

    async def _work_off(self, channel: str) -> None:
        lane = self._lanes[channel]
        while lane:
            work, pending = lane[0]
            await _until_done(work)
            lane.popleft()
            self._progress.finish(pending)
            self._waiting -= 1
            self._room.set()
        del self._lanes[channel]


async def _until_done(work: Work) -> None:
    """Do some work until the gateway and Discord let it be done."""
    attempt = 0
    while True:
        try:
            return await work()
        except PluginError as error:
            if isinstance(error, Refused) or (isinstance(error, MessageRejected) and not error.later):
                log.warning("discord_event_dropped", reason=str(error))
                return None
            pause = error.after if isinstance(error, TryLater) else LATER_SECONDS[min(attempt, len(LATER_SECONDS) - 1)]
        attempt += 1
        await asyncio.sleep(pause)
