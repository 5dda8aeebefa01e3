"""The websocket server: its connections, their authentication, and the limits before it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from aiohttp import WSCloseCode, WSMsgType, web

from gateway.auth.access import Access, NotAuthorized
from gateway.auth.people import Admission
from gateway.http.concurrency import Quota
from gateway.http.responses import not_admitted, refusal
from gateway.http.websocket_connection import UNAUTHORIZED, Connection, ConnectionServices
from gateway.protocol import frames
from gateway.protocol.frames import FRAME_LIMIT, GREETING_LIMIT, PROTOCOL, InvalidFrame
from gateway.support.resource_limits import most_websockets

UNAUTHENTICATED = 64
"""The limit of connections that have not authenticated yet; further ones get a 503. One address may have half of them."""

LAST_SECONDS = 1.0
"""Seconds for which a stopping gateway continues to send to its clients."""

HARD_LIMIT = 4 * FRAME_LIMIT
"""The size in bytes above which a frame closes the connection (1009). Between the limit and this it gets `too_large`."""

HELLO_SECONDS = 10.0
"""Seconds within which a connection must authenticate."""

OVERHEAD = 1024
"""Bytes of frame headers and pings that may accompany the first frame."""


class WebsocketServer:
    """The websocket server at `/ws`."""

    def __init__(self, services: ConnectionServices) -> None:
        self._services = services
        self._access = services.access
        self._connections: set[Connection] = set()
        self._most = most_websockets()
        self._of_person = Quota(self._most // 2, self._most)
        self._handshakes = Quota(UNAUTHENTICATED // 2, UNAUTHENTICATED)
        self._draining = False
        self._access.watch(self._close_unauthorized)

    @property
    def connections(self) -> int:
        """The number of connected clients."""
        return len(self._connections)

    async def accept(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection until it ends."""
        if {"token", "access_token"} & request.query.keys():
            return web.Response(status=401, text="A token is not accepted in the URL, which ends up in logs.\n")
        relayed = self._access.is_relayed(request)
        if relayed:
            admission: Admission | None = self._access.caller(request)
        elif (authorization := request.headers.get("Authorization")) is not None:
            try:
                admission = self._access.admit_by_header(authorization, request.remote or "")
            except NotAuthorized as error:
                return not_admitted(error)
        else:
            admission = self._access.caller_by_cookie(request)
        if self._draining and not relayed:
            return refusal(503, "busy", "The gateway is stopping; another one takes over.")
        if admission is None and self._handshakes.exceeded(request.remote or ""):
            return refusal(503, "busy", "Too many connections have not authenticated yet; try again shortly.")
        if self.connections >= self._most:
            return refusal(503, "busy", "Too many connections are open; try again shortly.")
        socket = web.WebSocketResponse(max_msg_size=HARD_LIMIT, heartbeat=30.0, compress=False, timeout=5.0)
        await socket.prepare(request)
        connection = Connection(socket, self._services, relayed=relayed)
        self._connections.add(connection)
        try:
            if admission is None:
                admission = await self._handshake(request, socket, connection)
            if admission is not None:
                self._services.unauthenticated.authenticated(request.remote or "", request.protocol)
                await (connection.serve(admission) if relayed else self._serve(connection, admission))
        finally:
            self._connections.discard(connection)
        return socket

    async def _serve(self, connection: Connection, admission: Admission) -> None:
        """Serve a person's connection, unless they have half of all connections already."""
        person = admission.person.id
        if self._of_person.exceeded(person):
            await connection.close(WSCloseCode.TRY_AGAIN_LATER, "you have too many open connections; close one")
            return
        with self._of_person.unit(person), self._access.connected(admission):
            await connection.serve(admission)

    async def _handshake(
        self, request: web.Request, socket: web.WebSocketResponse, connection: Connection
    ) -> Admission | None:
        """Authenticate by the first frame; None after the connection was closed."""
        limit = HandshakeLimit(request, connection.refuse_hello)
        with self._handshakes.unit(request.remote or ""):
            try:
                admission, client = await receive_hello(socket, self._access, request.remote or "")
                limit.lift()
            except HandshakeRefused as error:
                await connection.close(error.code, str(error))
                await connection.until_finished()
                return None
        connection.client = client or connection.client
        return admission

    def _close_unauthorized(self) -> None:
        """Close the connections whose token is no longer valid."""
        for connection in tuple(self._connections):
            if connection.admission is not None and not self._access.still_admits(connection.admission):
                connection.revoke()

    async def drain(self) -> None:
        """Close the connections of all clients, which continue at another gateway, and accept only other gateways."""
        self._draining = True
        await self._close([c for c in self._connections if not c.is_relayed])

    async def close(self) -> None:
        """Send every client what it is still waiting for, as far as it reads, and close all connections."""
        await self._close(list(self._connections))

    async def _close(self, connections: Sequence[Connection]) -> None:
        sending = [asyncio.create_task(c.until_sent()) for c in connections]
        if sending:
            await asyncio.wait(sending, timeout=LAST_SECONDS)
            for task in sending:
                task.cancel()
        closing = [
            c.close(WSCloseCode.SERVICE_RESTART, "the gateway is stopping; try again in a moment") for c in connections
        ]
        await asyncio.gather(*closing)


# --- the first frame -------------------------------------------------------------------------------------------------


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


async def receive_hello(socket: web.WebSocketResponse, access: Access, address: str) -> tuple[Admission, str | None]:
    """Receive the first frame, from the IP address `address`, and return whom its token authenticates, and the name of the
    client program if it sent one.

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
    return admission, hello.client
