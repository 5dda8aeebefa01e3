"""The story of the channel Matrix, against a real Synapse: a private room, a group, and an encrypted room with
matrix-nio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from tests.channels.link import Link
from tests.channels.story import StoryService
from tests.servers.synapse_server import PASSWORD, NioPerson, Person, SynapseServer
from tests.waiting import deadline

TABLE = """
[channels.matrix]
kind = "matrix"
homeserver = "http://127.0.0.1:{port}"
user = "{bot}"
password = "{password}"
people = {{ "*" = "owner" }}
messages_per_minute = 1000000
"""


class Story(StoryService):
    """Ana and the assistant, the two with Ben, and Nia and the assistant where it is encrypted."""

    chats: ClassVar[Sequence[str]] = ("private", "group", "encrypted")
    timers: ClassVar[Sequence[str]] = ("plugins.channels.matrix.matrix_api.SYNC_SECONDS",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = SynapseServer(folder / "synapse")
        self._rooms: dict[str, str] = {}
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        enter = self._stack.enter_async_context
        self._stack.enter_context(self._server)
        self.links = (await enter(Link(self._server.port)),)
        tokens = {name: await asyncio.to_thread(self._server.register, name) for name in ("bot", "ana", "ben", "nia")}
        people = {name: await enter(Person(self._server.url, name, token)) for name, token in tokens.items()}
        self._bot, self._ana = people["bot"], people["ana"]
        self._nia = await enter(NioPerson(self._server.url, "nia", self.folder / "nio"))
        self._rooms["private"] = await self._ana.room(self._bot.user)
        self._rooms["group"] = await self._ana.room(self._bot.user, people["ben"].user)
        await people["ben"].join(self._rooms["group"])
        self._rooms["encrypted"] = await self._nia.ask("room", [self._bot.user])
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def refusing(self, status: int) -> AsyncIterator[None]:
        path = f"/_matrix/client/v3/rooms/{self._rooms['private']}/state/m.room.power_levels"
        levels = await self._ana.ask("GET", path)
        await self._ana.ask("PUT", path, levels | {"events_default": 50})
        yield
        await self._ana.ask("PUT", path, levels)

    async def limit(self, seconds: int) -> Callable[[], bool]:
        """Limit the account to a message in two seconds, and send one too many."""
        await asyncio.to_thread(self._server.limit, "bot", limited=True)
        with suppress(AssertionError):
            while True:
                await self._bot.say(self._rooms["group"], "one too many")
        return lambda: True

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        await asyncio.to_thread(self._server.limit, "bot", limited=True)
        try:
            yield
        finally:
            await asyncio.to_thread(self._server.limit, "bot", limited=False)

    def configuration(self) -> str:
        return TABLE.format(port=self.links[0].port, bot=self._bot.user, password=PASSWORD)

    def strangers(self) -> str:
        return super().strangers() + 'invitations = "everyone"\n'

    async def say(self, chat: str, text: str) -> None:
        room = self._rooms[chat]
        if chat != "encrypted":
            await self._ana.say(room, text, m_mentions={"user_ids": [self._bot.user]})
            return
        async with deadline():  # until the client has seen that the assistant has joined
            while self._bot.user not in await self._nia.ask("members", room):
                await asyncio.sleep(0.05)
        await self._nia.ask("say", room, {"msgtype": "m.text", "body": text})

    async def attack(self, name: str, text: str) -> None:
        name, text, room = name.replace("\0", ""), text.replace("\0", ""), self._rooms["private"]
        async with deadline():
            while self._bot.user not in await self._ana.members(room):
                await asyncio.sleep(0.05)
        member = {"membership": "join", "displayname": name}
        path = f"/_matrix/client/v3/rooms/{room}/state/m.room.member/{self._ana.user}"
        await self._ana.ask("PUT", path, member)
        address = await self._ana.upload(b"tea")
        html = {"format": "org.matrix.custom.html", "formatted_body": text}
        await self._ana.send(room, {"msgtype": "m.file", "body": text, "filename": text, "url": address, **html})
        await self._ana.say(room, text, **html)

    async def react(self, emoji: str) -> None:
        room = self._rooms["private"]
        await self._ana.react(room, (await self._ana.posts(room, self._bot.user, 1))[-1]["event_id"], emoji)

    async def posts(self, chat: str) -> Sequence[str]:
        room = self._rooms[chat]
        found: list[dict[str, Any]]
        if chat == "encrypted":
            found = await self._nia.posts(room, self._bot.user)
        else:
            found = await self._ana.posts(room, self._bot.user)
        return [str(event["content"]["body"]) for event in found]
