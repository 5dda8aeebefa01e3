"""The conversations of a client that other gateways have, whose owner stands still or whose relaying fails."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer

from gateway.http.relay import key_relay
from gateway.http.relay.key_relay import KeyRelay
from gateway.http.relay.links import Links
from gateway.protocol import frames
from gateway.support.errors import OwnedElsewhere
from tests.waiting import deadline, until

SEND = '{"type":"send","id":"m1","session":"main","text":"hello"}'
SUBSCRIBE = '{"type":"subscribe","session":"main","after":0}'


class ClientOfRelay:
    """A client, and a gateway that has its conversation once there is no `owner`. What `errors` holds is raised first."""

    client = "test"

    def __init__(self, owner: OwnedElsewhere | None, *errors: Exception) -> None:
        self.owner = owner
        self.errors = list(errors)
        self.answers = list[dict[str, Any]]()
        self.handled = list[str]()
        self.failures = list[tuple[str, BaseException]]()

    def answer(self, data: bytes) -> None:
        self.answers.append(msgspec.json.decode(data))

    async def until_room(self) -> None:
        """There is always room."""

    async def handle_here(self, frame: frames.ClientFrame, text: str) -> None:
        if self.errors:
            raise self.errors.pop(0)
        if self.owner is not None:
            raise self.owner
        self.handled.append(text)

    async def follow_here(self, key: str, sent: Mapping[str, int]) -> bool:
        return True

    def relay_failed(self, key: str, error: BaseException) -> None:
        self.failures.append((key, error))


@asynccontextmanager
async def relaying(client: ClientOfRelay, gone: asyncio.Event | None = None) -> AsyncIterator[KeyRelay]:
    """The relay of a client, in a cluster whose other gateway is gone once the event is set."""
    gone = gone or asyncio.Event()
    links = Links(
        cast(Any, SimpleNamespace(until_gone=lambda _: gone.wait())), cast(Any, SimpleNamespace(issue=lambda *_: "token"))
    )
    relay = KeyRelay(links, "owner", client)
    try:
        async with deadline():
            yield relay
    finally:
        await relay.close()
        await links.close()


async def test_an_owner_that_stands_still_before_it_was_connected_holds_nothing_up_once_it_is_dead() -> None:
    gone, asked = asyncio.Event(), asyncio.Event()

    async def stands_still(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        asked.set()
        await reader.read()
        writer.transport.abort()

    async with await asyncio.start_server(stands_still, "127.0.0.1", 0) as owner:
        url = f"http://127.0.0.1:{owner.sockets[0].getsockname()[1]}"
        client = ClientOfRelay(OwnedElsewhere("gw1.1", url))
        async with relaying(client, gone) as relay:
            relay.forward(frames.parse(SEND), SEND)
            await asked.wait()
            client.owner = None
            gone.set()
            await until(lambda: client.handled == [SEND])


@asynccontextmanager
async def owner(
    frames_to_read: int, then: Callable[[web.WebSocketResponse], Awaitable[None]]
) -> AsyncIterator[OwnedElsewhere]:
    """An owner that reads so many frames, does what `then` does, and stands still."""

    async def serve(request: web.Request) -> web.StreamResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        for _ in range(frames_to_read):
            await socket.receive()
        await then(socket)
        await socket.receive()
        return socket

    app = web.Application()
    app.router.add_get("/ws", serve)
    async with TestServer(app) as server:
        yield OwnedElsewhere("gw1.1", str(server.make_url("")).rstrip("/"))


async def test_an_owner_that_is_declared_dead_while_it_relays_is_left() -> None:
    gone, connected = asyncio.Event(), asyncio.Event()

    async def note(_: web.WebSocketResponse) -> None:
        connected.set()

    async with owner(2, note) as place:
        client = ClientOfRelay(place)
        async with relaying(client, gone) as relay:
            relay.forward(frames.parse(SEND), SEND)
            await connected.wait()
            client.owner = None
            gone.set()
            await until(lambda: client.handled == [SEND])  # it was not answered, so it is sent again


@pytest.mark.parametrize("answers", [["moved"], []], ids=["it was restarted", "it stands still"])
async def test_a_frame_without_an_id_that_the_owner_did_not_handle_is_handled_by_the_next_one(answers: list[str]) -> None:
    """A gateway that runs again at the address of the dead one says that it has the conversation no more."""
    gone, asked = asyncio.Event(), asyncio.Event()

    async def answer(socket: web.WebSocketResponse) -> None:
        client.owner = None
        asked.set()
        for kind in answers:
            await socket.send_json({"type": kind, "session": "main"})

    async with owner(2, answer) as place:
        client = ClientOfRelay(place)
        async with relaying(client, gone) as relay:
            relay.forward(frames.parse(SUBSCRIBE), SUBSCRIBE)
            await asked.wait()
            gone.set()
            await until(lambda: client.handled == [SUBSCRIBE])


async def test_a_stop_that_the_owner_has_handled_is_not_sent_to_the_next_one() -> None:
    """It would end another turn. Its id is never answered, and any number of stops needs little memory."""
    gone, done = asyncio.Event(), asyncio.Event()
    stops = 2 * key_relay.MOST_UNSENT

    async def send_event(socket: web.WebSocketResponse) -> None:
        await done.wait()
        await socket.send_json({"type": "event", "session": "main", "session_id": "s", "event": {"seq": 1}})

    async with owner(2 + stops, send_event) as place:  # `hello` and `subscribe` before the stops
        client = ClientOfRelay(place)
        async with relaying(client, gone) as relay:
            relay.forward(frames.parse(SUBSCRIBE), SUBSCRIBE)
            for number in range(stops):
                stop = f'{{"type":"cancel","id":"{number}","session":"main"}}'
                relay.forward(frames.parse(stop), stop)
                await until(lambda: not relay._routes["main"].unsent)
            route = relay._routes["main"]
            assert len(route.unanswered) + len(route.unconfirmed) <= key_relay.MOST_UNSENT
            done.set()
            await until(lambda: client.answers)
            client.owner = None
            gone.set()
            await until(lambda: not relay._routes)
            assert (client.handled, [each["type"] for each in client.answers]) == ([], ["event"])


async def test_a_client_whose_conversation_cannot_be_relayed_is_told_to_connect_again() -> None:
    client = ClientOfRelay(None, ZeroDivisionError("a bug"))
    async with relaying(client) as relay:
        relay.forward(frames.parse(SEND), SEND)
        await until(lambda: client.failures)
        ((key, error),) = client.failures
        assert (key, type(error)) == ("main", ZeroDivisionError)


async def test_a_relay_that_lacks_resources_goes_on_once_it_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(key_relay, "RETRY_SECONDS", 0.0)
    client = ClientOfRelay(None, MemoryError(), OSError(24, "Too many open files"))
    async with relaying(client) as relay:
        relay.forward(frames.parse(SEND), SEND)
        await until(lambda: client.handled == [SEND])
        assert not client.failures
