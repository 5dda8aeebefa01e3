"""The fake of Discord, judged by two widely used clients: discord.py and hikari live through the same story with it."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.servers.discord_server import BOT, TOKEN, DiscordServer
from tests.waiting import deadline, until

REQUIRED = "EXUVIA_TESTS_DISCORD_CLIENTS"
"""The variable that says that these tests must not be skipped."""

PYTHON = Path(sys.prefix) / "discord-clients" / "bin" / "python"


@pytest.fixture(params=["with_discord_py", "with_hikari"])
async def server(request: pytest.FixtureRequest) -> AsyncIterator[DiscordServer]:
    """A server to which a bot of one of the libraries is connected."""
    if not PYTHON.exists():
        (pytest.fail if os.environ.get(REQUIRED) else pytest.skip)("discord.py is not installed: run `make discord-clients`")
    script = Path(__file__).with_name("discord_clients") / f"{request.param}.py"
    async with DiscordServer(heartbeat=500) as fake:
        fake.guild("Home")
        bot = await asyncio.create_subprocess_exec(
            PYTHON, script, fake.base_url, fake.gateway_url, TOKEN, stdout=asyncio.subprocess.DEVNULL
        )
        try:
            await until(lambda: fake.identified)
            yield fake
        finally:
            bot.kill()
            await bot.wait()


async def answer(server: DiscordServer, channel: str, text: str) -> None:
    """Wait until the bot has posted a text as its last one in a channel."""
    await until(lambda: (posts := server.posts(channel)) and posts[-1]["content"] == text)


async def test_a_client_takes_part_in_direct_messages_channels_threads_and_forums(server: DiscordServer) -> None:
    ana = server.user("Ana")
    room = server.text_channel(next(iter(server.guilds)), "general")
    post = server.thread(server.text_channel(next(iter(server.guilds)), "forum", kind=15), "a post")
    for channel in (server.dm(ana), room, server.thread(room, "topic"), post):
        message = server.say(ana, channel, "ask me", files={"notes.txt": b"some notes"})
        await answer(server, channel, "echo: ask me")
        reply = server.posts(channel)[0]
        assert reply["message_reference"]["message_id"] == message["id"]
        assert server.next_file("notes.txt") == b"some notes"
        assert channel in server.typing

        press = server.press(ana, reply, "Yes")
        await answer(server, channel, "pressed: yes-1")
        assert server.interactions[press]["answer"]["type"] == 6
        server.edit(message, "ask you")
        await answer(server, channel, "edited: ask you")
        server.react(ana, reply, "👍")
        await answer(server, channel, "reaction: 👍")
        server.delete(message)
        await answer(server, channel, "deleted")


async def test_a_client_resumes_its_session_and_misses_nothing(server: DiscordServer) -> None:
    ana = server.user("Ana")
    channel = server.dm(ana)
    server.say(ana, channel, "one")
    await answer(server, channel, "echo: one")
    server.sever()
    server.say(ana, channel, "two")  # while the client is away
    await answer(server, channel, "echo: two")
    server.tell(7)
    await until(lambda: server.resumed == 2)
    server.say(ana, channel, "three")
    await answer(server, channel, "echo: three")
    server.tell(1)
    assert [post["content"] for post in server.posts(channel)] == ["echo: one", "echo: two", "echo: three"]
    assert server.identified == 1


async def test_a_client_starts_a_session_anew_when_its_own_is_invalid(server: DiscordServer) -> None:
    ana = server.user("Ana")
    channel = server.dm(ana)
    server.tell(9, data=False)
    await until(lambda: server.identified == 2)
    await until(lambda: any(session.connection for session in server.sessions.values()))
    server.say(ana, channel, "hello")
    await answer(server, channel, "echo: hello")


async def test_a_client_waits_as_a_rate_limit_says(server: DiscordServer) -> None:
    ana = server.user("Ana")
    channel = server.dm(ana)
    server.limits["POST /channels/{channel}/messages"] = 2, 0.5
    for number in range(4):  # each waits, and a client gives a request up after five refusals
        server.say(ana, channel, str(number))
    await until(lambda: len(server.posts(channel)) == 4)
    assert {post["author"]["id"] for post in server.posts(channel)} == {BOT}


async def test_a_client_notices_a_connection_that_is_dead(server: DiscordServer) -> None:
    async with deadline():
        server.acknowledges = False
        await until(lambda: server.resumed)
        server.acknowledges = True
