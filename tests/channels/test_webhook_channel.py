"""The channel `webhook`, over the gateway's own HTTP server, and to a receiver of the test."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import web

from gateway.http import hooks
from plugins.api.channel import Choice, DeliveryUnknown, OutboundMessage, TryLater, Undeliverable
from plugins.api.tool import OutputFile
from plugins.channels.webhook import webhook_channel
from plugins.channels.webhook.webhook_channel import WebhookChannel, WebhookSettings
from plugins.support.errors import PluginError, SettingsRefused
from plugins.support.secrets import Secret
from plugins.testing.channel_checks import ChannelConformance
from plugins.testing.contexts import NOON, make_context
from tests.channels.story import tell
from tests.channels.webhook_story import SECRET, Story, signed
from tests.gateway.gateways import Gateway, gateway, replies_wait
from tests.waiting import deadline, until

TABLE = f"""
[channels.program]
kind = "webhook"
secret = "{SECRET}"
people = {{ "ana" = "owner" }}
body_bytes = 300000
"""


async def test_sixty_messages_while_everything_breaks(tmp_path: Path) -> None:
    await tell(Story, tmp_path, messages=60, seed=1)


# --- in ---------------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def serving(home: Path, table: str = TABLE) -> AsyncIterator[Gateway]:
    async with gateway(home, file=table, settings={"agent.model": "scripted:echo"}) as g:
        async with deadline():
            while (await post(g, b"{}", {}))[0] == 503:  # the channel is being opened
                await asyncio.sleep(0.01)
        yield g


def body_of(**fields: Any) -> bytes:
    message = {"id": "1", "timestamp": time.time(), "sender": "ana", "chat": "door", "text": "hello"}
    return json.dumps({**message, **fields}).encode()


async def post(
    g: Gateway, body: bytes, headers: dict[str, str] | None = None, *, name: str = "program"
) -> tuple[int, dict[str, Any]]:
    headers = signed(body) if headers is None else headers
    async with g.http.post(f"{g.url}/hooks/{name}", data=body, headers=headers) as response:
        return response.status, await response.json()


def received(g: Gateway) -> list[dict[str, Any]]:
    return [line for lines in g.journals().values() for line in lines if line["kind"] == "message_received"]


async def test_a_signed_message_is_stored_once(tmp_path: Path) -> None:
    async with serving(tmp_path / "home") as g:
        file = {"name": "a.txt", "media": "text/plain", "content": base64.b64encode(b"tea").decode()}
        assert await post(g, body_of(files=[file], name="Ana")) == (200, {"id": "1", "new": True})
        (message,) = received(g)  # the status 200 came after it was durable
        assert await post(g, body_of(files=[file], name="Ana")) == (200, {"id": "1", "new": False})
        assert (await post(g, body_of(text="something else")))[0] == 403
        assert len(received(g)) == 1
    assert (message["channel"], message["sender"], message["reply_to"], message["text"]) == (
        "program",
        "owner",
        "door",
        "hello",
    )
    assert [file["name"] for file in message["attachments"]] == ["a.txt"]


async def test_a_message_for_a_full_queue_is_to_be_sent_again(tmp_path: Path) -> None:
    settings = {"sessions.queue_limit": 1}
    with replies_wait(0) as go_on:
        async with gateway(tmp_path / "home", file=TABLE, script=[{"text": "tea"}], settings=settings) as g, deadline():
            while (await post(g, body_of()))[0] != 200:  # the channel is being opened
                await asyncio.sleep(0.01)
            await until(
                lambda: [line for lines in g.journals().values() for line in lines if line["kind"] == "turn_started"]
            )
            assert (await post(g, body_of(id="2")))[0] == 200
            for _ in range(2):
                status, answer = await post(g, body_of(id="3"))
                assert (status, answer["message"][:30]) == (503, "1 message is already waiting; ")
            assert (await post(g, body_of(id="4", text="/whoami")))[0] == 200
            go_on.set()
            while (await post(g, body_of(id="3")))[0] != 200:
                await asyncio.sleep(0.01)


def forged() -> list[tuple[str, bytes, dict[str, str] | None, int]]:
    body = body_of()
    old, new = body_of(timestamp=time.time() - 400), body_of(timestamp=time.time() + 400)
    right = signed(body)["X-Signature-256"]
    return [
        ("no signature", body, {}, 401),
        ("another secret", body, signed(body, "another secret of enough characters"), 401),
        ("another body", body + b" ", signed(body), 401),
        ("a digest alone", body, {"X-Signature-256": right.removeprefix("sha256=")}, 401),
        ("another algorithm", body, {"X-Signature-256": right.replace("sha256", "sha512")}, 401),
        ("two signatures", body, {"X-Signature-256": f"{right}, {right}"}, 401),
        ("not ASCII", body, {"X-Signature-256": "sha256=" + "\u00e9" * 64}, 401),
        ("an old one", old, None, 401),
        ("one of the future", new, None, 401),
        ("no time", json.dumps({"id": "1", "sender": "ana", "chat": "door"}).encode(), None, 400),
        ("no JSON", b"\xff{", None, 400),
        ("an unknown field", body_of(admin=True), None, 400),
        ("an empty id", body_of(id=""), None, 400),
        ("an unknown sender", body_of(sender="eve", group=True), None, 403),
        ("a large body", b" " * 300_001, None, 413),
    ]


async def test_what_is_not_signed_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path / "home") as g:
        for what, body, headers, status in forged():
            answered, told = await post(g, body, headers)
            assert (what, answered) == (what, status)
            assert SECRET not in json.dumps(told)
        assert (await post(g, body_of(), name="nobody"))[0] == 404
        assert (await post(g, body_of(), name="..%2fprogram"))[0] == 404
        async with g.http.get(f"{g.url}/hooks/program") as response:
            assert response.status == 405
        assert received(g) == []


def head(g: Gateway, *lines: str) -> bytes:
    """Return the head of a request whose body does not come."""
    return "\r\n".join(["POST /hooks/program HTTP/1.1", f"Host: {g.url.partition('//')[2]}", *lines, "", ""]).encode()


async def test_nothing_is_read_before_the_signature_is_there(tmp_path: Path) -> None:
    """A request that announces a body and has no signature is answered although the body never comes."""
    async with serving(tmp_path / "home") as g:
        assert g.daemon.address is not None
        reader, writer = await asyncio.open_connection(*g.daemon.address)
        writer.write(head(g, "Content-Length: 200000"))
        async with deadline():
            assert (await reader.readline()).startswith(b"HTTP/1.1 401 ")
        writer.close()


async def test_an_address_has_a_limit_of_concurrent_requests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hooks, "OF_ONE_ADDRESS", 2)
    async with serving(tmp_path / "home") as g:
        assert g.daemon.address is not None
        open_ = [await asyncio.open_connection(*g.daemon.address) for _ in range(2)]
        signature = signed(b"x")["X-Signature-256"]
        for _, writer in open_:
            writer.write(head(g, f"X-Signature-256: {signature}", "Content-Length: 9"))
        async with deadline():
            while (await post(g, body_of()))[0] != 503:
                await asyncio.sleep(0.01)
        for _, writer in open_:
            writer.close()
        async with deadline():
            while (await post(g, body_of(id="2")))[0] != 200:
                await asyncio.sleep(0.01)


# --- out --------------------------------------------------------------------------------------------------------------


class Receiver:
    """Receives posts. `respond` returns the response to one, None to say nothing and close the connection."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[tuple[dict[str, str], dict[str, Any]]] = asyncio.Queue()
        self.respond: Callable[[dict[str, Any]], web.Response | None] = self._as_the_chat_says
        self.url = ""
        self.address = ("", 0)
        self._channel: Any = None

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Receiver]:
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_post("/posts", self._post)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/posts"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _post(self, request: web.Request) -> web.Response:
        body = await request.read()
        assert request.headers["X-Signature-256"] == signed(body)["X-Signature-256"]
        post = json.loads(body)
        if (response := self.respond(post)) is None:
            assert request.transport is not None
            request.transport.abort()
            return web.Response()
        if response.status == 200:
            self.heard.put_nowait((dict(request.headers), post))
        return response

    def _as_the_chat_says(self, post: dict[str, Any]) -> web.Response | None:
        if post["chat"] == "demolished":
            return web.Response(status=410)
        if post["chat"] == "crowded":
            return web.Response(status=429, headers={"Retry-After": "17"})
        return web.json_response({"id": "p1"})


