"""The HTTP side: which requests are let in, health, and the door to the websocket."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from aiohttp import web

from gateway.access import Access
from gateway.readiness import Readiness
from gateway.websocket import WebsocketDoor

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

OPEN_PATHS = frozenset({"/healthz", "/readyz"})
"""Asked by supervisors under any name, and without a token: they say nothing but how the gateway is."""

HEADERS = {"X-Content-Type-Options": "nosniff", "Cache-Control": "no-store", "Referrer-Policy": "no-referrer"}


def application(access: Callable[[], Access], readiness: Readiness, door: Callable[[], WebsocketDoor]) -> web.Application:
    """The aiohttp application. `access` and `door` are asked at each request: the port is known only after listening."""

    @web.middleware
    async def only_ours(request: web.Request, handler: Handler) -> web.StreamResponse:
        if request.path not in OPEN_PATHS:
            rules = access()
            if not rules.allows_host(request.headers.get("Host")):
                return web.Response(status=403, text="This Host is not the gateway's; gateway.allowed_hosts adds one.\n")
            if not rules.allows_origin(request.headers.get("Origin")):
                return web.Response(
                    status=403, text="This Origin may not use the gateway; gateway.allowed_origins adds one.\n"
                )
        return await handler(request)

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n", headers=HEADERS)

    async def readyz(_: web.Request) -> web.Response:
        reason = readiness.refuses
        return web.Response(status=503 if reason else 200, text=f"{reason or 'ready'}\n", headers=HEADERS)

    async def websocket(request: web.Request) -> web.StreamResponse:
        return await door().enter(request)

    app = web.Application(middlewares=[only_ours], client_max_size=1024 * 1024)
    app.router.add_get("/healthz", healthz)
    app.router.add_get("/readyz", readyz)
    app.router.add_get("/ws", websocket)
    return app
