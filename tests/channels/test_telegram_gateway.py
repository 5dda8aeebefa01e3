"""The Telegram channel in a gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from gateway.conversations.channels import channel_inbox
from tests.gateway.gateways import Gateway, gateway
from tests.servers.telegram_rules import Json
from tests.servers.telegram_server import TelegramServer
from tests.waiting import until

ANA, BEN, EVE, GROUP = 11, 12, 13, -1000000000044

CONFIGURATION = """
[channels.home]
kind = "telegram"
token = "{token}"
base_url = "{url}"
people = {{ "11" = "owner", "12" = "owner" }}
messages_per_minute = 1000
{more}
"""

WORDS = " ".join(f"word{number}" for number in range(2000))
CODE = "\n".join(f"print({number})  # {'x' * 40}" for number in range(300))
ANSWER = f"# Tea\n\n{WORDS}\n\n```python\n{CODE}\n```\n\nThat is **all**."


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer(privacy=False) as server:
        server.user(ANA, "Ana")
        server.user(BEN, "Ben")
        server.user(EVE, "\u202e<b>Eve</b>\x1b[31m\n")
        server.group(GROUP, "Kitchen", forum=True)
        yield server


@asynccontextmanager
async def serving(
    home: Path, server: TelegramServer, more: str = "", *, script: Sequence[Mapping[str, Any]] | None = None, **settings: Any
) -> AsyncIterator[Gateway]:
    file = CONFIGURATION.format(token=server.token, url=server.url, more=more)
    named = {name.replace("_", ".", 1): value for name, value in settings.items()}
    model = {"agent.model": "scripted:echo"} if script is None else {}
    async with gateway(home, file=file, script=script, settings=model | named) as g:
        yield g


async def post(server: TelegramServer, number: int) -> Json:
    """Return a post once it is there."""
    await until(lambda: len(server.posts) > number)
    return server.posts[number]


async def test_messages_are_answered_and_the_menu_has_the_commands(tmp_path: Path, telegram: TelegramServer) -> None:
    async with serving(tmp_path / "home", telegram):
        said = await telegram.say(ANA, ANA, "Is there **tea**? 😀")
        assert (await post(telegram, 0))["text"] == "Is there tea? 😀"
        await telegram.say(ANA, GROUP, "not for the assistant")
        mention = await telegram.say(ANA, GROUP, "@exuvia_bot coffee", message_thread_id=5)
        answer = await post(telegram, 1)
        assert (answer["chat"]["id"], answer["text"], answer["message_thread_id"]) == (GROUP, "coffee", 5)
        assert answer["reply_to_message"]["message_id"] == mention["message_id"]
        await telegram.say(ANA, ANA, "/status")
        assert "home" in (await post(telegram, 2))["text"]
        assert {"status", "new", "help"} <= {command["command"] for command in telegram.commands}
        assert said["message_id"] == 1


async def test_every_message_of_a_group_counts_without_mention(tmp_path: Path, telegram: TelegramServer) -> None:
    async with serving(tmp_path / "home", telegram, "mention = false"):
        await telegram.say(ANA, GROUP, "coffee")
        assert (await post(telegram, 0))["text"] == "coffee"


async def test_a_stranger_learns_nothing_but_a_code(tmp_path: Path, telegram: TelegramServer) -> None:
    async with serving(tmp_path / "home", telegram) as g:
        await telegram.say(EVE, GROUP, "@exuvia_bot hello")
        await telegram.say(EVE, EVE, "/start")
        await telegram.say(EVE, EVE, "hello", document=telegram.upload(b"x", "a.txt"))
        await telegram.say(ANA, ANA, "/pair")
        posts = [await post(telegram, number) for number in range(2)]
        await until(lambda: telegram.unconfirmed() == 0)
        assert [each["chat"]["id"] for each in posts] == [EVE, ANA]
        assert posts[0]["text"].split()[-1].strip(".") or posts[0]["text"]
        assert telegram.called("getFile") == 0
        assert not any("\u202e" in each["text"] or "\x1b" in each["text"] for each in telegram.posts)
        assert len(telegram.posts) == 2
        assert not [line for lines in g.journals().values() for line in lines if line.get("client") == str(EVE)]


async def test_30_000_characters_come_in_order_and_code_remains_code(tmp_path: Path, telegram: TelegramServer) -> None:
    assert len(ANSWER) > 30_000
    async with serving(tmp_path / "home", telegram, script=[{"text": ANSWER}]):
        await telegram.say(ANA, ANA, "tea?")
        await until(lambda: telegram.posts and telegram.posts[-1]["text"].endswith("That is all."))
    code, words = [], []
    for each in telegram.posts:
        units = each["text"].encode("utf-16-le")
        marked = [entity for entity in each.get("entities", ()) if entity["type"] == "pre"]
        assert all(entity["language"] == "python" for entity in marked)
        code += [
            units[2 * entity["offset"] : 2 * (entity["offset"] + entity["length"])].decode("utf-16-le") for entity in marked
        ]
        words += [word for word in each["text"].split() if word.startswith("word")]
    assert "\n".join(code) == CODE
    assert words == WORDS.split()
    assert len(telegram.posts) <= 12


async def test_buttons_and_reactions_answer_a_question(tmp_path: Path, telegram: TelegramServer) -> None:
    def writes(name: str) -> Json:
        return {"calls": [{"tool": "write", "arguments": {"path": name, "content": "tea"}}]}

    script = [writes("a.txt"), {"text": "one"}, writes("b.txt"), {"text": "two"}]
    async with serving(tmp_path / "home", telegram, script=script, approvals_default="ask"):
        await telegram.say(ANA, ANA, "write a")
        question = await post(telegram, 0)
        (label, *_) = [button["text"] for row in question["reply_markup"]["inline_keyboard"] for button in row]
        query = await telegram.press(ANA, question, label)
        await until(lambda: "one" in [each["text"] for each in telegram.posts])
        assert telegram.answers[query] == {"text": "", "show_alert": False}
        await telegram.say(ANA, ANA, "write b")
        await until(lambda: "reply_markup" in telegram.posts[-1] and telegram.posts[-1] is not question)
        await telegram.react(ANA, telegram.posts[-1], "👍")
        await until(lambda: "two" in [each["text"] for each in telegram.posts])
        assert {path.name for path in (tmp_path / "home" / "workspace").glob("?.txt")} == {"a.txt", "b.txt"}


async def test_a_full_queue_lets_the_answer_to_its_question_through(
    tmp_path: Path, telegram: TelegramServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_inbox, "FULL_SECONDS", 3600.0)
    calls = [{"tool": "write", "arguments": {"path": "a.txt", "content": "tea"}}]
    script: list[Json] = [{"calls": calls}, {"text": "one"}, {"text": "two"}]
    settings: Json = {"approvals_default": "ask", "sessions_queue_limit": 1}
    async with serving(tmp_path / "home", telegram, script=script, **settings) as g:
        await telegram.say(ANA, ANA, "write a")
        question = await post(telegram, 0)
        waits = await telegram.say(ANA, ANA, "waits")
        refused = await telegram.say(ANA, ANA, "is too much")
        notice = await post(telegram, 1)
        assert notice["text"].startswith("1 message is already waiting; try again later. This one was not accepted")
        assert notice["reply_to_message"]["message_id"] == refused["message_id"]
        await telegram.say(ANA, ANA, "is too much, too")
        await telegram.edit(waits, "waits for tea")  # takes no more room
        await until(lambda: telegram.unconfirmed() == 0)
        (label, *_) = [button["text"] for row in question["reply_markup"]["inline_keyboard"] for button in row]
        query = await telegram.press(ANA, question, label)
        await until(lambda: [each["text"] for each in telegram.posts[2:]] == ["Approved this time.", "one", "two"])
        assert telegram.answers[query] == {"text": "", "show_alert": False}
        await telegram.say(ANA, ANA, "is not too much")
        await post(telegram, 5)
        (lines,) = g.journals().values()
        received = [line["text"] for line in lines if line["kind"] == "message_received"]
    assert (tmp_path / "home" / "workspace" / "a.txt").exists()
    assert [text for text in received if not text.startswith("/approve")] == [
        "write a",
        "waits",
        "waits for tea",
        "is not too much",
    ]


async def test_files_and_albums_reach_the_model_and_large_ones_are_refused(tmp_path: Path, telegram: TelegramServer) -> None:
    async with serving(tmp_path / "home", telegram, gateway_attachment_bytes=2000) as g:
        await telegram.album(
            ANA, ANA, [{"document": telegram.upload(b"tea", f"{name}.txt") | {"file_name": f"{name}.txt"}} for name in "ab"]
        )
        await post(telegram, 0)
        (received,) = [line for lines in g.journals().values() for line in lines if line["kind"] == "message_received"]
        assert [each["name"] for each in received["attachments"]] == ["a.txt", "b.txt"]
        await telegram.say(ANA, ANA, document=telegram.upload(b"x" * 3000, "c.txt"))
        assert "The limit for an attachment is 2000 bytes." in (await post(telegram, 1))["text"]
