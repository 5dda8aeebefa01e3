"""The fake of Telegram's Bot API, as two widely used clients see it: python-telegram-bot and aiogram."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.pictures import png
from tests.servers.telegram_rules import Json
from tests.servers.telegram_server import Fault, TelegramServer
from tests.waiting import deadline, until

CLIENTS = Path(__file__).parent / "telegram_clients"
PYTHON = Path(sys.prefix) / "telegram-clients" / "bin" / "python"
REQUIRED = "EXUVIA_TESTS_TELEGRAM_CLIENTS"
"""The variable that says that these tests must not be skipped."""

ANA, GROUP = 11, -1000000000044


pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module", params=["ptb", "aiogram"])
async def running(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[TelegramServer]:
    """The fake, with a bot that is written with a client. Its start takes two seconds of processor time."""
    if not PYTHON.exists():
        if os.environ.get(REQUIRED):
            pytest.fail(f"{PYTHON} is not installed, and {REQUIRED} is set")
        pytest.skip("run `make telegram-clients`")
    async with TelegramServer() as server:
        server.user(ANA, "Ana", username="ana")
        server.group(GROUP, "Kitchen", forum=True)
        command = [str(PYTHON), str(CLIENTS / f"with_{request.param}.py"), server.url, server.token]
        written = tmp_path_factory.mktemp(request.param) / "output"
        with written.open("wb") as output:
            client = await asyncio.create_subprocess_exec(*command, stdout=output, stderr=subprocess.STDOUT)
        try:
            await until(lambda: server.called("getUpdates") or client.returncode is not None)
            assert client.returncode is None, written.read_text()
            yield server
        finally:
            client.kill()
            await client.wait()
            print(written.read_text())  # noqa: T201 - shown where the last test fails


@pytest_asyncio.fixture(loop_scope="module")
async def telegram(running: TelegramServer) -> TelegramServer:
    """The same, with nothing that an earlier test left."""
    await until(lambda: running.unconfirmed() == 0)
    running.posts.clear()
    running.actions.clear()
    return running


async def post(server: TelegramServer, number: int = 0) -> Json:
    """Return a post of the bot once it is there."""
    await until(lambda: len(server.posts) > number)
    return server.posts[number]


async def test_messages_are_answered(telegram: TelegramServer) -> None:
    said = await telegram.say(ANA, ANA, "Is there tea? 😀")
    answered = await post(telegram)
    assert answered["text"] == "echo: Is there tea? 😀"
    assert answered["entities"] == [{"type": "bold", "offset": 0, "length": 4}]
    assert answered["reply_to_message"]["message_id"] == said["message_id"]
    assert telegram.actions == [(ANA, "typing")]
    assert [command["command"] for command in telegram.commands] == ["help"]
    await until(lambda: telegram.unconfirmed() == 0)


async def test_edited_messages_and_reactions_arrive(telegram: TelegramServer) -> None:
    said = await telegram.say(ANA, ANA, "tee")
    answered = await post(telegram)
    await telegram.edit(said, "tea")
    assert (await post(telegram, 1))["text"] == "edited: tea"
    await telegram.react(ANA, answered, "👍")
    assert (await post(telegram, 2))["text"] == "reaction: 👍"


async def test_buttons_are_pressed(telegram: TelegramServer) -> None:
    await telegram.say(ANA, ANA, "ask me")
    asked = await post(telegram)
    query = await telegram.press(ANA, asked, "Yes")
    await until(lambda: asked["text"] == "pressed: yes-1")
    assert telegram.answers[query]["text"] == "Thanks."


async def test_files_go_both_ways(telegram: TelegramServer) -> None:
    content, picture = b"tea,coffee\n" * 1000, png(40, 30)
    await telegram.say(ANA, ANA, document={**telegram.upload(content, "list.csv"), "file_name": "list.csv"})
    document = (await post(telegram))["document"]
    assert (document["file_name"], telegram.content(document["file_id"])) == ("list.csv", content)
    await telegram.say(ANA, ANA, photo=telegram.photo(picture), caption="tea")
    photo = await post(telegram, 1)
    assert (photo["caption"], telegram.content(photo["photo"][-1]["file_id"])) == ("echo: tea", picture)


async def test_refusals_are_understood(telegram: TelegramServer) -> None:
    await telegram.say(ANA, ANA, "refuse")
    assert "essage is too long" in (await post(telegram))["text"]


async def test_groups_with_topics_and_privacy_mode(telegram: TelegramServer) -> None:
    await telegram.say(ANA, GROUP, "not for the bot", message_thread_id=7)
    await telegram.say(ANA, GROUP, "@exuvia_bot hello", message_thread_id=7)
    answered = await post(telegram)
    assert (answered["text"], answered["message_thread_id"]) == ("echo: @exuvia_bot hello", 7)


async def test_a_poll_that_fails_is_repeated_and_unconfirmed_updates_come_again(telegram: TelegramServer) -> None:
    telegram.faults["getupdates"].extend([Fault(502, "Bad Gateway"), Fault(after=True)])
    await telegram.say(ANA, ANA, "one")
    async with deadline():
        assert (await post(telegram))["text"] == "echo: one"
        await until(lambda: telegram.unconfirmed() == 0)
