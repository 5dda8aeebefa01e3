"""The greeting: how a websocket says who is there, and what it may cost before that is known."""

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
"""A connection must say who it is within this time."""

UNAUTHORIZED = 4401
"""Close code for a wrong or missing token."""

OVERHEAD = 1024
"""Bytes of frame headers and pings that a greeting may have around it."""


class Handshake(msgspec.Struct, frozen=True):
    """Who is there, and with which program, where it says so."""

    admission: Admission
    client: str | None


class HandshakeRefused(Exception):
    """The connection is to be closed with this code; the text is the reason."""

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(reason)
        self.code = code


class HandshakeLimit:
    """Stands between a connection and its frame reader until `lift`, and lets no more through than one greeting: a frame
    that never ends must not fill memory first. `exceed` is called once, when there is more."""

    def __init__(self, request: web.Request, exceed: Callable[[], None]) -> None:
        # aiohttp has no other place where a limit can be raised later: its reader keeps the one that it was made with.
        self._protocol: Any = request.protocol
        self._reader = self._protocol._payload_parser
        self._protocol._payload_parser = self
        self._exceed = exceed
        self._left = GREETING_LIMIT + OVERHEAD

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """Pass bytes on to the reader, or drop them once they are too many."""
        if self._left < 0:
            return False, b""
        self._left -= len(data)
        if self._left < 0:
            self._exceed()
            return False, b""
        fed: tuple[bool, bytes] = self._reader.feed_data(data)
        return fed

    def feed_eof(self) -> None:
        """The connection ends."""
        self._reader.feed_eof()

    def lift(self) -> None:
        """It is known who is there: read on without this bound."""
        if self._protocol._payload_parser is self:
            self._protocol._payload_parser = self._reader


async def greeted(socket: web.WebSocketResponse, access: Access, address: str) -> Handshake:
    """Whom the token of the first frame, which came from an IP address, names. Uninvited if it names nobody, or
    does not come in time."""
    try:
        async with asyncio.timeout(HELLO_SECONDS):
            message = await socket.receive()
    except TimeoutError:
        raise HandshakeRefused(UNAUTHORIZED, "no hello with a token came in time") from None
    if message.type is not WSMsgType.TEXT:
        raise HandshakeRefused(UNAUTHORIZED, "the first frame must be a hello with a token")
    if len(message.data.encode("utf-8", "surrogatepass")) > GREETING_LIMIT:
        raise HandshakeRefused(WSCloseCode.MESSAGE_TOO_BIG, "the first frame is too large")
    try:
        hello = frames.parse(message.data)
    except InvalidFrame:
        hello = None
    if not isinstance(hello, frames.Hello) or not hello.token:
        raise HandshakeRefused(UNAUTHORIZED, "the first frame must be a hello with this gateway's token")
    try:
        admission = access.admit(hello.token, address)
    except NotAuthorized as error:
        raise HandshakeRefused(UNAUTHORIZED, str(error)) from error
    if hello.protocol != PROTOCOL:
        raise HandshakeRefused(WSCloseCode.PROTOCOL_ERROR, f"protocol {PROTOCOL} is spoken here")
    return Handshake(admission, hello.client)


def not_admitted(error: NotAuthorized) -> web.Response:
    """The answer to a request whose token names nobody; `Retry-After` says when the next one is looked at."""
    response = refusal(401, "unauthorized", str(error))
    response.headers["WWW-Authenticate"] = "Bearer"
    if error.retry_after is not None:
        response.headers["Retry-After"] = str(error.retry_after)
    return response
