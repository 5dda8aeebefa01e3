"""Where the gateway listens, how many connections it takes there, and whom it lets in, by the configuration."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Sequence
from pathlib import Path

import structlog
from aiohttp import web

from gateway.auth.access import Access
from gateway.auth.auth_throttle import AuthThrottle
from gateway.auth.people import People
from gateway.auth.signed_out import SignedOut
from gateway.auth.signed_tokens import TokenSigner
from gateway.auth.unauthenticated import UnauthenticatedLimit
from gateway.config.keys import GatewayKeys
from gateway.http.web import protocol_of, runner_of
from gateway.support import descriptors
from gateway.support.errors import StartRefused, sentence_of
from plugins.api.context import Clock

BACKLOG = 128
"""Connections that wait in the system's queue; further ones are tried again by whoever connects."""

FULL_SECONDS = 0.05
"""How often it is looked, while all places are taken, whether one is free again."""

FAILED_SECONDS = 1.0
"""How long nothing is accepted after the system could not, as when all its descriptors are taken."""

QUIET_SECONDS = 60.0
"""How long nothing more is logged of places that are taken."""

log = structlog.get_logger("exuvia.listening")


class Listener:
    """Accepts connections at its sockets and has a server serve them: one after another, and not more than `most` at once.

    Those beyond wait in the system's queue. asyncio's own servers accept until there is no descriptor left, for anything.
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
        self._told = float("-inf")
        self._accepting = [asyncio.create_task(self._accept(each)) for each in sockets]

    @property
    def address(self) -> tuple[str, int]:
        """The host and port of the first socket."""
        host, port, *_ = self._sockets[0].getsockname()
        return host, port

    async def close(self) -> None:
        """Accept nothing more, let requests under way end, and close every connection."""
        for task in self._accepting:
            task.cancel()
        await asyncio.wait(self._accepting)
        for each in self._sockets:
            each.close()
        await self._runner.cleanup()

    async def _accept(self, listening: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        while True:
            await self._room()
            try:
                connection, (address, *_) = await loop.sock_accept(listening)
            except ConnectionError:  # whoever came is gone again
                continue
            except OSError as error:
                self._tell("connection_not_accepted", reason=sentence_of(error))
                await asyncio.sleep(FAILED_SECONDS)
                continue
            if not self._unauthenticated.has_room(address):
                self._tell("address_refused", address=address)
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

    async def _room(self) -> None:
        """Return once a further connection may be open, and count it."""
        while self._count >= self._most:
            # The server is asked only now, because it copies a list of all to tell how many it has.
            self._count = len(self._server.connections)
            if self._count >= self._most:
                self._tell("connections_full", most=self._most)
                await asyncio.sleep(FULL_SECONDS)
        self._count += 1

    def _tell(self, event: str, **details: object) -> None:
        now = asyncio.get_running_loop().time()
        if now - self._told > QUIET_SECONDS:
            self._told = now
            log.warning(event, **details)


async def listening(
    app: web.Application, keys: GatewayKeys, passed: socket.socket | None, unauthenticated: UnauthenticatedLimit
) -> Listener:
    """The application, served: on the socket that was passed to this process, else where the configuration says. Raises
    StartRefused."""
    runner = runner_of(app)
    await runner.setup()
    try:
        sockets = await _bound(keys) if passed is None else [passed]
    except OSError as error:
        await runner.cleanup()
        raise StartRefused(f"{keys.host}:{keys.port} cannot be listened on: {error.strerror}.") from error
    for each in sockets:
        each.setblocking(False)
    return Listener(runner, sockets, descriptors.connections(), unauthenticated)


async def _bound(keys: GatewayKeys) -> list[socket.socket]:
    """Sockets that listen on every address of the configured host. Raises OSError."""
    server = await asyncio.get_running_loop().create_server(asyncio.Protocol, keys.host, keys.port, start_serving=False)
    sockets = [each.dup() for each in server.sockets]
    server.close()
    for each in sockets:
        each.listen(BACKLOG)
    return sockets


def access_of(people: People, keys: GatewayKeys, port: int, clock: Clock, signed_out: Path) -> Access:
    """Who comes in, at the port that is listened on; sign-outs are kept in the file `signed_out`."""

    def now() -> float:
        return clock.now().timestamp()

    return Access(
        people,
        AuthThrottle(clock.monotonic),
        TokenSigner(now, SignedOut(signed_out, now)),
        host=keys.host,
        port=port,
        hosts=keys.allowed_hosts,
        origins=keys.allowed_origins,
    )
