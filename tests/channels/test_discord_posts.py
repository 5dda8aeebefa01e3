"""Posts of the channel `discord`: their form, each once, and what Discord's errors mean for them."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from plugins.api.channel import ChannelActivity, Choice, DeliveryUnknown, OutboundMessage, TryLater, Undeliverable
from plugins.api.tool import OutputFile
from plugins.channels.discord import discord_api, discord_posts
from plugins.channels.discord.discord_channel import Discord, DiscordSettings
from plugins.channels.discord.discord_markdown import length, render
from plugins.channels.formatting.markdown_pieces import split_markdown
from plugins.support.errors import PluginError
from plugins.support.secrets import Secret
from plugins.testing.contexts import make_context
from tests.servers.discord_server import TOKEN, DiscordServer
from tests.waiting import deadline

POST = "POST /channels/{channel}/messages"


@pytest.fixture
async def server() -> AsyncIterator[DiscordServer]:
    async with DiscordServer() as fake:
        yield fake


@pytest.fixture
async def channel(server: DiscordServer, tmp_path: Path) -> AsyncIterator[Discord]:
    options = DiscordSettings(token=Secret(TOKEN), base_url=server.base_url)
    async with make_context(tmp_path, options) as context, Discord(context) as opened:
        yield opened


@pytest.fixture
def chat(server: DiscordServer) -> str:
    return server.text_channel(server.guild("Home"), "general")


def message(chat: str, text: str = "There is tea.", **fields: Any) -> OutboundMessage:
    return OutboundMessage(**{"id": "20261123-101010-abcdef/17/2", "chat": chat, "text": text} | fields)


# --- form -----------------------------------------------------------------------------------------------------------------


async def test_a_post_mentions_nobody_fetches_nothing_and_replies(
    server: DiscordServer, channel: Discord, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    ana = server.user("Ana")
    asked = server.say(ana, chat, "Is there tea?")
    sent: list[dict[str, Any]] = []
    post = server._post

    def watched(author: str, where: str, payload: dict[str, Any], *more: Any, **fields: Any) -> dict[str, Any]:
        sent.append(payload)
        return post(author, where, payload, *more, **fields)

    monkeypatch.setattr(server, "_post", watched)
    receipt = await channel.deliver(message(chat, f"@everyone <@{ana}> there is.", reply_to=asked["id"]))
    await channel.deliver(message(chat, "And a reply to what is gone.", id="s/2", reply_to="17"))
    (first, _) = server.posts(chat)
    assert (receipt, first["message_reference"]["message_id"], first["mentions"]) == (first["id"], asked["id"], [])
    assert first["content"] == f"@\u200beveryone \\<@{ana}> there is."
    assert [each["allowed_mentions"] for each in sent] == [{"parse": [], "replied_user": False}] * 2
    assert {each["flags"] for each in sent} == {1 << 2}
    assert all(each["enforce_nonce"] and len(each["nonce"]) <= 25 for each in sent)


async def test_choices_are_rows_of_buttons(server: DiscordServer, channel: Discord, chat: str) -> None:
    choices = tuple(Choice(id=f"/answer {number}", label=f"Answer {number} " + "x" * 90) for number in range(7))
    await channel.deliver(message(chat, choices=choices))
    rows = [[button["custom_id"] for button in row["components"]] for row in server.posts(chat)[0]["components"]]
    assert rows == [[f"/answer {number}" for number in range(5)], ["/answer 5", "/answer 6"]]


async def test_files_are_posted_and_one_that_is_too_large_is_explained(
    server: DiscordServer, channel: Discord, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = OutputFile(content=b"\x89PNG...", media="image/png", name="../../tea\u202e/cup.png")
    await channel.deliver(message(chat, "", attachments=(file,)))
    assert server.next_file("....teacup.png"[4:]) == b"\x89PNG..."
    monkeypatch.setattr(discord_posts, "MAX_FILE", 3)
    await channel.deliver(message(chat, "", id="s/2", attachments=(file,)))
    told = server.posts(chat)[1]
    assert (told["attachments"], "Discord takes at most" in told["content"]) == ([], True)


async def test_thirty_thousand_characters_are_split_into_posts_outside_of_code_blocks(
    server: DiscordServer, channel: Discord, chat: str
) -> None:
    table = "\n".join(["| a | b |", "|---|---|", *(f"| {n} | {'x' * 40} |" for n in range(60))])
    code = "```python\n" + "\n".join(f"print({n})  # {'_' * 30}" for n in range(200)) + "\n```"
    text = "\n\n".join([*(f"Paragraph {n}: " + "*tea* and 😀 `co_de` " * 20 for n in range(40)), code, table])
    assert len(text) > 25_000
    pieces = await asyncio.to_thread(split_markdown, text + "\n\n" + "words " * 1000, channel.fits)
    for number, piece in enumerate(pieces):
        await channel.deliver(message(chat, piece.text, id=f"s/1/{number}"))
    posts = [post["content"] for post in server.posts(chat)]
    assert all(length(post) <= 2000 and post.count("```") % 2 == 0 for post in posts)
    whole = "".join(posts)
    assert all(f"Paragraph {number}:" in whole for number in range(40))
    assert all(f"print({number})" in whole for number in range(200))


async def test_typing_is_shown_in_the_thread(server: DiscordServer, channel: Discord, chat: str) -> None:
    thread = server.thread(chat, "a thread")
    await channel.show_activity(ChannelActivity(chat=chat, thread=thread))
    await channel.show_activity(ChannelActivity(chat=chat))
    assert server.typing == [thread, chat]


# --- once -----------------------------------------------------------------------------------------------------------------


async def test_a_post_whose_answer_was_lost_is_not_posted_twice(server: DiscordServer, channel: Discord, chat: str) -> None:
    server.lost.append(POST)
    with pytest.raises(DeliveryUnknown):
        await channel.deliver(message(chat))
    (posted,) = server.posts(chat)
    assert await channel.deliver(message(chat, again=True)) == posted["id"]
    assert await channel.deliver(message(chat)) == posted["id"]  # by its nonce
    assert len(server.posts(chat)) == 1


async def test_a_post_is_found_after_discord_has_forgotten_its_nonce(
    server: DiscordServer, channel: Discord, chat: str
) -> None:
    server.nonce_seconds = 0.0
    ana = server.user("Ana")
    file = OutputFile(content=b"cup", media="image/png", name="cup.png")
    kinds: tuple[dict[str, Any], ...] = ({"text": "There is **tea**. \n"}, {"text": "", "attachments": (file,)})
    for number, more in enumerate(kinds):
        server.lost.append(POST)
        with pytest.raises(DeliveryUnknown):
            await channel.deliver(message(chat, id=f"s/{number}", **more))
        posted = server.posts(chat)[-1]
        for _ in range(120):
            server.say(ana, chat, "There is tea.")
        assert await channel.deliver(message(chat, id=f"s/{number}", again=True, **more)) == posted["id"]
        assert len(server.posts(chat)) == number + 1


async def test_an_equal_answer_from_before_is_not_taken_for_the_post(
    server: DiscordServer, channel: Discord, chat: str
) -> None:
    """Two answers may have the same text. The one of before was noted when it was posted."""
    first = await channel.deliver(message(chat, "Yes.", id="s/1"))
    assert await channel.deliver(message(chat, "Yes.", id="s/2", again=True)) != first
    asked = server.say(server.user("Ana"), chat, "And now?")
    await channel.deliver(message(chat, "Yes.", id="s/3", again=True, reply_to=asked["id"]))
    assert [post["content"] for post in server.posts(chat)] == ["Yes."] * 3


# --- errors ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("code", [10003, 50001, 50007, 50013])
async def test_a_channel_that_is_closed_to_the_bot_makes_a_post_undeliverable(
    server: DiscordServer, channel: Discord, chat: str, code: int
) -> None:
    server.forbidden[chat] = code
    with pytest.raises(Undeliverable, match="Discord refuses the message"):
        await channel.deliver(message(chat))


@pytest.mark.parametrize("text", ["", " \n ", "\x00", "word " * 500])
async def test_what_discord_could_not_show_is_undeliverable(channel: Discord, chat: str, text: str) -> None:
    with pytest.raises(Undeliverable):
        await channel.deliver(message(chat, text))


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        ((400, {"code": 50035, "message": "Invalid Form Body", "errors": {"content": {"_errors": []}}}), Undeliverable),
        ((413, {"code": 40005, "message": "Request entity too large"}), Undeliverable),
        ((500, "<html>oops</html>"), DeliveryUnknown),
        ((502, {"code": 0, "message": "upstream"}), DeliveryUnknown),
        ((401, {"code": 0, "message": "401: Unauthorized"}), discord_api.InvalidToken),
        ((403, "<html>blocked</html>"), PluginError),
        ((405, {"code": 0, "message": "405: Method Not Allowed"}), discord_api.Refused),
    ],
)
async def test_each_error_says_whether_another_attempt_may_help(
    server: DiscordServer, channel: Discord, chat: str, answer: tuple[int, Any], kind: type[Exception]
) -> None:
    server.failures[POST].append((*answer, {}))
    with pytest.raises(kind) as caught:
        await channel.deliver(message(chat))
    assert type(caught.value) is kind
    assert TOKEN not in str(caught.value)
    assert await channel.deliver(message(chat))


async def test_a_service_that_cannot_be_reached_has_not_got_the_post(
    server: DiscordServer, channel: Discord, chat: str
) -> None:
    await server._runner.cleanup()
    with pytest.raises(PluginError, match="cannot be reached"):
        await channel.deliver(message(chat))  # over the connection that was open, so that nobody knows
    with pytest.raises(PluginError, match="cannot be reached") as caught:
        await channel.deliver(message(chat))
    assert type(caught.value) is PluginError


# --- rate limits ----------------------------------------------------------------------------------------------------------


async def test_a_short_limit_is_waited_for_to_the_millisecond(server: DiscordServer, channel: Discord, chat: str) -> None:
    body = {"message": "You are being rate limited.", "retry_after": 0.337, "global": False}
    server.failures[POST].append((429, body, {"Retry-After": "1"}))
    began = time.monotonic()
    await channel.deliver(message(chat))
    assert time.monotonic() - began >= 0.337
    assert [route for route, _ in server.requests].count(POST) == 2


async def test_a_limit_that_the_headers_announce_is_not_run_into(server: DiscordServer, channel: Discord, chat: str) -> None:
    server.limits[POST] = 2, 0.3
    for number in range(5):
        await channel.deliver(message(chat, id=f"s/{number}"))
    assert [route for route, _ in server.requests].count(POST) == 5  # none was refused
    times = [at for route, at in server.requests if route == POST]
    assert times[2] - times[0] >= 0.29
    assert times[4] - times[2] >= 0.29


@pytest.mark.parametrize(
    ("answer", "after"),
    [
        (({"retry_after": 12.345, "global": False}, {"Retry-After": "13"}), 12.345),
        (({"retry_after": 64.57, "global": True}, {"Retry-After": "65", "X-RateLimit-Global": "true"}), 64.57),
        (("<html>error code: 1015</html>", {"Retry-After": "47"}), 47.0),
        (("error code: 1015", {}), 60.0),
    ],
)
async def test_a_long_limit_is_handed_to_the_gateway(
    server: DiscordServer, channel: Discord, chat: str, answer: tuple[Any, dict[str, str]], after: float
) -> None:
    server.failures[POST].append((429, *answer))
    for_all = answer[0] != {"retry_after": 12.345, "global": False}
    with pytest.raises(TryLater) as caught:
        await channel.deliver(message(chat))
    assert after - 1 < caught.value.after <= after
    other = server.text_channel(next(iter(server.guilds)), "other")
    with pytest.raises(TryLater) if for_all else nullcontext():
        await channel.deliver(message(other))
    assert [route for route, _ in server.requests].count(POST) == (1 if for_all else 2)


async def test_fifty_requests_a_second_are_not_exceeded(
    server: DiscordServer, channel: Discord, chat: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_go: list[float] = []  # when the client let each go; when the server reads them depends on the machine's load

    class Watched(deque[float]):
        def append(self, at: float) -> None:
            let_go.append(at)
            super().append(at)

    monkeypatch.setattr(channel._api, "_recent", Watched())
    async with deadline():
        await asyncio.gather(*(channel.show_activity(ChannelActivity(chat=chat)) for _ in range(110)))
    assert sum(route.endswith("/typing") for route, _ in server.requests) == len(let_go) == 110
    assert all(after - before > 0.999 for before, after in zip(let_go, let_go[discord_api.PER_SECOND :], strict=False))


# --- Markdown -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("**a _b_** ~~c~~ `d_e`", "**a *b*** ~~c~~ `d_e`"),
        ("__init__ and 2*3*4", "**init** and 2*3*4"),
        ("a_b \\*c\\* ||d|| \\# e", "a\\_b \\*c\\* \\|\\|d\\|\\| # e"),
        ("# One\n\n#### Four", "# One\n\n**Four**"),
        (
            "\\# no heading\n\n\\- no list\n\n1\\. none\n\n-# small",
            "\\# no heading\n\n\\- no list\n\n1\\. none\n\n\\-# small",
        ),
        ("- a\n  - b\n\n3. c\n4. d", "- a\n  - b\n\n3. c\n4. d"),
        ("> a\n> > b", "> a\n> \n> b"),
        ("```c++ x\na ``` b\n```", "```c++\na `\u200b`` b\n```"),
        ("| a | 寿司 |\n|---|---|\n| `x` | b |", "```\na  寿司\n─  ────\nx  b\n```"),
        ("[tea](https://example.org/a_b)", "[tea](<https://example.org/a_b>)"),
        ("[bank.example](https://evil.example)", "bank.example (<https://evil.example>)"),
        ("[https://bank.example](https://evil.example)", "https://bank.example (<https://evil.example>)"),
        ("<https://example.org> https://example.org/a_b_c", "<https://example.org> https://example.org/a_b_c"),
        ("\\[tea\\](https://evil.example)", "\\[tea](https://evil.example)"),
        (
            "[x](mailto:a@b.example) ![cup](https://example.org/c.png)",
            "x (`a@b.example`) [cup](<https://example.org/c.png>)",
        ),
        ("@here <@1> <@&2> <#3> <:a:4> <t:5:R> </c:6>", "@\u200bhere \\<@1> \\<@&2> \\<#3> \\<:a:4> \\<t:5:R> \\</c:6>"),
        ("<b>bold</b> &amp; a\u202eb\x1b[0m", "<b>bold\\</b> & ab\\[0m"),
        ("``` ` ```", "`` ` ``"),
    ],
)
def test_markdown_becomes_discords(text: str, shown: str) -> None:
    assert render(text) == shown


def test_the_length_counts_as_discords_clients_do() -> None:
    assert (length("a"), length("é"), length("😀")) == (1, 1, 2)
