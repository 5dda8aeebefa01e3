"""A small web on loopback: a public server, one of the inner network, and names that a test resolves as it likes."""

from __future__ import annotations

import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import pytest
from aiohttp import web

from benchmarks.ports import free_port
from plugins.http import public_addresses

PUBLIC, INSIDE = "127.0.0.99", "127.0.0.1"
"""The address that stands for the internet, and one that stands for the inner network. Both are of this machine."""

Page = Callable[[web.Request], web.StreamResponse] | web.StreamResponse | str


class Site:
    """A server: its pages by path with query, and the requests that it got."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.pages: dict[str, Page] = {}
        self.requests: list[str] = []
        self.headers: list[Mapping[str, str]] = []

    async def answer(self, request: web.Request) -> web.StreamResponse:
        self.requests.append(request.path_qs)
        self.headers.append(dict(request.headers))
        page = self.pages.get(request.path_qs, web.Response(status=404))
        if isinstance(page, str):
            return web.Response(text=page, content_type="text/html")
        if isinstance(page, web.Response):
            return web.Response(status=page.status, body=page.body, headers=page.headers)
        assert callable(page)
        return page(request)


class SmallWeb:
    """Two servers on the same port, and a resolver. `names` holds the answers of each name: each lookup takes the next, the
    last one stays. Other names do not exist."""

    def __init__(self) -> None:
        self.public, self.inside, self.port = Site(PUBLIC), Site(INSIDE), free_port()
        self.names: dict[str, list[list[str]]] = {"site.example": [[PUBLIC]], "other.example": [[PUBLIC]]}
        self.lookups: list[str] = []

    def url(self, path: str, host: str = "site.example") -> str:
        return f"http://{host}:{self.port}{path}"

    def lookup(self, host: Any, port: Any, *_: Any, **__: Any) -> list[Any]:
        self.lookups.append(host)
        try:
            found = [str(ip_address(host))]
        except ValueError:
            if host not in self.names:
                raise socket.gaierror(socket.EAI_NONAME, "unknown") from None
            answers = self.names[host]
            found = answers.pop(0) if len(answers) > 1 else answers[0]
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (each, port)) for each in found]


@asynccontextmanager
async def small_web(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[SmallWeb]:
    """Serve a small web, and let names be resolved in it."""
    found, is_public = SmallWeb(), public_addresses.is_public

    def stands_for_public(address: IPv4Address | IPv6Address) -> bool:
        return str(address) == PUBLIC or is_public(address)

    async with AsyncExitStack() as stack:
        for site in (found.public, found.inside):
            app = web.Application()
            app.router.add_route("*", "/{path:.*}", site.answer)
            runner = web.AppRunner(app, access_log=None)
            await runner.setup()
            stack.push_async_callback(runner.cleanup)
            await web.TCPSite(runner, site.address, found.port).start()
        for variable in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.delenv(variable, raising=False)
        monkeypatch.setattr(public_addresses, "is_public", stands_for_public)
        monkeypatch.setattr(socket, "getaddrinfo", found.lookup)
        yield found
