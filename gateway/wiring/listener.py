"""The listening sockets and their limits."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence

import structlog
from aiohttp import web

from gateway.auth.limits import UnauthenticatedLimit
from gateway.config.keys import GatewayKeys
from gateway.http.web import protocol_of, runner_of
from gateway.support import resource_limits
from gateway.support.errors import StartRefused, sentence_of

BACKLOG = 128
"""The length of the system's queue of connections."""

FULL_SECONDS = 0.05
"""Interval of the checks for a free slot while the limit is reached."""

FAILED_SECONDS = 1.0
"""Pause after the system failed to accept a connection, for example without a free descriptor."""

QUIET_SECONDS = 60.0
"""The shortest interval between two log entries about refused connections."""

log = structlog.get_logger("exuvia.listening")


class Listener:
    """Accepts connections at its sockets and has a server serve them: not more than `most` at once.

    Further ones wait in the system's queue. asyncio's own servers accept until no descriptor is left for anything.
    """

    def __init__(
        self, runner: web.AppRunner, sockets: Sequence[socket.socket], most: int, unauthenticated: UnauthenticatedLimit
    ) -> None:
        assert runner.server is not None
        self._runner = runner
        self._server = runner.server
        self._sockets = sockets
        self._most = most
        self._unauthenticated = unauthenticated
        self._count = 0
        self._logged = float("-inf")
        self._accepting = [asyncio.create_task(self._accept(each)) for each in sockets]

    async def close(self) -> None:
        """Stop accepting, let requests in flight finish, and close every connection."""
        for task in self._accepting:
            task.cancel()
        await asyncio.wait(self._accepting)
        for each in self._sockets:
            each.close()
        await self._runner.cleanup()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._wait_for_slot()
            try:
                connection, (address, *_) = await loop.sock_accept(listening)
            except ConnectionError:  # the client is gone again
                continue
            except OSError as error:
                self._log("connection_not_accepted", reason=sentence_of(error))
                await asyncio.sleep(FAILED_SECONDS)
                continue
            if not self._unauthenticated.has_room(address):
                self._log("address_refused", address=address)
                connection.close()
                continue
            try:
                _, protocol = await loop.connect_accepted_socket(lambda: protocol_of(self._server), connection)
                self._unauthenticated.add(address, protocol)
            except OSError:
                connection.close()
            except BaseException:
                connection.close()
                raise

    async def _wait_for_slot(self) -> None:
        """Return once another connection may be open, and count it."""
        while self._count >= self._most:
            # The server is asked only now: it copies the list of its connections.
            self._count = len(self._server.connections)
            if self._count >= self._most:
                self._log("connections_full", most=self._most)
                await asyncio.sleep(FULL_SECONDS)
        self._count += 1

    def _log(self, event: str, **details: object) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._logged > QUIET_SECONDS:
            self._logged = now
            log.warning(event, **details)


async def bound_sockets(keys: GatewayKeys) -> list[socket.socket]:
    """Return sockets that listen on every address of the configured host.

    Raises:
        StartRefused: An address cannot be listened on.
    """
    loop = asyncio.get_running_loop()
    try:
        server = await loop.create_server(asyncio.Protocol, keys.host, keys.port, start_serving=False)
        sockets = [each.dup() for each in server.sockets]
        server.close()
        for each in sockets:
            each.listen(BACKLOG)
    except OSError as error:
        raise StartRefused(f"{keys.host}:{keys.port} cannot be listened on: {error.strerror}.") from error
    return sockets


async def serve(app: web.Application, sockets: Sequence[socket.socket], unauthenticated: UnauthenticatedLimit) -> Listener:
    """Serve the application on listening sockets."""
    runner = runner_of(app)
    await runner.setup()
    for each in sockets:
        each.setblocking(False)
    return Listener(runner, sockets, resource_limits.most_connections(), unauthenticated)
