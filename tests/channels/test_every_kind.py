"""What holds for channels of every kind, through the whole gateway and the kind's service."""

from __future__ import annotations

import asyncio
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from gateway.conversations.channels import channel_inbox, reply_delivery
from plugins.api.channel import OutboundMessage
from plugins.channels.email import smtp_submission
from tests.channels.kinds import KINDS, serving
from tests.channels.story import StoryService
from tests.gateway.gateways import TOKEN, Gateway
from tests.waiting import deadline, until


async def outcome(g: Gateway, kind: str) -> int:
    """Return how many messages of the channel had an outcome."""
    async with g.http.get(f"{g.url}/metrics", headers={"Authorization": f"Bearer {TOKEN}"}) as response:
        lines = (await response.text()).splitlines()
    return sum(
        int(line.split()[-1])
        for line in lines
        if line.startswith("exuvia_channel_messages_total{") and f'outcome="{kind}"' in line
    )


@pytest.mark.parametrize("emoji", ["👍", "👎"])
@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("telegram", "TelegramChannel"),
        ("discord", "Discord"),
        ("slack", "SlackChannel"),
        ("matrix", "MatrixChannel"),
        ("webhook", "WebhookChannel"),
    ],
)
async def test_a_reaction_counts_that_comes_before_the_receipt_of_its_post(
    kind: str, name: str, emoji: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    channel: Any = getattr(import_module(f"plugins.channels.{kind}.{kind}_channel"), name)
    deliver, posted, known = channel.deliver, asyncio.Event(), asyncio.Event()

    async def slowly(self: Any, message: OutboundMessage) -> str:
        receipt: str = await deliver(self, message)
        if message.choices:
            posted.set()
            await known.wait()
        return receipt

    monkeypatch.setattr(channel, "deliver", slowly)
    calls = [{"tool": "write", "arguments": {"path": "a.txt", "content": "tea"}}]
    script: list[dict[str, Any]] = [{"calls": calls}, {"text": "That is all."}]
    async with serving(kind, tmp_path, script=script, approvals_default="ask") as (service, g), deadline():
        await service.say(service.chats[0], "write")
        await posted.wait()
        ignored = await outcome(g, "ignored")
        await service.react(emoji)
        while await outcome(g, "ignored") == ignored:
            await asyncio.sleep(0.02)
        assert not [line for lines in g.journals().values() for line in lines if line["kind"] == "approval_given"]
        known.set()
        await until(lambda: [line for lines in g.journals().values() for line in lines if line["kind"] == "turn_ended"])
        (given,) = [line for lines in g.journals().values() for line in lines if line["kind"] == "approval_given"]
        assert given["decision"] == ("approve" if emoji == "👍" else "deny")
        assert (g.home / "workspace" / "a.txt").exists() == (emoji == "👍")


@pytest.mark.parametrize("kind", ["telegram", "discord", "slack", "email", "irc", "matrix"])
async def test_a_full_queue_does_not_hold_the_command_that_stops_the_turn(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channel_inbox, "FULL_SECONDS", 3600.0)
    calls = [{"tool": "write", "arguments": {"path": "a.txt", "content": "tea"}}]
    settings: dict[str, Any] = {"approvals_default": "ask", "sessions_queue_limit": 1}
    script: list[dict[str, Any]] = [{"calls": calls}, {"text": "That is all."}]
    async with serving(kind, tmp_path, script=script, **settings) as (service, g):
        chat = service.chats[0]
        await service.say(chat, "write")
        await until(lambda: events(g, "approval_asked"))
        for text in ("waits", "is too much", "is too much, too", "/stop"):
            await service.say(chat, text)
        await until(lambda: len(events(g, "turn_ended")) == 2)
        assert told(g) == ["write", "waits", "/stop"]
        async with deadline():
            while not (notices := [each for each in await service.notices(chat) if "already waiting" in each]):
                await asyncio.sleep(0.01)
        assert len(notices) == 1
        assert "was not accepted" in notices[0]


def told(g: Gateway) -> list[str]:
    """Return the texts of the messages that were received."""
    return [event["text"] for event in events(g, "message_received")]


def events(g: Gateway, kind: str) -> list[dict[str, Any]]:
    """Return the events of a kind in all journals."""
    return [line for lines in g.journals().values() for line in lines if line["kind"] == kind]


async def until_posted(service: StoryService, count: int) -> list[str]:
    """Wait for posts in the first chat, and return them."""
    async with deadline():
        while len(posts := list(await service.posts(service.chats[0]))) < count:
            await asyncio.sleep(0.01)
    return posts


@pytest.mark.parametrize(
    ("kind", "status"),
    [(kind, status) for kind in KINDS for status in (400, 403) if (kind, status) not in (("irc", 400), ("matrix", 400))],
)
async def test_an_answer_that_is_refused_for_good_does_not_hold_the_next(
    kind: str, status: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pause after a second attempt would be longer than the test waits."""
    monkeypatch.setattr(reply_delivery, "PAUSES", (1.0, 3600.0))
    async with serving(kind, tmp_path) as (service, g):
        await service.say(service.chats[0], "zero")
        await until_posted(service, 1)
        async with service.refusing(status):
            await service.say(service.chats[0], "one")
            await until(lambda: [event for event in events(g, "reply_delivered") if event.get("failed")])
        await service.say(service.chats[0], "two")
        posts = await until_posted(service, 2)
    assert [post.strip() for post in posts] == ["zero", "two"]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "irc"])
async def test_a_service_that_asks_to_wait_is_obeyed(kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """IRC servers that limit a client read its lines later, or disconnect it. The pause after a second attempt would be
    longer than the test waits."""
    monkeypatch.setattr(reply_delivery, "PAUSES", (1.0, 3600.0))
    monkeypatch.setattr(smtp_submission, "PAUSE", 3.0)
    time, seconds = asyncio.get_running_loop().time, {"matrix": 2}.get(kind, 3)
    async with serving(kind, tmp_path) as (service, _):
        await service.say(service.chats[0], "zero")
        await until_posted(service, 1)
        refused = await service.limit(seconds)
        began = time()
        await service.say(service.chats[0], "one")
        await until(refused)
        await service.say(service.chats[0], "two")
        await until_posted(service, 2)
        assert time() - began < seconds + 30
        assert time() - began >= seconds or kind == "matrix"
        posts = await until_posted(service, 3)
    assert [post.strip() for post in posts] == ["zero", "one", "two"]


WORDS = [f"word{number}" for number in range(1500)]
CODE = "\n".join(f"print({number})  # {'x' * 40}" for number in range(300))
CELLS = [f"cell{number}" for number in range(200)]
TABLE = "| Name | Value |\n|---|---|\n" + "\n".join(f"| {a} | {b} |" for a, b in zip(CELLS[::2], CELLS[1::2], strict=True))
LINKS = [f"https://example.org/page/{number}" for number in range(100)]
LISTED = "\n".join(f"- see [page {number}]({link})" for number, link in enumerate(LINKS))
ANSWER = f"# Tea\n\n{' '.join(WORDS)}\n\n```python\n{CODE}\n```\n\n{TABLE}\n\n{LISTED}\n\nThat is all."


@pytest.mark.parametrize("kind", ["discord", "slack", "email", "irc", "webhook"])
async def test_a_long_answer_is_posted_in_order_with_its_code_tables_and_links(kind: str, tmp_path: Path) -> None:
    assert len(ANSWER) > 30_000
    async with serving(kind, tmp_path, script=[{"text": ANSWER}]) as (service, _), deadline():
        chat = service.chats[0]
        await service.say(chat, "Is there tea?")
        while "That is all." not in (text := "\n".join(await service.posts(chat))):
            await asyncio.sleep(0.05)
        code, source = await service.code(chat), await service.source(chat)
    assert re.findall(r"\bword\d+", text) == WORDS
    assert re.findall(r"\bcell\d+", text) == CELLS
    assert re.findall(r"\bpage \d+", text) == [f"page {number}" for number in range(100)]
    assert list(dict.fromkeys(re.findall(r"https://example\.org/page/\d+", source))) == LINKS
    assert "\n".join(part.strip("\n") for part in code if "print(" in part) == CODE
