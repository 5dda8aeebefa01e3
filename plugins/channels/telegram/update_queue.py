"""Updates in the order of their chats, confirmed to the Bot API only after all that came before them are handled.

The offset of a poll confirms everything before it. Chats do not wait for each other: while some updates are unfinished the
poller asks from the first of them on, and passes over what it knows. Nothing is kept on disk: what is not confirmed comes
again after a restart, and has the same ids.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import NoReturn

from plugins.channels.telegram.bot_updates import Update

POLL_SECONDS = 50
"""Seconds that the server holds a poll open while nothing happens."""

ALBUM_SECONDS = 0.7
"""Seconds without another picture after which an album is complete: each of its pictures is an update of its own."""

ALBUM_FILES = 10
"""The largest number of pictures in an album."""

PAUSES = (0.2, 0.5, 1.0, 2.0, 5.0)
"""Seconds between polls while updates are unfinished, longer as long as nothing new comes."""


class UpdateQueue:
    """Polls for updates and passes them on: those of a chat one after the other, an album at once.

    `poll` takes the offset and the seconds to wait and returns updates; `handle` takes an update, or those of an album.
    """

    def __init__(
        self, poll: Callable[[int, int], Awaitable[Sequence[Update]]], handle: Callable[[list[Update]], Awaitable[None]]
    ) -> None:
        self._poll = poll
        self._handle = handle
        self._finished: dict[int, bool] = {}
        """Whether each unconfirmed update is handled, by its id."""
        self._lanes: dict[int, list[Update]] = {}
        self._changed = asyncio.Event()
        self._pause = 0

    async def run(self) -> NoReturn:
        """Poll until cancelled, or until polling or handling fails."""
        try:
            async with asyncio.TaskGroup() as tasks:
                while True:
                    await self._round(tasks)
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None

    async def _round(self, tasks: asyncio.TaskGroup) -> None:
        unfinished = [update for update, finished in self._finished.items() if not finished]
        # Once its updates are confirmed no offset is sent: after a quiet week the ids begin anew, perhaps lower.
        offset = min(unfinished) if unfinished else max(self._finished, default=-1) + 1
        updates = await self._poll(offset, 0 if unfinished else POLL_SECONDS)
        for confirmed in [update for update in self._finished if update < offset]:
            del self._finished[confirmed]
        new = [update for update in updates if update.update_id not in self._finished]
        for update in new:
            self._finished[update.update_id] = False
            if (lane := self._lanes.get(update.chat)) is None:
                lane = self._lanes[update.chat] = []
                tasks.create_task(self._work(update.chat))
            lane.append(update)
        self._changed.set()
        await self._wait(new=bool(new))

    async def _wait(self, *, new: bool) -> None:
        """Wait until everything is handled, or until it is time to look for more."""
        self._pause = 0 if new else min(self._pause + 1, len(PAUSES) - 1)
        try:
            async with asyncio.timeout(PAUSES[self._pause]):
                while not all(self._finished.values()):
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            return

    async def _work(self, chat: int) -> None:
        """Handle the updates of a chat until there are no more."""
        lane = self._lanes[chat]
        while lane:
            updates = await self._gather(lane)
            await self._handle(updates)
            for update in updates:
                lane.remove(update)
                self._finished[update.update_id] = True
            self._changed.set()
        del self._lanes[chat]

    async def _gather(self, lane: list[Update]) -> list[Update]:
        """Return the first update of a chat, with the rest of its album."""
        first = lane[0]
        if not (album := _album(first)):
            return [first]
        while True:
            found = [update for update in lane if _album(update) == album]
            if len(found) >= ALBUM_FILES:
                return found
            await asyncio.sleep(ALBUM_SECONDS)
            if len(found) == len([update for update in lane if _album(update) == album]):
                return found


def _album(update: Update) -> str:
    return update.message.media_group_id if update.message is not None else ""
