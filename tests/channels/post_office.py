"""A service for tests of the story itself, with a channel in a plugin: messages wait until they are acknowledged, and posts
are deduplicated by their id."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.channels.link import Link
from tests.channels.story import StoryService
from tests.faults.gateway_process import ROOT

POST = '''
import asyncio, json, msgspec
from exuvia import InboundMessage, MessageRejected, hookimpl

class Settings(msgspec.Struct, frozen=True):
    port: int = 0
    fault: str = ""

class Post:
    """A channel that is right unless `fault` names what it does wrong."""

    name = "post"

    def __init__(self, context):
        self._port, self._fault = context.settings.port, context.settings.fault
        self._sent, self._tried, self._late, self._held, self._writer = {}, set(), None, None, None

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        pass

    async def run(self, inbox):
        while True:
            try:
                reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
                while line := await reader.readline():
                    await self._take(json.loads(line), inbox)
            except OSError:
                pass
            for waiting in self._sent.values():
                waiting.cancel()
            await asyncio.sleep(0.05)

    async def _take(self, said, inbox):
        if "posted" in said:
            if (waiting := self._sent.pop(said["posted"], None)) is not None and not waiting.done():
                waiting.set_result(None)
            return
        if self._fault == "acknowledges early":
            self._say({"ack": said["id"]})
            said, self._late = self._late, said
            if said is None:
                return
        message = InboundMessage(id=said["id"], sender=said["from"], chat=said["chat"], text=said["text"])
        if self._fault == "new ids":
            message = msgspec.structs.replace(message, id=f"{message.id}-{id(message)}-{asyncio.get_running_loop().time()}")
            await inbox.receive(message)
            message = msgspec.structs.replace(message, id=f"{message.id}-again")
        while True:
            try:
                await inbox.receive(message)
                break
            except MessageRejected as error:
                if not error.later:
                    break
                await asyncio.sleep(0.05)
        self._say({"ack": said["id"]})

    def _say(self, value):
        self._writer.write(json.dumps(value).encode() + b"\\n")

    async def deliver(self, message):
        first = message.id not in self._tried
        self._tried.add(message.id)
        id = f"{message.id} {first}" if self._fault == "posts again" else message.id
        text = message.text
        if self._fault == "skips" and "n3." in text:
            return "skipped"
        if self._fault == "loses ends":
            text = text[:1500]
        if self._fault == "reorders" and "n2." in text and first:
            self._held = message
            return "held"
        await self._post(id, message.chat, text)
        if self._held is not None and self._held.chat == message.chat:
            await self._post(self._held.id, message.chat, self._held.text)
            self._held = None
        if self._fault == "posts again" and first:
            raise RuntimeError("Nobody knows whether it was posted.")
        return "posted"

    async def _post(self, id, chat, text):
        if self._writer is None or self._writer.is_closing():
            raise ConnectionError("There is no connection.")
        self._sent[id] = waiting = asyncio.get_running_loop().create_future()
        self._say({"post": id, "chat": chat, "text": text})
        await asyncio.wait([waiting])
        if waiting.cancelled():
            raise ConnectionError("The connection was lost.")

@hookimpl
def register_channels():
    return [Post]
'''


class PostOffice(StoryService):
    """The service, in this process; the gateway's channel is right unless `fault` names what it does wrong."""

    chats = ("kitchen", "garden", "attic")

    def __init__(self, folder: Path, fault: str = "") -> None:
        super().__init__(folder)
        self._fault = fault
        self._waiting: dict[str, dict[str, str]] = {}
        self._posts: dict[str, tuple[str, str]] = {}
        self._writers: set[asyncio.StreamWriter] = set()
        self._count = 0

    async def __aenter__(self) -> Self:
        info = self.folder / "post-1.0.dist-info"
        info.mkdir()
        (self.folder / "post.py").write_text(POST)
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: post\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text("[exuvia]\npost = post\n")
        self._server = await asyncio.start_server(self._enter, "127.0.0.1", 0)
        self.links = (await Link(self._server.sockets[0].getsockname()[1]).__aenter__(),)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.links[0].__aexit__(None, None, None)
        self._server.close()

    def configuration(self) -> str:
        return (
            '[plugins]\nallow = ["post"]\nsenders = { "post:*" = "owner" }\n'
            f'[plugins.post]\nport = {self.links[0].port}\nfault = "{self._fault}"\n'
        )

    def environment(self) -> dict[str, str]:
        return {"PYTHONPATH": os.pathsep.join([str(ROOT), str(self.folder)])}

    async def say(self, chat: str, text: str) -> None:
        self._count += 1
        message = {"id": str(self._count), "from": f"guest-{self._count}", "chat": chat, "text": text}
        self._waiting[message["id"]] = message
        for writer in self._writers:
            writer.write(_line(message))

    async def posts(self, chat: str) -> Sequence[str]:
        return [text for place, text in self._posts.values() if place == chat]

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        for message in self._waiting.values():
            writer.write(_line(message))
        try:
            while line := await reader.readline():
                said = json.loads(line)
                if "ack" in said:
                    self._waiting.pop(said["ack"], None)
                else:
                    self._posts.setdefault(said["post"], (said["chat"], said["text"]))
                    writer.write(_line({"posted": said["post"]}))
        except (OSError, ValueError):  # the connection was cut, perhaps in the middle of a line
            pass
        finally:
            self._writers.discard(writer)
            writer.close()


def _line(value: dict[str, Any]) -> bytes:
    return json.dumps(value).encode() + b"\n"
