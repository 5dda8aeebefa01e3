"""Attacks on who somebody is: every route of the gateway, also those to come, with every credential that must not do."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from yarl import URL

from gateway.http.web import application
from tests.gateway.gateways import TOKEN, Gateway, gateway

ANA, BEN = "the-token-of-ana-who-is-no-owner", "the-token-of-ben-who-is-no-owner"

OPEN = {
    ("GET", "/healthz"),
    ("GET", "/readyz"),
    ("POST", "/hooks/{name}"),  # channels check signatures: tests/channels/test_webhook_channel.py
    ("GET", "/"),
    ("GET", "/service-worker.js"),
    ("GET", "/shared/{secret}"),
    ("GET", "/api/shared/{secret}"),  # unknown links are all the same 404: tests/gateway/test_shares.py
    ("GET", "/api/shared/{secret}/files/{session}/{seq}/{sha256}"),  # likewise, and only files that the link shows
    ("GET", "/console/{digest}/{path}"),
    ("GET", "/api/session"),
    ("POST", "/api/sign-in"),
    ("POST", "/api/sign-out"),
}
"""Routes for everybody. Whoever adds one decides that its answer tells nobody anything."""

OF_THE_OWNER = {
    ("GET", "/metrics"),
    ("GET", "/status.json"),
    ("GET", "/api/health"),
    ("GET", "/api/config"),
    ("POST", "/api/config"),
    ("POST", "/api/config/check"),
    ("POST", "/api/doctor"),
}

PARTS = {"path": "a", "digest": "0" * 8, "sha256": "0" * 64, "session": "main", "turn": "1", "at": "0", "call": "1"}

Route = tuple[str, str]


@asynccontextmanager
async def routed(home: Path, monkeypatch: pytest.MonkeyPatch, **settings: Any) -> AsyncIterator[tuple[Gateway, list[Route]]]:
    """A gateway with Ana and Ben, and all routes that its router has."""
    made: list[web.Application] = []

    def remembered(*arguments: Any, **named: Any) -> web.Application:
        made.append(application(*arguments, **named))
        return made[-1]

    monkeypatch.setattr("gateway.wiring.daemon.application", remembered)
    people = {"people.ana.token": ANA, "people.ben.token": BEN}
    async with gateway(home, settings=people | settings) as g:
        routes = {
            ("GET" if route.method == "*" else route.method, route.resource.canonical)
            for route in made[0].router.routes()
            if route.resource is not None and route.method != "HEAD"
        }
        assert len(routes) > 25
        yield g, sorted(routes)


def filled(path: str) -> str:
    """A path that matches a route."""
    for name, value in PARTS.items():
        path = path.replace("{" + name + "}", value)
    while "{" in path:
        before, _, rest = path.partition("{")
        path = f"{before}1{rest.partition('}')[2]}"
    return path


async def asked(g: Gateway, route: Route, headers: Mapping[str, str], query: str = "") -> tuple[int, bytes]:
    """The status and the body of the answer; a client that keeps nothing asks."""
    method, path = route
    url = URL(f"{g.url}{filled(path)}{query}", encoded=True)
    async with (
        aiohttp.ClientSession(cookie_jar=aiohttp.DummyCookieJar()) as http,
        http.request(method, url, headers=headers, allow_redirects=False) as response,
    ):
        return response.status, await response.content.read(100_000) if response.status != 101 else b""


def upgrade(route: Route) -> dict[str, str]:
    """Return the additional headers of a websocket request."""
    if route[1] != "/ws":
        return {}
    return {
        "Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13",
        "Sec-WebSocket-Key": "AAAAAAAAAAAAAAAAAAAAAA==",
    }  # fmt: skip


async def cookie(g: Gateway, token: str) -> str:
    async with g.http.post(f"{g.url}/api/sign-in", json={"token": token}, headers={"Origin": g.url}) as response:
        assert response.status == 200
        (found,) = response.cookies.values()
    g.http.cookie_jar.clear()
    return f"{found.key}={found.value}"


WRONG = {
    "an empty token": {"Authorization": "Bearer "},
    "a wrong token": {"Authorization": "Bearer " + TOKEN[::-1]},
    "most of a token": {"Authorization": "Bearer " + TOKEN[:-1]},
    "a token in capitals": {"Authorization": "Bearer " + TOKEN.upper()},
    "two tokens in one": {"Authorization": f"Bearer {ANA}, Bearer {TOKEN}"},
    "another scheme": {"Authorization": "Basic " + TOKEN},
    "no scheme": {"Authorization": TOKEN},
    "a header that is not ours": {"X-Api-Key": TOKEN, "X-Auth-Token": TOKEN, "X-Exuvia-Token": TOKEN},
    "a person that is claimed": {"X-Remote-User": "owner", "X-Forwarded-User": "owner", "From": "owner"},
    "an address that is claimed": {"X-Forwarded-For": "127.0.0.1", "X-Real-IP": "127.0.0.1", "Forwarded": "for=127.0.0.1"},
    "a method that is claimed": {"X-HTTP-Method-Override": "GET", "X-Original-URL": "/healthz", "X-Rewrite-URL": "/healthz"},
    "a cookie with the token": {"Cookie": f"exuvia={TOKEN}; token={TOKEN}; session={TOKEN}"},
}  # fmt: skip


@pytest.mark.parametrize("name", [None, *WRONG])
async def test_no_route_answers_without_a_valid_token(
    name: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = WRONG[name] if name else {}
    async with routed(tmp_path, monkeypatch) as (g, routes):
        got = {route: await asked(g, route, headers) for route in routes if route not in OPEN and route[1] != "/ws"}
        assert {route: status for route, (status, _) in got.items() if status != 401} == {}
        assert all(set(json.loads(body)) <= {"code", "message", "error"} for _, body in got.values())
        if name and "Authorization" in headers:
            assert (await asked(g, ("GET", "/ws"), headers | upgrade(("GET", "/ws"))))[0] == 401


@pytest.mark.parametrize("name", ["token", "access_token", "api_key", "authorization"])
async def test_no_route_accepts_a_token_in_the_url(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with routed(tmp_path, monkeypatch) as (g, routes):
        closed = [route for route in routes if route not in OPEN and (route[1] != "/ws" or "token" in name)]
        statuses = {route: (await asked(g, route, upgrade(route), f"?{name}={TOKEN}"))[0] for route in closed}
        assert {route: status for route, status in statuses.items() if status != 401} == {}


@pytest.mark.parametrize(
    "host",
    ["evil.example:{port}", "localhost.evil.example:{port}", "127.0.0.1.evil.example:{port}", "127.0.0.1:1",
     "2130706433:{port}", "0x7f.1:{port}", "127.0.0.1:{port}@evil.example", "user@127.0.0.1:{port}",
     "[::ffff:127.0.0.1]:{port}", ""],
)  # fmt: skip
async def test_no_route_accepts_another_host(host: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A name that is rebound to this address sends it as the Host."""
    async with routed(tmp_path, monkeypatch) as (g, routes):
        assert g.daemon.address is not None
        headers = {"Authorization": f"Bearer {TOKEN}", "Host": host.replace("{port}", str(g.daemon.address[1]))}
        closed = [route for route in routes if route[1] not in ("/healthz", "/readyz")]
        statuses = {route: (await asked(g, route, headers | upgrade(route)))[0] for route in closed}
        assert {route: status for route, status in statuses.items() if status not in (400, 403)} == {}


