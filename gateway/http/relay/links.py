"""Connections to the other gateways of a cluster."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus

import aiohttp
import msgspec

from gateway.auth.relay_tokens import RELAYED, RelayTokens
from gateway.support.errors import OwnedElsewhere
from sessions.store.catalog import Name
from sessions.store.cluster import Cluster

CONNECT_SECONDS = 2.0
"""Seconds within which another gateway must accept a connection."""

CURRENT_SECONDS = 1.0
"""Seconds since the last contact with the database within which no other gateway can have declared this one dead: that takes
2.5 s since the last beat, and the confirmation of a beat takes up to 1.5 s."""

HEARTBEAT_SECONDS = 4.0
"""Seconds between two pings: a gateway that stands still does not close its connections."""


class Links:
    """Connections to the other gateways of `cluster`, each for one person. `tokens` authenticate them."""

    def __init__(self, cluster: Cluster, tokens: RelayTokens) -> None:
        self._cluster = cluster
        self._tokens = tokens
        self._http: aiohttp.ClientSession | None = None

    async def close(self) -> None:
        """Close all connections."""
        if self._http is not None:
            await self._http.close()

    @property
    def is_current(self) -> bool:
        """False if another gateway may have conversations that this one still seems to have."""
        return self._cluster.silent_seconds <= CURRENT_SECONDS

    @asynccontextmanager
    async def while_there(self, gateway: str) -> AsyncIterator[None]:
        """Raise TimeoutError in the block once another gateway is dead or has left: one that stands still answers nothing,
        and does not close its connections either."""
        async with asyncio.timeout(None) as limit:
            watch = asyncio.create_task(self._end_when_gone(gateway, limit))
            try:
                yield
            finally:
                watch.cancel()

    async def _end_when_gone(self, gateway: str, limit: asyncio.Timeout) -> None:
        await self._cluster.until_gone(gateway)
        limit.reschedule(asyncio.get_running_loop().time())

    async def obtain(self, name: Name, owner: OwnedElsewhere) -> bool:
        """Ask the owner of a conversation to hand it over to this gateway; return False if it does not."""
        body = msgspec.json.encode({"key": name[1], "to": self._cluster.id})
        try:
            asked = self.request(name[0], owner, "POST", "/cluster/handover", headers={}, body=body)
            async with self.while_there(owner.gateway), asked as answer:
                return answer.status == HTTPStatus.OK
        except (aiohttp.ClientError, TimeoutError):
            return False

    async def offer(self, name: Name, gateway: str, url: str) -> bool:
        """Have another gateway take a conversation over from this one; return False if it does not."""
        body = msgspec.json.encode({"key": name[1], "to": gateway})
        taker = OwnedElsewhere(gateway, url)
        try:
            asked = self.request(name[0], taker, "POST", "/cluster/take", headers={}, body=body)
            async with self.while_there(gateway), asked as answer:
                return answer.status == HTTPStatus.OK
        except (aiohttp.ClientError, TimeoutError):
            return False

    def websocket(self, person: str, owner: OwnedElsewhere) -> aiohttp.client._WSRequestContextManager:
        """Return a websocket connection to the owner of a conversation, to enter. Entering raises aiohttp.ClientError,
        TimeoutError."""
        return self._session().ws_connect(
            f"{owner.url}/ws",
            headers=self._headers(person, owner),
            max_msg_size=0,
            heartbeat=HEARTBEAT_SECONDS,
            timeout=aiohttp.ClientWSTimeout(ws_close=0.1),
        )

    def request(
        self, person: str, owner: OwnedElsewhere, method: str, path: str, *, headers: dict[str, str], body: bytes
    ) -> aiohttp.client._RequestContextManager:
        """Return a request to the owner of a conversation, to enter. Entering raises aiohttp.ClientError, TimeoutError."""
        given = {**headers, **self._headers(person, owner)}
        return self._session().request(method, owner.url + path, headers=given, data=body, allow_redirects=False)

    def _headers(self, person: str, owner: OwnedElsewhere) -> dict[str, str]:
        return {RELAYED: self._tokens.issue(person, owner.gateway)}

    def _session(self) -> aiohttp.ClientSession:
        if self._http is None:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS)
            self._http = aiohttp.ClientSession(
                timeout=timeout, auto_decompress=False, connector=aiohttp.TCPConnector(limit=0)
            )
        return self._http
