"""Where the gateway listens, and whom it lets in there, by the configuration."""

from __future__ import annotations

import socket

from aiohttp import web

from gateway.configuration.keys import GatewayKeys
from gateway.door.access import Access
from gateway.door.attempts import Attempts
from gateway.door.passes import Passes
from gateway.door.people import People
from gateway.door.web import runner_of
from gateway.errors import StartRefused
from plugins.contracts import Clock


async def listening(app: web.Application, keys: GatewayKeys, passed: socket.socket | None) -> web.AppRunner:
    """The application, served: on the socket that was passed to this process, else where the configuration says. Raises
    StartRefused."""
    runner = runner_of(app)
    await runner.setup()
    site = web.TCPSite(runner, keys.host, keys.port) if passed is None else web.SockSite(runner, passed)
    try:
        await site.start()
    except OSError as error:
        await runner.cleanup()
        raise StartRefused(f"{keys.host}:{keys.port} cannot be listened on: {error.strerror}.") from error
    return runner


def access_of(people: People, keys: GatewayKeys, port: int, clock: Clock) -> Access:
    """Who comes in, at the port that is listened on."""
    return Access(
        people,
        Attempts(clock.monotonic),
        Passes(lambda: clock.now().timestamp()),
        host=keys.host,
        port=port,
        hosts=keys.allowed_hosts,
        origins=keys.allowed_origins,
    )
