"""httpx requests and responses on aiohttp's client. Imported with the first request: a start does not need the libraries.

The package httpx-aiohttp does the same in 540 lines; here a streamed request costs a fifth less.
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from functools import lru_cache

import aiohttp
import httpx
from aiohttp.abc import AbstractStreamWriter

from plugins.http.multipart import FileForm

CONNECTIONS = 256
"""The maximum number of connections in a pool."""

parse_url = lru_cache(64)(httpx.URL)
"""Parses a URL, which would otherwise be half of the cost of an `httpx.Request`. Raises httpx.InvalidURL."""


class Whole(httpx.ByteStream):
    """A small body, which is written at once. `sent` is True once it has been written to the connection."""

    sent = False


class Pieces(httpx.AsyncByteStream):
    """A large body, in pieces of `size` bytes, or of a form with a file in its own. `sent` is True once the last one has
    been written to the connection."""

    sent = False

    def __init__(self, body: bytes | FileForm, size: int) -> None:
        self._body = body
        self._size = size

    async def __aiter__(self) -> AsyncIterator[bytes]:
        if isinstance(self._body, bytes):
            for start in range(0, len(self._body), self._size):
                yield self._body[start : start + self._size]
        else:
            async for piece in self._body:
                yield piece
        self.sent = True


class _WholePayload(aiohttp.BytesPayload):
    """The payload of a `Whole`."""

    def __init__(self, body: Whole) -> None:
        super().__init__(b"".join(body))
        self._body = body

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        """Write the body, and note that it was sent."""
        await super().write_with_length(writer, content_length)
        self._body.sent = True


class AiohttpStream(httpx.AsyncByteStream):
    """The body of a response. What has arrived of `content` can be read without waiting, and thus without a timer."""

    def __init__(self, response: aiohttp.ClientResponse) -> None:
        self._response = response
        self.content = response.content

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self.content.iter_any():
            yield chunk

    async def aclose(self) -> None:
        """Return the connection to the pool if the body was read to its end; else close it."""
        self._response.release()
        await self._response.wait_for_close()


class AiohttpTransport(httpx.AsyncBaseTransport):
    """A connection pool. It raises aiohttp's errors, and ValueError for a request that HTTP does not allow."""

    def __init__(self, trust: ssl.SSLContext, proxy: httpx.Proxy | None) -> None:
        connector = aiohttp.TCPConnector(limit=CONNECTIONS, keepalive_timeout=60, ssl=trust)
        self._session = aiohttp.ClientSession(
            connector=connector, cookie_jar=aiohttp.DummyCookieJar(), auto_decompress=False
        )
        self._proxy = None if proxy is None else str(proxy.url)
        self._proxy_auth = None if proxy is None or proxy.auth is None else aiohttp.BasicAuth(*proxy.auth)

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        """Send a request and return the response when its headers have arrived."""
        response = await self._session.request(
            request.method,
            str(request.url),
            headers=request.headers.multi_items(),
            data=_WholePayload(request.stream) if isinstance(request.stream, Whole) else request.stream,
            allow_redirects=False,
            timeout=aiohttp.ClientTimeout(sock_connect=request.extensions["timeout"]["connect"]),
            proxy=self._proxy,
            proxy_auth=self._proxy_auth,
        )
        return httpx.Response(response.status, headers=response.raw_headers, stream=AiohttpStream(response))

    async def websocket(self, url: str, heartbeat: float) -> aiohttp.ClientWebSocketResponse:
        """Open a websocket connection."""
        return await self._session.ws_connect(
            url,
            heartbeat=heartbeat,
            timeout=aiohttp.ClientWSTimeout(ws_close=2.0),
            proxy=self._proxy,
            proxy_auth=self._proxy_auth,
        )

    async def aclose(self) -> None:
        """Close all connections."""
        await self._session.close()