@asynccontextmanager
async def sending(folder: Path, url: str | None, **own: Any) -> AsyncIterator[WebhookChannel]:
    settings = WebhookSettings(**{"secret": Secret(SECRET), "url": url, "private": True, **own})
    async with make_context(folder, settings, name="program") as context, WebhookChannel(context) as channel:
        yield channel


MESSAGE = OutboundMessage(id="s/1", chat="door", text="There is **tea**.")


async def test_a_reply_is_signed_and_has_its_id_as_key(tmp_path: Path) -> None:
    file = OutputFile(content=b"\x00tea", media="image/png", name="tea.png")
    message = msgspec.structs.replace(
        MESSAGE,
        thread="7",
        reply_to="1",
        again=True,
        choices=(Choice(id="/approve x", label="Approve"),),
        attachments=(file,),
    )
    async with Receiver().serving() as receiver, sending(tmp_path, receiver.url) as channel:
        assert await channel.deliver(message) == "p1"
        headers, post = await receiver.heard.get()
        assert await channel.check() == "Receives at /hooks/program, sends to 127.0.0.1."
    assert headers["Idempotency-Key"] == "s/1"
    assert post == {
        "id": "s/1",
        "timestamp": NOON.timestamp(),
        "chat": "door",
        "text": "There is **tea**.",
        "thread": "7",
        "reply_to": "1",
        "again": True,
        "choices": [{"id": "/approve x", "label": "Approve"}],
        "files": [{"content": base64.b64encode(b"\x00tea").decode(), "name": "tea.png", "media": "image/png"}],
    }


