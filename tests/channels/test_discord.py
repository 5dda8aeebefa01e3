"""The channel `discord` with the fake of Discord: what arrives, what is posted, and what happens when connections break."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from plugins.api.channel import InboundMessage
from plugins.channels.discord.discord_channel import Discord, DiscordSettings
from plugins.support.secrets import Secret
from plugins.testing.channel_checks import RecordingInbox
from plugins.testing.contexts import make_context
from tests.servers.discord_server import BOT, TOKEN, DiscordServer
from tests.waiting import deadline, until


class Bot:
    """The running channel on a fake with a server "Home", its channel "general", and the direct messages of Ana."""

    def __init__(self, server: DiscordServer, folder: Path) -> None:
        self.server = server
        self.folder = folder
        self.ana = server.user("Ana")
        self.direct = server.dm(self.ana)
        self.home = server.guild("Home")
        self.general = server.text_channel(self.home, "general")
        self.inbox = RecordingInbox()
        self.known: set[str] = set()
        self.channel: Discord
        self.run: asyncio.Task[None]

    @asynccontextmanager
    async def running(self, **settings: Any) -> AsyncIterator[Discord]:
        """Run the channel until the block ends, with the state of the one before."""
        options = DiscordSettings(token=Secret(TOKEN), base_url=self.server.base_url, **settings)
        async with make_context(self.folder, options) as context, Discord(context) as self.channel:
            self.run = running = asyncio.create_task(self.channel.run(self.inbox))
            try:
                await until(lambda: running.done() or any(each.connection for each in self.server.sessions.values()))
                yield self.channel
            finally:
                running.cancel()
                await asyncio.wait([running])

    async def arrival(self) -> InboundMessage:
        """Return the next message that is new: what comes again the gateway knows by its id."""
        while True:
            waiting = asyncio.create_task(self.inbox.arrived.get())
            async with deadline():
                await asyncio.wait([waiting, self.run], return_when=asyncio.FIRST_COMPLETED)
            if self.run.done():
                self.run.result()
            if (message := await waiting).id not in self.known:
                self.known.add(message.id)
                return message

    async def texts(self, count: int) -> list[str]:
        return [(await self.arrival()).text for _ in range(count)]


@pytest.fixture
async def server() -> AsyncIterator[DiscordServer]:
    async with DiscordServer() as fake:
        yield fake


@pytest.fixture
def bot(server: DiscordServer, tmp_path: Path) -> Bot:
    return Bot(server, tmp_path)


# --- what was missed ------------------------------------------------------------------------------------------------------


async def test_what_is_written_while_the_connection_is_down_arrives_by_resuming(bot: Bot, server: DiscordServer) -> None:
    async with bot.running():
        server.say(bot.ana, bot.direct, "one")
        assert await bot.texts(1) == ["one"]
        server.sever()
        server.say(bot.ana, bot.direct, "two")
        server.say(bot.ana, bot.general, f"<@{BOT}> three")
        assert sorted(await bot.texts(2)) == ["three", "two"]
    assert (server.identified, server.resumed) == (1, 1)


async def test_what_is_written_while_the_gateway_is_stopped_arrives_by_resuming(bot: Bot, server: DiscordServer) -> None:
    async with bot.running():
        server.say(bot.ana, bot.direct, "one")
        assert await bot.texts(1) == ["one"]
    server.say(bot.ana, bot.direct, "two")
    async with bot.running():
        assert await bot.texts(1) == ["two"]
    assert (server.identified, server.resumed) == (1, 1)


@pytest.mark.parametrize("lost", [lambda server: server.forget_sessions(), lambda server: server.tell(9, data=False)])
async def test_what_is_in_no_session_is_fetched_in_order(
    bot: Bot, server: DiscordServer, lost: Callable[[DiscordServer], None]
) -> None:
    quiet = server.text_channel(bot.home, "quiet")
    thread = server.thread(bot.general, "a thread")
    async with bot.running():
        server.say(bot.ana, bot.direct, "one")
        server.say(bot.ana, bot.general, f"<@{BOT}> two")
        assert sorted(await bot.texts(2)) == ["one", "two"]
        lost(server)
        for number in range(250):
            server.say(bot.ana, bot.direct, f"missed {number}")
        for channel in (bot.general, quiet, thread):
            server.say(bot.ana, channel, f"<@{BOT}> missed in {channel}")
        arrived = [await bot.arrival() for _ in range(253)]
        assert [each.text for each in arrived if not each.group] == [f"missed {n}" for n in range(250)]
        assert {(each.chat, each.thread) for each in arrived if each.group} == {
            (bot.general, ""), (quiet, ""), (bot.general, thread)
        }  # fmt: skip
    assert server.identified == 2
