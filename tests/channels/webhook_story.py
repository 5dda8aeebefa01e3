"""The story of `webhook`: a program that sends each message until it is stored, and knows a post by its Idempotency-Key."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import aiohttp
from aiohttp import web

from tests.channels.link import Link
from tests.channels.story import StoryService, fenced

SECRET = "a-secret-for-signatures-1234567890"

CONFIGURATION = """
[channels.program]
kind = "webhook"
secret = "{secret}"
url = "http://127.0.0.1:{port}/posts"
private = true
messages_per_minute = 1000000
people = {{ "*" = "owner" }}
"""

MANY = 20
"""More attempts than are made while posts are refused."""


def signed(body: bytes, secret: str = SECRET) -> dict[str, str]:
    """Return the headers of a request, signed with openssl's algorithm and not with the channel's code."""
    digest = hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    return {"X-Signature-256": f"sha256={digest}", "Content-Type": "application/json"}


class Story(StoryService):
    """The program."""

    chats: ClassVar[Sequence[str]] = ("tickets", "alerts", "door")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._queues: dict[str, asyncio.Queue[dict[str, Any]]] = {chat: asyncio.Queue() for chat in self.chats}
        self._posts: dict[str, tuple[str, str]] = {}
        self._count = 0
        self._limited = False
        self._refusals: list[web.Response] = []
        self._expected: Sequence[int] = (200, 503)

    async def __aenter__(self) -> Self:
        app = web.Application()
        app.router.add_post("/posts", self._post)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0).start()
        self.links = (
            await Link(self._runner.addresses[0][1]).__aenter__(),
            await Link(self.gateway_port).__aenter__(),
        )
        self._http = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20))
        self._tasks = [asyncio.create_task(self._send(chat)) for chat in self.chats]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)
        await self._http.close()
        for link in self.links:
            await link.__aexit__(None, None, None)
        await self._runner.cleanup()

    @asynccontextmanager
    async def refusing(self, status: int) -> AsyncIterator[None]:
        self._refusals = [web.Response(status=status) for _ in range(MANY)]
        yield
        self._refusals.clear()

    async def limit(self, seconds: int) -> Callable[[], bool]:
        self._refusals = [web.Response(status=429, headers={"Retry-After": str(seconds)})]
        return lambda: not self._refusals

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        self._limited = True
        try:
            yield
        finally:
            self._limited = False

    def configuration(self) -> str:
        return CONFIGURATION.format(secret=SECRET, port=self.links[0].port)

    async def say(self, chat: str, text: str) -> None:
        self._message(chat, text=text)

    async def attack(self, name: str, text: str) -> None:
        self._expected = (200, 403, 503)
        file = {"name": text, "media": text, "content": base64.b64encode(b"tea").decode()}
        self._message(self.chats[0], name=name, text=text, files=[file])

    async def react(self, emoji: str) -> None:
        self._message(self.chats[0], reaction=emoji, reacts_to=f"p{len(self._posts)}")

    def _message(self, chat: str, **fields: Any) -> None:
        self._count += 1
        self._queues[chat].put_nowait({"id": str(self._count), "sender": "ana", "chat": chat, **fields})

    async def posts(self, chat: str) -> Sequence[str]:
        for task in self._tasks:
            if task.done():
                task.result()  # raises what ended it
        return [text for place, text in self._posts.values() if place == chat]

    async def code(self, chat: str) -> Sequence[str]:
        return [code for text in await self.posts(chat) for code in fenced(text)]

    async def _send(self, chat: str) -> None:
        """Send the messages of a chat in order, each until it is stored."""
        while True:
            message = await self._queues[chat].get()
            while not await self._sent(message):
                await asyncio.sleep(0.1)

    async def _sent(self, message: dict[str, Any]) -> bool:
        body = json.dumps({**message, "timestamp": time.time()}).encode()
        url = f"http://127.0.0.1:{self.links[1].port}/hooks/program"
        headers = signed(body) | {"Host": f"127.0.0.1:{self.gateway_port}"}
        try:
            async with self._http.post(url, data=body, headers=headers) as response:
                assert response.status in self._expected, await response.text()
                return response.status != 503
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False

    async def _post(self, request: web.Request) -> web.Response:
        body = await request.read()
        if self._refusals:
            return self._refusals.pop()
        if self._limited:
            return web.Response(status=429, headers={"Retry-After": "1"})
        assert request.headers["X-Signature-256"] == signed(body)["X-Signature-256"]
        post = json.loads(body)
        assert post["id"] == request.headers["Idempotency-Key"]
        self._posts.setdefault(post["id"], (post["chat"], post["text"]))
        return web.json_response({"id": f"p{len(self._posts)}"})
