"""The story of the channel `discord`, with the fake of Discord: direct messages, a channel of a server, and its thread."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from tests.channels.link import Link
from tests.channels.story import StoryService, fenced
from tests.servers.discord_server import BOT, TOKEN, DiscordServer
from tests.waiting import until

POST = "POST /channels/{channel}/messages"
MANY = 20
"""More attempts than are made while posts are refused."""


class Story(StoryService):
    """The fake behind a link. Now and then it forgets its sessions, so that what happened since is in none of them."""

    chats = ("direct", "general", "thread")
    timers = ("plugins.channels.discord.discord_progress.IDLE_SAVE_SECONDS",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.server = DiscordServer(heartbeat=2_000)
        self._channels: dict[str, str] = {}

    async def __aenter__(self) -> Self:
        await self.server.__aenter__()
        self._link = await Link(self.server.port).__aenter__()
        self.links = (self._link,)
        self.server.public_port = self._link.port
        self._ana = self.server.user("Ana")
        general = self.server.text_channel(self.server.guild("Home"), "general")
        self._channels = {
            "direct": self.server.dm(self._ana),
            "general": general,
            "thread": self.server.thread(general, "a thread"),
        }
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._link.__aexit__(kind, error, trace)
        await self.server.__aexit__(kind, error, trace)

    def compress(self, factor: float) -> None:
        self.server.heartbeat = round(41_250 / factor)

    @asynccontextmanager
    async def refusing(self, status: int) -> AsyncIterator[None]:
        code = {400: 200_000, 403: 50_013}[status]  # automatic moderation; a permission is missing
        self.server.failures[POST] += [(status, {"code": code, "message": "No."}, {})] * MANY
        yield
        self.server.failures[POST].clear()

    async def limit(self, seconds: int) -> Callable[[], bool]:
        told = {"message": "You are being rate limited.", "retry_after": float(seconds), "global": False}
        self.server.failures[POST].append((429, told, {"Retry-After": str(seconds)}))
        return lambda: not self.server.failures[POST]

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        self.server.busy.update(dict.fromkeys(self._channels.values(), 0.5))
        try:
            yield
        finally:
            self.server.busy.clear()

    def configuration(self) -> str:
        return (
            f'[channels.discord]\nkind = "discord"\ntoken = "{TOKEN}"\nbase_url = "{self.server.base_url}"\n'
            f'people = {{ "{self._ana}" = "owner" }}\nmessages_per_minute = 1000000\n'
        )

    async def say(self, chat: str, text: str) -> None:
        state, channel = self.folder.parent / "home" / "channels" / "discord" / "state.json", self._channels[chat]
        await until(state.exists)  # what is said before the bot was ever there is not for it
        text = text if chat == "direct" else f"<@{BOT}> {text}"
        self.server.say(self._ana, channel, text)
        if chat == "direct":  # Discord lists nowhere who has written to a bot: it must have heard of the chat
            await until(lambda: channel in state.read_text())

    async def attack(self, name: str, text: str) -> None:
        await until((self.folder.parent / "home" / "channels" / "discord" / "state.json").exists)
        self.server.users[self._ana] |= {"username": name, "global_name": name}
        self.server.say(self._ana, self._channels["direct"], text, files={text: b"tea"})

    async def react(self, emoji: str) -> None:
        self.server.react(self._ana, self.server.posts(self._channels["direct"])[-1], emoji)

    async def posts(self, chat: str) -> Sequence[str]:
        return [post["content"] for post in self.server.posts(self._channels[chat])]

    async def code(self, chat: str) -> Sequence[str]:
        return [code for text in await self.posts(chat) for code in fenced(text)]

    async def sever(self, dice: random.Random) -> None:
        match dice.choice(("cut", "cut", "cut", "forget", "reconnect", "invalid")):
            case "cut":
                await super().sever(dice)
            case "forget":
                self.server.forget_sessions()
            case "reconnect":
                self.server.tell(7)
            case "invalid":
                self.server.tell(9, data=False)
