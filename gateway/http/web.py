"""The HTTP side: which requests are let in, health, and the door to the websocket."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from aiohttp import web
from aiohttp.typedefs import Middleware

from gateway.auth.access import Access, NotAuthorized
from gateway.auth.callers import caller
from gateway.auth.people import Admission
from gateway.auth.unauthenticated import UnauthenticatedLimit
from gateway.http.handshake import not_admitted
from gateway.http.http_protocol import HttpProtocol, complete_headers, refused
from gateway.http.responses import HEADERS, answer, refusal
from gateway.http.uploads import Uploads
from gateway.http.websocket import WebsocketServer
from gateway.metrics.prometheus import CONTENT_TYPE
from gateway.metrics.readiness import Readiness
from gateway.status.instruments import Instruments
from plugins.support.workspace import OWNER

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
Admitted = Callable[[web.Request, Admission], Awaitable[web.StreamResponse]]
"""Answers somebody who was let in."""

REQUEST_SECONDS = 10.0
"""A connection must have brought a whole request within this time, also after the one before."""

LINGER_SECONDS = 5.0
"""A refused body is read on for so long, so that its sender gets to the answer; then the connection is closed."""

ONCE = ("Host", "Origin", "Authorization")
"""Headers that decide who comes in: of two, a proxy before us might have believed the other."""

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Asked by supervisors under any name, and without a token: they say nothing but how the gateway is."""


class Endpoint(msgspec.Struct, frozen=True):
    """What is answered under a path, `{name}` in it being any part, to those who were let in, and how others are refused.
    The method `*` is any."""

    method: str
    path: str
    give: Admitted
    refuse: Callable[[NotAuthorized], web.Response] = not_admitted


def application(
    access: Callable[[], Access],
    readiness: Readiness,
    door: Callable[[], WebsocketServer],
    uploads: Uploads,
    instruments: Instruments,
    *,
    unauthenticated: UnauthenticatedLimit,
    endpoints: Sequence[Endpoint] = (),
    routes: Sequence[web.RouteDef] = (),
) -> web.Application:
    """The aiohttp application, with the `endpoints` of other rooms for those who were let in, and their `routes` for
    everybody. `access` and `door` are asked at each request: the port is known only after listening. `unauthenticated` hears
    of each connection over which somebody was let in."""

    async def websocket(request: web.Request) -> web.StreamResponse:
        return await door().enter(request)

    app = web.Application(middlewares=[_only_ours(access)], client_max_size=1024 * 1024)
    app.on_response_prepare.append(complete_headers)
    app.add_routes([*_health(readiness), web.get("/ws", websocket), *routes])
    for endpoint in (*_figures(door, instruments), *_files(access, uploads), *endpoints):
        app.router.add_route(endpoint.method, endpoint.path, _admitting(access, endpoint, unauthenticated))
    return app


def _only_ours(access: Callable[[], Access]) -> Middleware:
    """Turns away what names another host, or comes from another's page."""

    @web.middleware
    async def only_ours(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in OPEN_PATHS:
            if any(len(request.headers.getall(name, ())) > 1 for name in ONCE):
                return web.Response(status=400, text=f"None of {', '.join(ONCE)} may stand twice.\n")
            rules = access()
            host = request.headers.get("Host")
            if not rules.allows_host(host):
                return web.Response(status=403, text="This Host is not the gateway's; gateway.allowed_hosts adds one.\n")
            if not rules.allows_origin(request.headers.get("Origin"), host):
                return web.Response(
                    status=403, text="This Origin may not use the gateway; gateway.allowed_origins adds one.\n"
                )
        try:
            return await handler(request)
        except web.HTTPException as error:
            return refused(error)

    return only_ours


def _admitting(access: Callable[[], Access], endpoint: Endpoint, unauthenticated: UnauthenticatedLimit) -> Handler:
    """Answers those who may come in, and refuses the others."""

    async def answer_known(request: web.Request) -> web.StreamResponse:
        try:
            admission = caller(request, access())
        except NotAuthorized as error:
            return endpoint.refuse(error)
        unauthenticated.authenticated(request.remote or "", request.protocol)
        return await endpoint.give(request, admission)

    return answer_known


def _health(readiness: Readiness) -> list[web.RouteDef]:
    """Whether the gateway lives, and takes messages: for everybody."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n", headers=HEADERS)

    async def readyz(_: web.Request) -> web.Response:
        reason = readiness.refuses
        return web.Response(status=503 if reason else 200, text=f"{reason or 'ready'}\n", headers=HEADERS)

    return [web.get("/healthz", healthz), web.get("/readyz", readyz)]


def _figures(door: Callable[[], WebsocketServer], instruments: Instruments) -> list[Endpoint]:
    """How the gateway is: for its owner."""

    def metrics() -> web.Response:
        text = instruments.metrics(door().connections)
        return web.Response(body=text.encode(), headers={**HEADERS, "Content-Type": CONTENT_TYPE})

    def status() -> web.Response:
        return answer(200, instruments.overview(door().connections))

    def by_owner(give: Callable[[], web.Response]) -> Admitted:
        async def give_owner(_: web.Request, admission: Admission) -> web.Response:
            if admission.person.id != OWNER:
                return refusal(403, "forbidden", "Only the owner's token opens this: it tells of everybody's use.")
            return give()

        return give_owner

    return [Endpoint("GET", "/metrics", by_owner(metrics)), Endpoint("GET", "/status.json", by_owner(status))]


def _files(access: Callable[[], Access], uploads: Uploads) -> list[Endpoint]:
    """Files on their way in and out."""

    async def receive(request: web.Request, admission: Admission) -> web.StreamResponse:
        return await uploads.receive(request, admission.person.id, lambda: access().still_admits(admission))

    async def give(request: web.Request, admission: Admission) -> web.StreamResponse:
        return await uploads.give(request, admission.person.id)

    return [Endpoint("POST", "/attachments", receive), Endpoint("GET", "/attachments/{sha256}", give)]


_BOUNDS: dict[str, Any] = {
    "access_log": None,
    "keepalive_timeout": REQUEST_SECONDS,
    "lingering_time": LINGER_SECONDS,
    "auto_decompress": False,  # a small body could unpack to fill the memory before anybody looks at it
}


def runner_of(app: web.Application) -> web.AppRunner:
    """What serves the application."""
    return web.AppRunner(app, access_log=None, shutdown_timeout=2.0)


def protocol_of(server: web.Server) -> HttpProtocol:
    """Return the protocol of a new connection of a server, with its bounds."""
    return HttpProtocol(server, loop=asyncio.get_running_loop(), **_BOUNDS)
