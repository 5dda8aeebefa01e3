"""Receiving: sync requests, the events of each room in order, and the place up to which everything is durable.

The place that is kept (`since`) follows only when all messages of a response, and of those before it, were accepted. A room
whose messages have to wait does not hold the others: requests go on, and after a restart they begin at the kept place again.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import structlog

from plugins.api.channel import MessageRejected
from plugins.channels.matrix.login import ENDED
from plugins.channels.matrix.matrix_api import MatrixClient, MatrixError
from plugins.channels.matrix.timeline import FIRST_SYNC_FILTER, SYNC_FILTER, Timeline
from plugins.support.errors import ProviderError
from plugins.support.state_file import StateFile
from plugins.support.untrusted import error_text, may_pass

T = TypeVar("T")

MOST_WAITING = 1000
"""Events that wait to be accepted before further sync requests wait, too."""

KEEP_SECONDS = 6 * 3600.0
"""Seconds after which the place is kept although nothing has happened: on a busy server it moves with each response."""

PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)
"""Seconds before another attempt, by the failures so far; the last one repeats."""

log = structlog.get_logger("exuvia.channels")

Event = dict[str, Any]


class _Response:
    """A sync response. `left` counts the rooms whose events are not all accepted."""

    def __init__(self, place: str, left: int, *, is_empty: bool) -> None:
        self.place = place
        self.left = left
        self.is_empty = is_empty


class Receiver:
    """Receives the events of all rooms.

    Args:
        client: The client.
        file: The file with the place.
        user: Returns the id of our own account.
        process: Called with each response before its rooms are read and before the next request, for what concerns no single
            room. Returns events that were kept from earlier and can be handled now, by their rooms.
        handle: Called with the room and the event, for one event of a room at a time. If it raises `MessageRejected` with
            `later`, an error of the connection, or one of this machine that may pass, it is called again after a pause.
        report: Called with a sentence when the server cannot be reached, and with "" when it can.
        renew: Called when the access token has ended.
    """

    def __init__(
        self,
        client: MatrixClient,
        file: StateFile,
        *,
        user: Callable[[], str],
        process: Callable[[dict[str, Any]], Awaitable[list[tuple[str, Event]]]],
        handle: Callable[[str, Event], Awaitable[None]],
        report: Callable[[str], None],
        renew: Callable[[MatrixError], Awaitable[None]],
    ) -> None:
        self._client = client
        self._file = file
        self._user = user
        self._process = process
        self._handle = handle
        self._report = report
        self._renew = renew
        self._place = ""
        self._responses: deque[_Response] = deque()
        self._rooms: dict[str, deque[tuple[_Response | None, Timeline]]] = {}
        self._waiting = 0
        self._accepted = asyncio.Event()
        self._room_done = asyncio.Event()

    async def open(self) -> dict[str, Any] | None:
        """Find the place from which to receive: the kept one, or else now, which is then kept.

        Returns:
            The first response of a new account, which may contain invitations.
        """
        kept = await self._file.load()
        if kept.get("user") == self._user() and isinstance(since := kept.get("since"), str):
            self._place = since
            return None
        response = await self._client.sync("", FIRST_SYNC_FILTER, wait=False)
        self._place = str(response.get("next_batch", ""))
        await self._keep(self._place)
        return response

    async def _keep(self, place: str) -> None:
        await self._file.save({"since": place, "user": self._user()})

    async def run(self) -> None:
        """Receive until cancelled."""
        failures, is_first = 0, True
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_place())
            while True:
                try:
                    # The first request and those after a failure are answered at once: then the connection works.
                    response = await self._client.sync(self._place, SYNC_FILTER, wait=not failures and not is_first)
                    is_first = False
                    kept = await self._process(response)
                except (MatrixError, ProviderError) as error:
                    failures += 1
                    await self._after_failure(error, failures)
                    continue
                if failures:
                    failures = 0
                    self._report("")
                self._take(response, kept, tasks)
                while self._waiting > MOST_WAITING:
                    self._room_done.clear()
                    await self._room_done.wait()

    async def _after_failure(self, error: MatrixError | ProviderError, failures: int) -> None:
        if isinstance(error, MatrixError) and error.code in ENDED:
            try:
                await self._renew(error)
                return
            except (MatrixError, ProviderError) as refused:
                error = refused
        if failures > 1:  # a single request that broke off is no news
            self._report(f"{str(error).rstrip('.')}; the channel tries again.")
        pause = error.after if isinstance(error, MatrixError) and error.after is not None else None
        await asyncio.sleep(PAUSES[min(failures, len(PAUSES)) - 1] if pause is None else pause)

    # --- the rooms of a response ------------------------------------------------------------------------------------------

    def _take(self, response: dict[str, Any], kept: list[tuple[str, Event]], tasks: asyncio.TaskGroup) -> None:
        """Queue the events of a response, and those that were kept from earlier."""
        place, rooms = str(response.get("next_batch", "")), response.get("rooms")
        joined = rooms.get("join") if isinstance(rooms, dict) else None
        timelines = (
            [Timeline(room, content, self._place) for room, content in joined.items()] if isinstance(joined, dict) else []
        )
        timelines = [each for each in timelines if each.events]
        parts = [part for key in ("rooms", "to_device") if isinstance(part := response.get(key), dict)]
        taken = _Response(place, len(timelines), is_empty=not any(any(part.values()) for part in parts))
        self._responses.append(taken)
        for room, event in kept:
            self._queue(None, Timeline(room, {"timeline": {"events": [event]}}, ""), tasks)
        for timeline in timelines:
            self._queue(taken, timeline, tasks)
        self._place = place
        self._accepted.set()

    def _queue(self, response: _Response | None, timeline: Timeline, tasks: asyncio.TaskGroup) -> None:
        self._waiting += len(timeline.events)
        if (queue := self._rooms.get(timeline.room)) is not None:
            queue.append((response, timeline))
            return
        self._rooms[timeline.room] = deque([(response, timeline)])
        tasks.create_task(self._read_room(timeline.room))

    async def _read_room(self, room: str) -> None:
        queue = self._rooms[room]
        while queue:
            response, timeline = queue[0]
            waiting = len(timeline.events)
            for event in await self._patiently(room, partial(timeline.complete, self._client, self._user())) or []:
                if event["sender"] != self._user():
                    await self._patiently(room, partial(self._handle, room, event))
            if response is not None:
                response.left -= 1
            queue.popleft()
            self._waiting -= waiting
            self._room_done.set()
            self._accepted.set()
        del self._rooms[room]

    async def _patiently(self, room: str, step: Callable[[], Awaitable[T]]) -> T | None:
        """Return the result of a step, which is repeated while the gateway or the server asks for patience, or this machine
        lacks memory, threads or disk space. None, and a line in the log, if it fails for good."""
        failures = 0
        while True:
            try:
                return await step()
            except MessageRejected as error:
                if not error.later:
                    return None
                pause = None
            except (MatrixError, ProviderError) as error:
                temporary = error.is_temporary or error.code in ENDED if isinstance(error, MatrixError) else error.retryable
                if not temporary:
                    log.warning("matrix_event_not_read", room=room, reason=str(error))
                    return None
                pause = error.after if isinstance(error, MatrixError) else None
            except Exception as error:
                if not (
                    may_pass(error) or isinstance(error, sqlite3.Error)
                ):  # of a content that nobody thought of: the events after it count, too
                    log.error("matrix_event_not_read", room=room, reason=error_text(error), exc_info=True)
                    return None
                if not failures:
                    log.warning("matrix_event_waits", room=room, reason=error_text(error) or type(error).__name__)
                pause = None
            failures += 1
            await asyncio.sleep(PAUSES[min(failures, len(PAUSES)) - 1] if pause is None else pause)

    async def _keep_place(self) -> None:
        """Keep the place of the last response that was accepted with all before it, if anything has happened since."""
        loop, kept = asyncio.get_running_loop(), self._place
        place, keep_at = kept, loop.time() + KEEP_SECONDS
        while True:
            await self._accepted.wait()
            self._accepted.clear()
            has_news = False
            while self._responses and not self._responses[0].left:
                response = self._responses.popleft()
                place, has_news = response.place, has_news or not response.is_empty
            if place != kept and (has_news or loop.time() >= keep_at):
                await self._keep(place)
                kept, keep_at = place, loop.time() + KEEP_SECONDS
