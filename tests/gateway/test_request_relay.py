"""Requests whose owner goes away while it answers."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from gateway.auth.people import Admission
from gateway.http.mcp.program_messages import ProgramMessage, ProgramMessages
from gateway.http.relay import request_relay
from gateway.http.relay.links import Links
from gateway.http.relay.request_relay import RequestRelay
from gateway.support.errors import Conflict, OwnedElsewhere
from sessions.events.events import MessageReceived
from tests.waiting import deadline


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
            assert ("Retry-After" in answer.headers, answer.headers["X-Should-Retry"]) == (False, "false")
            assert "Idempotency-Key" in (await answer.json())["message"]
    await links.close()
    assert len(asked) == 1 or (method == "GET" and not stands_still)  # the client of aiohttp repeats it itself


@pytest.mark.parametrize("is_relayed", [False, True])
async def test_the_next_owner_is_looked_for_although_the_request_was_long_under_way_when_its_gateway_lost_it(
    monkeypatch: pytest.MonkeyPatch, *, is_relayed: bool
) -> None:
    now, losses, url = [0.0], list[bool](), ""
    monkeypatch.setattr(request_relay, "time", SimpleNamespace(monotonic=lambda: now[0]))
    links = Links(
        cast(Any, SimpleNamespace(until_gone=lambda _: asyncio.Event().wait())),
        cast(Any, SimpleNamespace(issue=lambda *_: "token")),
    )

    async def lose(_: web.Request, __: Admission) -> web.StreamResponse:
        now[0] += 10 * request_relay.LONGEST_SECONDS
        losses.append(is_relayed)
        raise OwnedElsewhere("", "", lost=True)

    async def here(request: web.Request, admission: Admission) -> web.StreamResponse:
        if losses:  # this gateway has taken the conversation over
            return web.Response(text="done")
        if is_relayed:
            raise OwnedElsewhere("gw1", url)
        return await lose(request, admission)

    def serving(relay: RequestRelay, handle: Any) -> web.Application:
        async def serve(request: web.Request) -> web.StreamResponse:
            return await relay.handle(request, cast(Admission, SimpleNamespace(person=SimpleNamespace(id="owner"))), handle)

        app = web.Application()
        app.router.add_post("/", serve)
        return app

    owner = TestServer(serving(RequestRelay(links, lambda _: True, lambda: False), lose))
    asked = TestServer(serving(RequestRelay(links, lambda _: False, lambda: False), here))
    async with owner, TestClient(asked) as client, deadline():
        url = str(owner.make_url("")).rstrip("/")
        async with client.post("/", headers={"Idempotency-Key": "p1"}, data=b"{}") as answer:
            assert (answer.status, await answer.text()) == (200, "done")
    await links.close()
    assert losses == [is_relayed]


async def test_a_programs_message_goes_to_the_next_owner_when_its_gateway_stands_still() -> None:
    dead, owners = asyncio.Event(), list[Exception]()

    async def stands_still(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        dead.set()
        await reader.read()
        writer.transport.abort()

    async def chat(*_: object, **__: object) -> None:
        raise owners.pop()

    owner = await asyncio.start_server(stands_still, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{owner.sockets[0].getsockname()[1]}"
    links = Links(
        cast(Any, SimpleNamespace(until_gone=lambda _: dead.wait())), cast(Any, SimpleNamespace(issue=lambda *_: "token"))
    )
    owners += [Conflict("It is here now."), OwnedElsewhere("other.1", url)]
    messages = ProgramMessages(cast(Any, SimpleNamespace(chat=chat)), links)
    event = MessageReceived(
        id="mcp-1", client="mcp:x", sender="owner", channel="mcp", chat="private", text="Hello.", attachments=()
    )
    async with owner, deadline():
        with pytest.raises(Conflict, match="here now"):
            await messages.send("owner", ProgramMessage("main", event, 60.0))
    await links.close()
