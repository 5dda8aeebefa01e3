"""The aiohttp application: access checks, health, routes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from gateway.auth.access import Access, NotAuthorized
from gateway.auth.people import Admission
from gateway.http.responses import HEADERS, HttpProtocol, answer, complete_headers, not_admitted, refusal, refused
from gateway.http.uploads import Uploads
from gateway.http.websocket import WebsocketServer
from gateway.http.websocket_connection import ConnectionServices
from gateway.metrics.prometheus import CONTENT_TYPE
from gateway.status.instruments import Instruments
from gateway.status.problems import Readiness
from plugins.support.workspace import OWNER

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Admitted = Callable[[web.Request, Admission], Awaitable[web.StreamResponse]]
"""A handler of authenticated requests."""

REQUEST_SECONDS = 10.0
"""Seconds within which a connection must send a whole request, also after the previous one."""

LINGER_SECONDS = 5.0
"""Seconds for which a refused body is read on, so that its sender can read the response."""

UNIQUE = ("Host", "Origin", "Authorization")
"""Headers that decide about access. If repeated, a proxy in front of us might have used the other value."""

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Paths that supervisors request under any host name and without a token: they only report the gateway's health."""


class Endpoint(msgspec.Struct, frozen=True):
    """A route for authenticated requests, and the refusal of others. `{name}` in `path` is any part; the method `*` is
    any."""

    method: str
    path: str
    handle: Admitted
    refuse: Callable[[NotAuthorized], web.Response] = not_admitted


def application(
    services: ConnectionServices,
    server: WebsocketServer,
    instruments: Instruments,
    *,
    endpoints: Sequence[Endpoint] = (),
    routes: Sequence[web.RouteDef] = (),
) -> web.Application:
    """Return the aiohttp application, with further `endpoints` for authenticated requests and `routes` for everybody."""
    app = web.Application(middlewares=[_check_host_and_origin(services.access)], client_max_size=1024 * 1024)
    app.on_response_prepare.append(complete_headers)
    app.add_routes([*_health(services.readiness), web.get("/ws", server.accept), *routes])
    for endpoint in (*_status(server, instruments), *_files(services.access, services.uploads), *endpoints):
        app.router.add_route(endpoint.method, endpoint.path, _authenticating(services, endpoint))
    return app


def _check_host_and_origin(access: Access) -> Middleware:
    """Return the middleware that refuses requests to another host or from another site's page."""

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in OPEN_PATHS and not access.is_relayed(request):
            if any(len(request.headers.getall(name, ())) > 1 for name in UNIQUE):
                return web.Response(status=400, text=f"{', '.join(UNIQUE)} must not be repeated.\n")
            host = request.headers.get("Host")
            if not access.allows_host(host):
                return web.Response(status=403, text="This Host is not allowed; add it to gateway.allowed_hosts.\n")
            if not access.allows_origin(request.headers.get("Origin"), host):
                return web.Response(status=403, text="This Origin is not allowed; add it to gateway.allowed_origins.\n")
        try:
            return await handler(request)
        except web.HTTPException as error:
            return refused(error)

    return check


def _authenticating(services: ConnectionServices, endpoint: Endpoint) -> Handler:
    """Return a handler that serves authenticated requests and refuses others."""

    async def authenticate(request: web.Request) -> web.StreamResponse:
        try:
            admission = services.access.caller(request)
        except NotAuthorized as error:
            return endpoint.refuse(error)
        services.unauthenticated.authenticated(request.remote or "", request.protocol)
        if services.request_relay is not None:
            return await services.request_relay.handle(request, admission, endpoint.handle)
        return await endpoint.handle(request, admission)

    return authenticate


def _health(readiness: Readiness) -> list[web.RouteDef]:
    """Return the routes for liveness and readiness, for everybody."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n", headers=HEADERS)

    async def readyz(_: web.Request) -> web.Response:
        reason = readiness.refuses
        return web.Response(status=503 if reason else 200, text=f"{reason or 'ready'}\n", headers=HEADERS)

    return [web.get("/healthz", healthz), web.get("/readyz", readyz)]


def _status(server: WebsocketServer, instruments: Instruments) -> list[Endpoint]:
    """Return the endpoints for metrics and status, for the owner."""

    async def metrics(_: web.Request, __: Admission) -> web.Response:
        text = instruments.metrics(server.connections)
        return web.Response(body=text.encode(), headers={**HEADERS, "Content-Type": CONTENT_TYPE})

    async def status(_: web.Request, __: Admission) -> web.Response:
        return answer(200, instruments.overview(server.connections))

    return [Endpoint("GET", "/metrics", owner_only(metrics)), Endpoint("GET", "/status.json", owner_only(status))]


def owner_only(handle: Admitted) -> Admitted:
    """Return a handler that serves the owner and refuses everybody else."""

    async def handle_owner(request: web.Request, admission: Admission) -> web.StreamResponse:
        if admission.person.id != OWNER:
            return refusal(403, "forbidden", "Only the owner may see this: it covers everybody's use of the gateway.")
        return await handle(request, admission)

    return handle_owner


def _files(access: Access, uploads: Uploads) -> list[Endpoint]:
    """Return the endpoints for uploads and downloads."""

    async def receive(request: web.Request, admission: Admission) -> web.StreamResponse:
        return await uploads.receive(request, admission.person.id, lambda: access.still_admits(admission))

    async def send(request: web.Request, admission: Admission) -> web.StreamResponse:
        return await uploads.send(request, admission.person.id)

    return [Endpoint("POST", "/attachments", receive), Endpoint("GET", "/attachments/{sha256}", send)]


def runner_of(app: web.Application) -> web.AppRunner:
    """Return the runner that serves the application."""
    return web.AppRunner(app, access_log=None, shutdown_timeout=2.0)


def protocol_of(server: web.Server) -> HttpProtocol:
    """Return the protocol of a new connection of a server, with its limits."""
    limits: dict[str, Any] = {
        "access_log": None,
        "keepalive_timeout": REQUEST_SECONDS,
        "lingering_time": LINGER_SECONDS,
        "auto_decompress": False,  # a small body could decompress to fill the memory before any check
    }
    return HttpProtocol(server, loop=asyncio.get_running_loop(), **limits)