@pytest.mark.parametrize(
    "origin",
    ["null", "http://evil.example", "http://127.0.0.1:1", "https://127.0.0.1.evil.example", "http://127.0.0.1:{port}/x", "file://",
     "http://127.0.0.1:{port}@evil.example", "chrome-extension://abc", "http://[::1", "http://127.0.0.1:{port} x"],
)  # fmt: skip
async def test_no_route_answers_a_page_of_another_origin(
    origin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with routed(tmp_path, monkeypatch) as (g, routes):
        assert g.daemon.address is not None
        signed = {"Cookie": await cookie(g, TOKEN), "Origin": origin.replace("{port}", str(g.daemon.address[1]))}
        closed = [route for route in routes if route[1] not in ("/healthz", "/readyz")]
        statuses = {route: (await asked(g, route, signed | upgrade(route)))[0] for route in closed}
        assert {route: status for route, status in statuses.items() if status != 403} == {}


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
async def test_a_cookie_sent_from_another_site_is_accepted_by_no_route(
    site: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with routed(tmp_path, monkeypatch) as (g, routes):
        signed = {"Cookie": await cookie(g, TOKEN), "Sec-Fetch-Site": site}
        closed = [route for route in routes if route not in OPEN and route[1] != "/ws"]
        statuses = {route: (await asked(g, route, signed))[0] for route in closed}
        assert {route: status for route, status in statuses.items() if status != 401} == {}
        assert json.loads((await asked(g, ("GET", "/api/session"), signed))[1])["person"] is None


async def test_a_cookie_without_an_origin_is_refused_for_changes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with routed(tmp_path, monkeypatch) as (g, routes):
        signed = {"Cookie": await cookie(g, TOKEN)}
        changing = [route for route in routes if route[0] != "GET" and route not in OPEN]
        statuses = {route: (await asked(g, route, signed))[0] for route in changing}
        assert len(changing) >= 5
        assert {route: status for route, status in statuses.items() if status != 401} == {}


@pytest.mark.parametrize("header", ["Origin", "Authorization"])  # aiohttp's client sends one Host: test_http_errors
async def test_no_route_accepts_a_repeated_header(header: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with routed(tmp_path, monkeypatch) as (g, routes):
        right = {"Host": g.url.removeprefix("http://"), "Origin": g.url, "Authorization": f"Bearer {TOKEN}"}
        for method, path in routes:
            if path in ("/healthz", "/readyz"):
                continue
            twice = [*right.items(), (header, right[header])]
            async with g.http.request(method, g.url + filled(path), headers=twice) as response:
                assert response.status == 400, path


@pytest.mark.parametrize("token", [ANA, BEN])
async def test_routes_of_the_owner_are_refused_to_everybody_else(
    token: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with routed(tmp_path, monkeypatch) as (g, routes):
        assert set(routes) >= OF_THE_OWNER
        for headers in ({"Authorization": f"Bearer {token}"}, {"Cookie": await cookie(g, token), "Origin": g.url}):
            assert {(await asked(g, route, headers))[0] for route in OF_THE_OWNER} == {403}
