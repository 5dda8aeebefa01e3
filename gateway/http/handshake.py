"""Authentication of a websocket by its first frame, and the limits before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import msgspec
from aiohttp import WSCloseCode, WSMsgType, web

from gateway.auth.access import Access, NotAuthorized
from gateway.auth.people import Admission
from gateway.http.responses import refusal
from gateway.protocol import frames
from gateway.protocol.frames import GREETING_LIMIT, PROTOCOL, InvalidFrame

HELLO_SECONDS = 10.0
"""Seconds within which a connection must authenticate."""

UNAUTHORIZED = 4401
"""Close code for a wrong or missing token."""

OVERHEAD = 1024
"""Bytes of frame headers and pings that may accompany the first frame."""


class Handshake(msgspec.Struct, frozen=True):
    """The authenticated person, and the name of the client program if it sent one."""

    admission: Admission
    client: str | None


class HandshakeRefused(Exception):
    """The connection is to be closed with this code; the text is the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class HandshakeLimit:
    """A limit between a connection and its frame reader until `lift`: no more than one `hello` passes.

    A frame that never ends must not fill the memory. `exceed` is called once, when the limit is exceeded.
    """

    def __init__(self, request: web.Request, exceed: Callable[[], None]) -> None:
        # aiohttp offers no other way to raise a limit later: its reader keeps the one that it was created with.
        self._protocol: Any = request.protocol
        self._reader = self._protocol._payload_parser
        self._protocol._payload_parser = self
        self._exceed = exceed
        self._left = GREETING_LIMIT + OVERHEAD

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Pass bytes on to the reader, or drop them once the limit is exceeded."""
        if self._left < 0:
            return False, b""
        self._left -= len(data)
        if self._left < 0:
            self._exceed()
            return False, b""
        fed: tuple[bool, bytes] = self._reader.feed_data(data)
        return fed

    def feed_eof(self) -> None:
        """Pass the end of the connection on to the reader."""
        self._reader.feed_eof()

    def lift(self) -> None:
        """Remove the limit: the client has authenticated."""
        if self._protocol._payload_parser is self:
            self._protocol._payload_parser = self._reader


async def receive_hello(socket: web.WebSocketResponse, access: Access, address: str) -> Handshake:
    """Receive the first frame and return whom its token authenticates; `address` is the client's IP address.

    Raises:
        HandshakeRefused: The frame is not a valid `hello`, came too late, or its token is invalid.
    """
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            message = await socket.receive()
    except TimeoutError:
        raise HandshakeRefused(UNAUTHORIZED, "no hello with a token within 10 s") from None
    if message.type is not WSMsgType.TEXT:
        raise HandshakeRefused(UNAUTHORIZED, "the first frame must be a hello with a token")
    if len(message.data.encode("utf-8", "surrogatepass")) > GREETING_LIMIT:
        raise HandshakeRefused(WSCloseCode.MESSAGE_TOO_BIG, "the first frame is too large")
    try:
        hello = frames.parse(message.data)
    except InvalidFrame:
        hello = None
    if not isinstance(hello, frames.Hello) or not hello.token:
        raise HandshakeRefused(UNAUTHORIZED, "the first frame must be a hello with a token")
    try:
        admission = access.admit(hello.token, address)
    except NotAuthorized as error:
        raise HandshakeRefused(UNAUTHORIZED, str(error)) from error
    if hello.protocol != PROTOCOL:
        raise HandshakeRefused(WSCloseCode.PROTOCOL_ERROR, f"only protocol {PROTOCOL} is supported")
    return Handshake(admission, hello.client)


def not_admitted(error: NotAuthorized) -> web.Response:
    """Return the response to a request without valid credentials; `Retry-After` says when to try again."""
    response = refusal(401, "unauthorized", str(error))
    response.headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response
