"""Rooms of a real Synapse by short names: what the conformance kit calls `kitchen` is a room with people in it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import count
from typing import Any

import msgspec
import pytest

from plugins.api.channel import ChannelActivity, ChannelInbox, InboundMessage, OutboundMessage
from plugins.channels.matrix.matrix_channel import MatrixChannel, MatrixSettings
from plugins.channels.matrix.reader import KEYCAPS
from plugins.support.secrets import Secret
from tests.servers.synapse_server import PASSWORD, Person, SynapseServer, required

_NUMBERS = count(1)


@pytest.fixture(scope="module")
def synapse(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SynapseServer]:
    """A homeserver for the tests of a module."""
    required()
    with SynapseServer(tmp_path_factory.mktemp("synapse")) as server:
        yield server


@asynccontextmanager
async def person(server: SynapseServer, name: str = "ana") -> AsyncIterator[Person]:
    """Somebody with an account of their own on the server, whose id begins with the name."""
    unique = f"{name}{next(_NUMBERS)}"
    token = await asyncio.to_thread(server.register, unique)
    async with Person(server.url, unique, token) as made:
        yield made


def settings_for(server: SynapseServer, bot: Person, **more: Any) -> MatrixSettings:
    """The settings of a channel with an account of the server."""
    return MatrixSettings(homeserver=server.url, user=bot.user, password=Secret(PASSWORD), **more)


class Rooms:
    """Rooms and people by short names, made when they are first named. The channel's account is in each room."""

    def __init__(self, server: SynapseServer, bot: Person, people: dict[str, Person]) -> None:
        self.server = server
        self.bot = bot
        self.people = people
        self.rooms: dict[str, str] = {}
        self._last: dict[tuple[str, str], str] = {}
        self._heard: set[str] = set()
        self._making = asyncio.Lock()

    async def room(self, chat: str) -> str:
        """Return the id of a room."""
        async with self._making:
            if chat not in self.rooms:
                people = [each.user for name, each in self.people.items() if name != "ana"]
                room = await self.people["ana"].room(self.bot.user, *people)
                for each in (self.bot, *(each for name, each in self.people.items() if name != "ana")):
                    await each.join(room)
                if chat == "demolished":
                    await self.people["ana"].ask("POST", f"/_matrix/client/v3/rooms/{room}/kick", {"user_id": self.bot.user})
                self.rooms[chat] = room
                if chat == "crowded":
                    await self.limit()
        return self.rooms[chat]

    async def limit(self) -> None:
        """Limit how many messages the channel may send, and send one too many."""
        name = self.bot.user[1:].partition(":")[0]
        await asyncio.to_thread(self.server.limit, name, limited=True)
        with suppress(AssertionError):
            while True:
                await self.bot.say(next(iter(self.rooms.values())), "one too many")

    async def say(self, sender: str, chat: str, text: str) -> None:
        room = await self.room(chat)
        self._last[sender, chat] = await self.people[sender].say(room, text, m_mentions={"user_ids": [self.bot.user]})

    async def edit(self, sender: str, chat: str, text: str) -> None:
        event = self._last[sender, chat]
        relation = {"rel_type": "m.replace", "event_id": event}
        new = {"msgtype": "m.text", "body": text, "m.mentions": {"user_ids": [self.bot.user]}}
        content = {"msgtype": "m.text", "body": f"* {text}", "m.new_content": new, "m.relates_to": relation}
        await self.people[sender].send(await self.room(chat), content)

    async def press(self, sender: str, chat: str, label: str) -> None:
        room = await self.room(chat)
        post = (await self.people[sender].posts(room, self.bot.user, 1))[-1]
        (key,) = [
            key for key in KEYCAPS if re.search(rf"{key} {re.escape(label)}(?: ·|$)", post["content"]["body"], re.MULTILINE)
        ]
        await self.people[sender].react(room, post["event_id"], key)

    async def hear(self) -> tuple[str, str]:
        while True:
            for chat, room in self.rooms.items():
                for post in await self.people["ana"].posts(room, self.bot.user):
                    if post["event_id"] not in self._heard:
                        self._heard.add(post["event_id"])
                        return chat, str(post["content"]["body"])
            await asyncio.sleep(0.02)


@asynccontextmanager
async def rooms_of(server: SynapseServer) -> AsyncIterator[Rooms]:
    """Rooms with Ana, Ben and Eve."""
    async with AsyncExitStack() as stack:
        people = {name: await stack.enter_async_context(person(server, name)) for name in ("ana", "ben", "eve")}
        yield Rooms(server, await stack.enter_async_context(person(server, "bot")), people)


class NamedInbox:
    """Passes messages on with the short names of their rooms and senders."""

    def __init__(self, inbox: ChannelInbox, rooms: Rooms) -> None:
        self._inbox = inbox
        self._rooms = rooms

    async def knows(self, sender: str, *, mentioned: bool = True) -> bool:
        return await self._inbox.knows(sender, mentioned=mentioned)

    def bounced(self, chat: str, reason: str) -> None:
        self._inbox.bounced(chat, reason)

    def report(self, problem: str = "") -> None:
        self._inbox.report(problem)

    async def receive(self, message: InboundMessage) -> bool:
        (chat,) = [name for name, room in self._rooms.rooms.items() if room == message.chat]
        (sender,) = [name for name, each in self._rooms.people.items() if each.user == message.sender]
        return await self._inbox.receive(msgspec.structs.replace(message, chat=chat, sender=sender))


def named(rooms: Callable[[], Rooms]) -> type[MatrixChannel]:
    """Return the channel, with rooms and people by their short names."""

    class Named(MatrixChannel):
        async def run(self, inbox: ChannelInbox) -> None:
            await super().run(NamedInbox(inbox, rooms()))

        async def deliver(self, message: OutboundMessage) -> str:
            return await super().deliver(msgspec.structs.replace(message, chat=await rooms().room(message.chat)))

        async def show_activity(self, activity: ChannelActivity) -> None:
            await super().show_activity(msgspec.structs.replace(activity, chat=await rooms().room(activity.chat)))

    return Named
