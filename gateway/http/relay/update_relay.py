"""The updates of a person's list of conversations that happen on the other gateways.

As long as a client follows its list here, this gateway follows the list of its person on each of the others. They tell what
happens in the conversations that they have, and nothing that they were told themselves.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable

import aiohttp
import msgspec
import structlog

from gateway.conversations.routing.session_updates import SessionUpdate, SessionUpdates
from gateway.http.relay.links import Links
from gateway.protocol import frames
from gateway.support.errors import OwnedElsewhere, sentence_of
from sessions.store.cluster import Cluster

LOOK_SECONDS = 2.0
"""Seconds between two looks for gateways that have come, or whose connection has ended."""

_FOLLOW = '{"type":"sessions","id":"updates","follow":true}'

log = structlog.get_logger("exuvia.relay")


class _Frame(msgspec.Struct, frozen=True):
    type: str


_type_of = msgspec.json.Decoder(_Frame).decode
_decode = msgspec.json.Decoder(SessionUpdate).decode


class UpdateRelay:
    """Follows the lists of the people who follow theirs here, and tells `updates` what happens elsewhere."""

    def __init__(self, links: Links, cluster: Cluster, updates: SessionUpdates) -> None:
        self._links = links
        self._cluster = cluster
        self._updates = updates
        self._people = Counter[str]()
        """How many clients follow the list of a person."""
        self._news = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._connected: dict[tuple[str, str], asyncio.Task[None]] = {}
        """The connections by person and gateway."""

    def follow(self, person: str) -> Callable[[], None]:
        """Follow a person's list on the other gateways, for one more client. Returns a function that ends it."""
        self._people[person] += 1
        self._news.set()
        if self._keeper is None:
            self._keeper = asyncio.create_task(self._keep())
        return lambda: self._leave(person)

    async def close(self) -> None:
        """End all connections."""
        tasks = [*self._connected.values(), *([self._keeper] if self._keeper is not None else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _leave(self, person: str) -> None:
        self._people[person] -= 1
        self._people = +self._people
        self._news.set()

    async def _keep(self) -> None:
        """Keep a connection for each person to each of the other gateways, as long as there are people."""
        while True:
            self._news.clear()
            try:
                await self._connect()
            except Exception as error:  # the next look tries again
                log.debug("updates_not_relayed", reason=sentence_of(error))
            try:
                async with asyncio.timeout(LOOK_SECONDS if self._people else None):
                    await self._news.wait()
            except TimeoutError:
                continue

    async def _connect(self) -> None:
        others = {}
        if self._people:
            rows = await asyncio.to_thread(self._cluster.rows)
            others = {row.id: row.url for row in rows if row.url and row.id != self._cluster.id}
        wanted = {(person, gateway) for person in self._people for gateway in others}
        for place in self._connected.keys() - wanted:
            self._connected.pop(place).cancel()
        for person, gateway in wanted:
            task = self._connected.get((person, gateway))
            if task is None or task.done():
                owner = OwnedElsewhere(gateway, others[gateway])
                self._connected[person, gateway] = asyncio.create_task(self._relay(person, owner))

    async def _relay(self, person: str, other: OwnedElsewhere) -> None:
        """Follow a person's list on another gateway until the connection ends."""
        try:
            async with self._links.websocket(person, other) as socket:
                await socket.send_str(frames.frame("hello", protocol=frames.PROTOCOL, client="updates").decode())
                await socket.send_str(_FOLLOW)
                while (message := await socket.receive()).type is aiohttp.WSMsgType.TEXT:
                    if _type_of(message.data).type == "session_update":
                        self._updates.tell(person, _decode(message.data))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            log.debug("gateway_unreachable", gateway=other.gateway, reason=str(error))
