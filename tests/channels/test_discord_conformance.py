"""The channel `discord` and the conformance checks for channels, with the fake of Discord."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from plugins.channels.discord.discord_channel import Discord, DiscordSettings
from plugins.support.secrets import Secret
from plugins.testing.channel_checks import ChannelConformance
from tests.servers.discord_server import TOKEN, DiscordServer
from tests.waiting import until


class People:
    """People and the chats of the checks on a fake, all direct messages."""

    def __init__(self, server: DiscordServer) -> None:
        self.server = server
        for sender in ("ana", "ben", "eve"):
            server.user(sender, number=sender)
        for chat in ("kitchen", "garden", "attic", "street", "crowded"):
            server.dm("ana", number=chat)
        server.busy["crowded"] = 40.0

    async def say(self, sender: str, chat: str, text: str) -> None:
        await until(lambda: any(session.connection for session in self.server.sessions.values()))
        self.server.say(sender, chat, text)

    async def edit(self, sender: str, chat: str, text: str) -> None:
        message = [each for each in self.server.messages[chat] if each["author"]["id"] == sender][-1]
        self.server.edit(message, text)

    async def press(self, sender: str, chat: str, label: str) -> None:
        await until(lambda: any(session.connection for session in self.server.sessions.values()))
        self.server.press(sender, self.server.posts(chat)[-1], label)

    async def hear(self) -> tuple[str, str]:
        message = await self.server.sent.get()
        return message["channel_id"], message["content"]


class TestDiscord(ChannelConformance):
    channel = Discord
    deleted_chat = "demolished"
    busy_chat = "crowded"
    edits = True
    buttons = True

    @asynccontextmanager
    async def service(self) -> AsyncIterator[People]:
        async with DiscordServer() as server:
            yield People(server)

    def settings(self, service: People) -> DiscordSettings:
        return DiscordSettings(token=Secret(TOKEN), base_url=service.server.base_url)
