"""Responses of server-sent events, written while the client reads them and ended when it is gone."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from aiohttp import web

from gateway.http.responses import HEADERS

KEEP_ALIVE_SECONDS = 10.0
"""Seconds of silence after which a comment is sent, since a proxy may close a silent connection. Until the stream begins,
a failure can still have a status of its own."""

UNREAD = 60.0
"""Seconds for which a client may leave a piece unread."""

ALIVE = b": one moment\n\n"
"""A comment in the stream, which clients ignore."""

GONE_SECONDS = 0.1
"""Interval of the checks whether a waiting client is still connected; aiohttp has no notification for one request."""

GONE = 499
"""The status that is counted for a client that disconnected; nobody receives it."""

T = TypeVar("T")


class ClientGone(Exception):
    """The client disconnected, or does not read."""


class EventStream:
    """A stream of events, which begins with the first one. `response` is None until then; `headers` are added to it."""

    def __init__(self, request: web.Request) -> None:
        self.response: web.StreamResponse | None = None
        self.headers: Mapping[str, str] = {}
        self._request = request
        self._writing = asyncio.Lock()
        self._written = asyncio.Event()
        self._ended = False

    async def begin(self) -> None:
        """Send the headers: later failures are sent in the stream. Raises ClientGone."""
        async with self._open():
            pass

    async def write(self, data: bytes, *, last: bool = False) -> None:
        """Send events; after the `last` ones nothing is sent.

        Raises:
            ClientGone: The client disconnected or does not read.
        """
        async with self._open() as response:
            if not self._ended:
                self._ended = last
                await response.write(data)
                if last:
                    await response.write_eof()
        self._written.set()

    async def while_connected(self, work: Coroutine[Any, Any, T]) -> T:
        """Run `work`, which writes the events, until it ends or the client disconnects, which cancels it.

        Raises:
            ClientGone: The client disconnected.
        """
        alive = asyncio.create_task(self._keep_alive())
        try:
            return await while_connected(self._request, work)
        finally:
            alive.cancel()
            await asyncio.wait([alive])

    async def _keep_alive(self) -> None:
        """Send a comment after each silence, until cancelled or the client is gone."""
        with suppress(ClientGone):
            while not self._ended:
                self._written.clear()
                try:
                    async with asyncio.timeout(KEEP_ALIVE_SECONDS):
                        await self._written.wait()
                except TimeoutError:
                    await self.write(ALIVE)

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[web.StreamResponse]:
        """Provide the begun stream to one writer at a time.

        Raises:
            ClientGone: The client disconnected or does not read.
        """
        async with self._writing:
            try:
                async with asyncio.timeout(UNREAD):
                    if self.response is None:
                        headers = {**HEADERS, "Content-Type": "text/event-stream; charset=utf-8", **self.headers}
                        response = web.StreamResponse(headers=headers)
                        await response.prepare(self._request)
                        self.response = response
                    yield self.response
            except (ConnectionError, TimeoutError) as error:
                raise ClientGone from error


async def while_connected(request: web.Request, work: Coroutine[Any, Any, T]) -> T:
    """Run `work` until it ends or the client disconnects, which cancels it.

    Raises:
        ClientGone: The client disconnected.
    """
    working = asyncio.create_task(work)
    try:
        while not working.done():
            if request.transport is None or request.transport.is_closing():
                raise ClientGone
            await asyncio.wait([working], timeout=GONE_SECONDS)
    finally:
        working.cancel()
        await asyncio.wait([working])
    return working.result()


def client_gone(request: web.Request) -> web.Response:
    """Return the response for the log after a client has disconnected, without waiting for what it left unread."""
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=GONE)