@pytest.mark.parametrize(
    ("status", "headers", "error", "after"),
    [
        (400, {}, Undeliverable, None),
        (401, {}, Undeliverable, None),
        (403, {}, Undeliverable, None),
        (410, {}, Undeliverable, None),
        (302, {"Location": "http://127.0.0.1:9/"}, Undeliverable, None),
        (408, {}, TryLater, webhook_channel.RETRY_SECONDS),
        (409, {}, TryLater, webhook_channel.RETRY_SECONDS),
        (429, {"Retry-After": "17"}, TryLater, 17.0),
        (429, {"Retry-After": "Sat, 21 Nov 2026 12:00:30 GMT"}, TryLater, 30.0),
        (429, {"Retry-After": "soon"}, TryLater, webhook_channel.RETRY_SECONDS),
        (503, {"Retry-After": "3"}, TryLater, 3.0),
        (503, {}, PluginError, None),
        (500, {}, PluginError, None),
    ],
)
async def test_the_status_decides_what_becomes_of_a_reply(
    tmp_path: Path, status: int, headers: dict[str, str], error: type[PluginError], after: float | None
) -> None:
    async with Receiver().serving() as receiver, sending(tmp_path, receiver.url) as channel:
        receiver.respond = lambda _: web.Response(status=status, headers=headers)
        with pytest.raises(PluginError) as refused:
            await channel.deliver(MESSAGE)
    assert type(refused.value) is error
    assert getattr(refused.value, "after", None) == after


async def test_a_reply_without_a_response_is_unknown(tmp_path: Path) -> None:
    async with Receiver().serving() as receiver, sending(tmp_path, receiver.url) as channel:
        receiver.respond = lambda _: None
        with pytest.raises(DeliveryUnknown, match=r"127\.0\.0\.1 did not respond"):
            await channel.deliver(MESSAGE)
    async with sending(tmp_path, "http://127.0.0.1:9/posts") as channel:
        with pytest.raises(PluginError, match="cannot be reached") as refused:
            await channel.deliver(MESSAGE)
        assert not isinstance(refused.value, DeliveryUnknown)
    async with sending(tmp_path, None) as channel:
        with pytest.raises(Undeliverable, match="no `url`"):
            await channel.deliver(MESSAGE)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "10.1.2.3", "169.254.169.254", "[::ffff:127.0.0.1]"])
async def test_private_addresses_are_reached_only_where_that_is_configured(tmp_path: Path, host: str) -> None:
    async with sending(tmp_path, f"https://{host}/posts", private=False) as channel:
        with pytest.raises(PluginError, match=r"not public\. `private = true` allows it"):
            await channel.deliver(MESSAGE)


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ({"secret": None}, "at least 24 characters"),
        ({"secret": Secret("short")}, "at least 24 characters"),
        ({"url": "ftp://example.org/"}, "begins with https://"),
        ({"url": "http://example.org/", "private": False}, "not encrypted"),
        ({"body_bytes": 0}, "`body_bytes` must be"),
        ({"body_bytes": 10**9}, "`body_bytes` must be"),
    ],
)
async def test_settings_that_cannot_be_used_are_named(tmp_path: Path, own: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsRefused, match=sentence):
        async with sending(tmp_path, **{"url": None, **own}):
            pass


# --- the kit ----------------------------------------------------------------------------------------------------------


class _HookRequest:
    """A request, as the gateway passes it on."""

    def __init__(self, body: bytes) -> None:
        self.headers = {name.lower(): value for name, value in signed(body).items()}
        self._body = body

    async def read(self, most: int) -> bytes:
        return self._body[:most]


class _Program(WebhookChannel):
    """The channel, which tells its inbox to the service of the kit."""

    inbox: Any = None

    async def run(self, inbox: Any) -> None:
        _Program.inbox, _Program.running = inbox, self
        await super().run(inbox)

    running: Any = None


class _Service(Receiver):
    """A program that talks to the channel without the gateway."""

    count = 0

    async def say(self, sender: str, chat: str, text: str) -> None:
        await until(lambda: _Program.inbox is not None)
        self.count += 1
        now = datetime(2026, 11, 21, 12, tzinfo=UTC).timestamp()
        body = body_of(id=str(self.count), sender=sender, chat=chat, text=text, timestamp=now)
        await _Program.running.handle(_HookRequest(body), _Program.inbox)

    async def hear(self) -> tuple[str, str]:
        _, post = await self.heard.get()
        return post["chat"], post["text"]


class TestConformance(ChannelConformance):
    channel = _Program
    deleted_chat = "demolished"
    busy_chat = "crowded"

    def service(self) -> AbstractAsyncContextManager[Any]:
        _Program.inbox = None
        return _Service().serving()

    def settings(self, service: Any) -> WebhookSettings:
        return WebhookSettings(secret=Secret(SECRET), url=service.url, private=True)
