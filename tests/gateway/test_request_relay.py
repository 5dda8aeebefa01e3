"""Requests whose owner goes away while it answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gateway.auth.people import Admission
from gateway.http.relay.links import Links
from gateway.http.relay.request_relay import RequestRelay
from gateway.support.errors import OwnedElsewhere


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {}, 200),
        ("POST", {"Idempotency-Key": "p1"}, 200),
        ("POST", {"X-Client-Request-Id": "p1"}, 200),
        ("POST", {}, 503),
    ],
)
@pytest.mark.parametrize("stands_still", [False, True])
async def test_a_request_is_sent_again_to_the_next_owner_if_it_can_be_repeated_and_told_what_became_of_it_else(
    method: str, headers: dict[str, str], status: int, *, stands_still: bool
) -> None:
    asked, dead = list[bytes](), asyncio.Event()

    async def dies(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        asked.append(await reader.readuntil(b"\r\n\r\n"))
        if stands_still:  # the connection stays open, until the others declare it dead
            dead.set()
            await reader.read()
        writer.transport.abort()

    owner = await asyncio.start_server(dies, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{owner.sockets[0].getsockname()[1]}"
    links = Links(
        cast(Any, SimpleNamespace(until_gone=lambda _: dead.wait())), cast(Any, SimpleNamespace(issue=lambda *_: "token"))
    )
    relay = RequestRelay(links, lambda _: False, lambda: False)

    async def here(_: web.Request, __: Admission) -> web.StreamResponse:
        if asked:  # this gateway has taken the conversation over
            return web.Response(text="done")
        raise OwnedElsewhere("gw1", url)

    async def serve(request: web.Request) -> web.StreamResponse:
        return await relay.handle(request, cast(Admission, SimpleNamespace(person=SimpleNamespace(id="owner"))), here)

    app = web.Application()
    app.router.add_route("*", "/", serve)
    data = b"{}" if method == "POST" else None
    async with (
        owner,
        TestClient(TestServer(app)) as client,
        client.request(method, "/", headers=headers, data=data) as answer,
    ):
        assert answer.status == status
        if status == 503:
            assert answer.headers["Retry-After"] == "1"
            assert "Idempotency-Key" in (await answer.json())["message"]
    await links.close()
    assert len(asked) == 1 or (method == "GET" and not stands_still)  # the client of aiohttp repeats it itself
