"""A service with a channel of a plugin to it, over a real socket: each line is a message, and answers come back as lines."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.waiting import deadline

LINES = '''
import asyncio, json, msgspec
from exuvia import Channel, ChannelInbox, InboundFile, InboundMessage, MessageRejected, OutboundMessage, PluginContext
from exuvia import TryLater, Undeliverable, hookimpl

class Settings(msgspec.Struct, frozen=True):
    port: int = 0

class Lines:
    """Lines of JSON: {"id", "from", "room", "text", …} in, {"id", "room", "text", …} out, {"ok"} or {"no"} for what came
    in. The first word of an answer may say that it is not delivered; `tried` holds the text of each attempt and its
    time."""

    name = "lines"
    tried = []
    broken = True

    def __init__(self, context):
        self._port = context.settings.port

    async def __aenter__(self):
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_):
        self._writer.close()

    async def run(self, desk):
        while line := await self._reader.readline():
            said = json.loads(line)
            if bounced := said.pop("bounced", ""):
                desk.bounced(said["room"], bounced)
                continue
            files = tuple(InboundFile(name=name, content=text.encode()) for name, text in said.pop("files", {}).items())
            named = {"sender": said.pop("from"), "chat": said.pop("room"), "attachments": files}
            arrival = InboundMessage(**said, **named)
            try:
                self._say({"ok": said["id"], "new": await desk.receive(arrival)})
            except MessageRejected as error:
                self._say({"no": said["id"], "why": str(error), "later": error.later, "tell": error.tell})

    async def deliver(self, delivery):
        self.tried.append((delivery.text, asyncio.get_running_loop().time()))
        again = len([text for text, _ in self.tried if text == delivery.text]) > 1
        match delivery.text.split():
            case ["never", *_]:
                raise Undeliverable("The room is gone.")
            case ["later", seconds, *_] if not again:
                raise TryLater(after=float(seconds))
            case ["always", "later"]:
                raise TryLater(0.05, "Too much is said here.")
            case ["broken", *_] if self.broken:
                raise RuntimeError("It cannot be said.")
            case ["cancelled", *_] if not again:
                raise asyncio.CancelledError
        thread = {"thread": delivery.thread} if delivery.thread else {}
        buttons = {"buttons": {each.label: each.id for each in delivery.choices}} if delivery.choices else {}
        if delivery.attachments:
            buttons = buttons | {"files": {each.name: each.content.decode() for each in delivery.attachments}}
        self._say({"id": delivery.id, "room": delivery.chat, "text": delivery.text, **thread, **buttons})
        await self._writer.drain()
        return "seen " + delivery.id

    def _say(self, value):
        self._writer.write(json.dumps(value).encode() + b"\\n")

@hookimpl
def register_channels():
    return [Lines]
'''


class Elsewhere:
    """The service behind the channel, which accepts one connection at a time."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self.connections = 0
        self.port = 0
        self._server: asyncio.Server
        self._writer: asyncio.StreamWriter
        self._connected = asyncio.Event()
        self._kept: list[dict[str, Any]] = []
        self._last = ""

    async def open(self) -> None:
        """Listen, always at the same place."""
        self._server = await asyncio.start_server(self.connected, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        """Stop listening and drop the connection."""
        self._server.close()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writer, self.connections = writer, self.connections + 1
        self._connected.set()
        while line := await reader.readline():
            self.heard.put_nowait(said := json.loads(line))
            if said.get("ok") == self._last:
                self.close()
                self.hang_up()
        writer.close()

    async def say(self, text: str, *, id_: str = "1", sender: str = "ana", room: str = "kitchen", **fields: Any) -> None:
        async with deadline():
            await self._connected.wait()
        line = {"id": id_, "from": sender, "room": room, "text": text, **fields}
        self._writer.write(json.dumps(line).encode() + b"\n")

    async def hear(self) -> dict[str, Any]:
        async with deadline():
            return await self.heard.get()

    async def until_heard(self, **fields: object) -> dict[str, Any]:
        """Wait for a line with these fields; other lines are kept."""
        async with deadline():
            while True:
                line = await self.heard.get()
                self._kept.append(line)
                if all(line.get(name) == value for name, value in fields.items()):
                    return line

    async def rest(self) -> list[dict[str, Any]]:
        """Return the answers received so far."""
        while not self.heard.empty():
            self._kept.append(self.heard.get_nowait())
        return [line for line in self._kept if "room" in line]

    def closes_after(self, id_: str) -> None:
        """Stop listening and drop the connection as soon as the gateway has taken this message."""
        self._last = id_

    def hang_up(self) -> None:
        self._connected.clear()
        self._writer.close()
