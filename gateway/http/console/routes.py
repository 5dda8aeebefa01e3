"""The console's public routes: its files and sign-in. Endpoints for authenticated requests are in `wiring`."""

from __future__ import annotations

from collections.abc import Callable

from aiohttp import web

from gateway.auth.access import Access
from gateway.http.console.pages import Pages
from gateway.http.console.signing_in import SignInEndpoints


def console_routes(access: Callable[[], Access], server: str) -> list[web.RouteDef]:
    """Return the public routes; `server` is the program and its version."""
    pages, signing_in = Pages(), SignInEndpoints(access, server)
    return [
        web.get("/", pages.page),
        web.get(r"/console/{digest:[0-9a-f]{1,64}}/{path:[a-z0-9_./-]{1,100}}", pages.file),
        web.get("/api/session", signing_in.session),
        web.post("/api/sign-in", signing_in.sign_in),
        web.post("/api/sign-out", signing_in.sign_out),
    ]
