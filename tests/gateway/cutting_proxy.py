"""A websocket proxy between a client and a gateway that drops connections: at any frame, or for a while."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

import aiohttp
from aiohttp import WSMsgType, web


class CuttingProxy:
    """A proxy for websocket frames. `cuts` are numbers of the gateway's frames, counted over all connections: instead of
    such a frame the client loses its connection, without a close frame. `upstream` may change."""

    def __init__(self, upstream: str, *, cuts: frozenset[int] = frozenset()) -> None:
        self.upstream = upstream
        self.cuts = cuts
        self.passed = 0
        self.connections = 0
        self.port = 0
        self._open: set[asyncio.Transport] = set()
        self._runner: web.AppRunner | None = None

    @property
    def url(self) -> str:
        """The address that clients connect to."""
        return f"ws://127.0.0.1:{self.port}/ws"

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.stop()

    async def start(self) -> None:
        """Listen, on the same port as before if there was one."""
        app = web.Application()
        app.router.add_get("/ws", self._enter)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.port).start()
        self.port = self._runner.addresses[0][1]

    async def stop(self) -> None:
        """Drop all connections and stop listening."""
        for cable in tuple(self._open):
            cable.abort()
        if self._runner is not None:
            await self._runner.cleanup()
            self._runner = None

    async def _enter(self, request: web.Request) -> web.WebSocketResponse:
        near = web.WebSocketResponse()
        await near.prepare(request)
        self.connections += 1
        cable = request.transport
        assert cable is not None
        self._open.add(cable)
        try:
            async with aiohttp.ClientSession() as http, http.ws_connect(f"{self.upstream}/ws", max_msg_size=0) as far:
                up = asyncio.create_task(_pass_on(near, far))
                try:
                    await self._pass_down(cable, near, far)
                finally:
                    up.cancel()
                    await asyncio.wait([up])
        except (aiohttp.ClientError, OSError):
            cable.abort()
        finally:
            self._open.discard(cable)
        return near

    async def _pass_down(
        self, cable: asyncio.Transport, near: web.WebSocketResponse, far: aiohttp.ClientWebSocketResponse
    ) -> None:
        async for message in far:
            if message.type is not WSMsgType.TEXT:
                continue
            self.passed += 1
            if self.passed in self.cuts:
                cable.abort()
                return
            await near.send_str(message.data)
        await near.close(code=far.close_code or 1001)


async def _pass_on(near: web.WebSocketResponse, far: aiohttp.ClientWebSocketResponse) -> None:
    async for message in near:
        if message.type is WSMsgType.TEXT:
            await far.send_str(message.data)
    await far.close()
