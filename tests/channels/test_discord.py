"""The channel `discord` with the fake of Discord: what arrives, what is posted, and what happens when connections break."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plugins.api.channel import Choice, InboundMessage, MessageRejected, OutboundMessage
from plugins.channels.discord import discord_api, discord_gateway, discord_lanes, discord_reception
from plugins.channels.discord.discord_channel import Discord, DiscordSettings
from plugins.support.errors import PluginError, SettingsRefused
from plugins.support.secrets import Secret
from plugins.testing.channel_checks import RecordingInbox
from plugins.testing.contexts import make_context
from tests.channels.discord_story import Story
from tests.channels.story import tell
from tests.servers.discord_server import BOT, BOT_ROLE, TOKEN, DiscordServer
from tests.waiting import VirtualTime, deadline, until


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


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Start new sessions without the seconds that Discord demands between them; the fake does not."""
    monkeypatch.setattr(discord_gateway, "IDENTIFY_SECONDS", 0.05)
    monkeypatch.setattr(discord_gateway, "INVALID_SECONDS", 0.05)


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
        await until(lambda: server.identified == 2)
        places = (bot.direct, bot.general, quiet, thread)
        for channel in places:
            server.say(bot.ana, channel, f"<@{BOT}> end")
        arrived: list[InboundMessage] = []
        while sum(each.text == "end" for each in arrived) < len(places):
            arrived.append(await bot.arrival())
        missed = [each for each in arrived if each.text != "end"]
        assert [each.text for each in missed if not each.group] == [f"missed {n}" for n in range(250)]
        assert {(each.chat, each.thread) for each in missed if each.group} == {
            (bot.general, ""), (quiet, ""), (bot.general, thread)
        }  # fmt: skip
    assert server.identified == 2


async def test_a_message_that_was_being_handled_in_a_crash_comes_again(
    bot: Bot, server: DiscordServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The slow message of one channel holds back what is saved, also when those of another channel have been handled."""
    entered, receive = asyncio.Event(), bot.inbox.receive

    async def slow(message: InboundMessage) -> bool:
        if message.text == "slow":
            entered.set()
            await asyncio.Event().wait()
        return await receive(message)

    monkeypatch.setattr(bot.inbox, "receive", slow)
    async with bot.running():
        server.say(bot.ana, bot.direct, "slow")
        await entered.wait()
        server.say(bot.ana, bot.general, f"<@{BOT}> quick")
        assert await bot.texts(1) == ["quick"]
        session = next(iter(server.sessions.values()))
        seq = next(event["s"] for event in session.events if event["d"].get("content") == "slow")
        connection = session.connection
        assert connection is not None
        beats = connection.beats
        server.tell(1)  # asks for a heartbeat
        await until(lambda: connection.beats > beats)
        assert connection.last_beat < seq
    monkeypatch.undo()
    async with bot.running():
        server.say(bot.ana, bot.direct, "later")
        assert await bot.texts(1) == ["slow"]
    assert (server.identified, server.resumed) == (1, 1)


async def test_a_message_that_the_gateway_cannot_take_yet_is_passed_on_again_and_those_after_it_wait(
    bot: Bot, server: DiscordServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discord_lanes, "LATER_SECONDS", (0.01,))
    async with bot.running():
        bot.inbox.refused = MessageRejected("The disk is full.", later=True)
        server.say(bot.ana, bot.direct, "one")
        server.say(bot.ana, bot.direct, "two")
        assert await bot.texts(2) == ["one", "two"]


async def test_what_is_missed_while_the_very_first_messages_are_being_handled_is_fetched(
    bot: Bot, server: DiscordServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    receive, go_on = bot.inbox.receive, asyncio.Event()

    async def slow(message: InboundMessage) -> bool:
        await go_on.wait()
        return await receive(message)

    monkeypatch.setattr(bot.inbox, "receive", slow)
    async with bot.running():
        server.say(bot.ana, bot.direct, "one")
        server.say(bot.ana, bot.general, f"<@{BOT}> two")
        await until(lambda: bot.channel._progress.last_of(bot.direct))
        server.tell(9, data=False)
        server.say(bot.ana, bot.direct, "three")
        server.say(bot.ana, bot.general, f"<@{BOT}> four")
        await until(lambda: server.identified == 2)
        go_on.set()
        assert sorted(await bot.texts(4)) == ["four", "one", "three", "two"]


async def test_what_follows_a_crash_in_the_first_session_of_all_is_fetched(bot: Bot, server: DiscordServer) -> None:
    async with bot.running():
        state = bot.folder / "plugin" / "state.json"
        await until(state.exists)
        first = state.read_bytes()
    state.write_bytes(first)  # nothing else was saved
    server.forget_sessions()
    server.say(bot.ana, bot.general, f"<@{BOT}> hello")
    async with bot.running():
        assert await bot.texts(1) == ["hello"]


async def test_what_was_missed_is_fetched_also_if_discord_fails_meanwhile(
    bot: Bot, server: DiscordServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discord_lanes, "LATER_SECONDS", (0.01,))
    async with bot.running():
        server.say(bot.ana, bot.direct, "one")
        assert await bot.texts(1) == ["one"]
        server.forget_sessions()
        server.say(bot.ana, bot.direct, "two")
        limited = {"message": "You are being rate limited.", "retry_after": 0.05, "global": False}
        for status, body in ((500, "<html>oops</html>"), (429, limited), (403, "<html>blocked</html>"), (503, {})):
            server.failures["GET /channels/{channel}/messages"].append((status, body, {}))
        assert await bot.texts(1) == ["two"]


async def test_a_download_that_breaks_off_is_tried_again(
    bot: Bot, server: DiscordServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discord_reception, "DOWNLOAD_PAUSES", (0.01, 0.01))
    download, broken = discord_api.DiscordApi.download, [None, None]

    async def breaks_off(api: discord_api.DiscordApi, url: str, limit: int) -> bytes:
        if broken:
            broken.pop()
            raise PluginError("Discord cannot be reached")
        return await download(api, url, limit)

    monkeypatch.setattr(discord_api.DiscordApi, "download", breaks_off)
    async with bot.running():
        server.say(bot.ana, bot.direct, "see", files={"cat.png": b"a cat"})
        (file,) = (await bot.arrival()).attachments
        assert file.content == b"a cat"
        url = server.base_url.replace("/api/v10", "/attachments/1/2/gone.png")
        lost = {"id": "1", "filename": "gone.png", "size": 5, "url": url}
        gone = server.say(bot.ana, bot.direct, "see", attachments=[lost])
        assert (await bot.arrival()).text.startswith("see\n[file gone.png not received: Discord answered 404")
        assert gone["id"] in bot.known


async def test_what_happened_before_the_bot_joined_a_server_is_not_fetched(bot: Bot, server: DiscordServer) -> None:
    server.say(bot.ana, bot.general, f"<@{BOT}> long ago")
    async with bot.running():
        server.say(bot.ana, bot.direct, "hello")
        assert await bot.texts(1) == ["hello"]
        assert [route for route, _ in server.requests if route.startswith("GET /channels")] == []


# --- the connection -------------------------------------------------------------------------------------------------------


async def test_a_connection_whose_heartbeats_are_not_acknowledged_is_replaced(bot: Bot, server: DiscordServer) -> None:
    server.heartbeat, server.acknowledges = 50, False
    async with bot.running():
        await until(lambda: server.resumed)
        server.acknowledges = True
        server.say(bot.ana, bot.direct, "hello")
        assert await bot.texts(1) == ["hello"]
    assert server.identified == 1


@pytest.mark.parametrize(
    "fault", [lambda server: server.tell(7), lambda server: server.close(4000), lambda s: s.close(4008)]
)
async def test_a_session_is_resumed_when_discord_ends_the_connection(
    bot: Bot, server: DiscordServer, fault: Callable[[DiscordServer], None]
) -> None:
    async with bot.running():
        server.say(bot.ana, bot.direct, "one")
        assert await bot.texts(1) == ["one"]
        fault(server)
        await until(lambda: server.resumed)
    assert server.identified == 1


@pytest.mark.parametrize("code", [4007, 4009])
async def test_a_session_that_timed_out_is_replaced(bot: Bot, server: DiscordServer, code: int) -> None:
    async with bot.running():
        server.close(code)
        await until(lambda: server.identified == 2)


@pytest.mark.parametrize(
    ("code", "words"), [(4004, "Reset Token"), (4013, "intents"), (4014, "Message Content Intent"), (4012, "version")]
)
async def test_what_somebody_has_to_mend_ends_the_channel_with_a_sentence(
    bot: Bot, server: DiscordServer, code: int, words: str
) -> None:
    async with bot.running():
        server.close(code)
        await asyncio.wait([bot.run])
        assert words in str(bot.run.exception())


async def test_a_wrong_token_is_reported_with_what_to_do(server: DiscordServer, tmp_path: Path) -> None:
    options = DiscordSettings(token=Secret("MTAwMDAwMDAwMDAwMDAwMDAwMQ.wrong.token-of-a-bot"), base_url=server.base_url)
    async with make_context(tmp_path, options) as context:
        with pytest.raises(SettingsRefused, match="choose Bot, Reset Token"):
            async with Discord(context):
                pass


async def test_an_intent_that_is_not_switched_on_is_reported_with_the_switch(bot: Bot, server: DiscordServer) -> None:
    server.enabled = 0
    with pytest.raises(SettingsRefused, match="switch on Message Content Intent"):
        async with bot.running():
            pass
    async with bot.running(message_content=False) as channel:
        server.say(bot.ana, bot.general, f"<@{BOT}> hello")
        assert await bot.texts(1) == ["hello"]
        assert "Exuvia" in await channel.check()


async def test_without_a_session_left_to_start_the_channel_waits_and_says_so(bot: Bot, server: DiscordServer) -> None:
    server.identifies, server.identify_reset_ms = 0, 300
    options = DiscordSettings(token=Secret(TOKEN), base_url=server.base_url)
    async with make_context(bot.folder, options) as context, Discord(context) as channel:
        running = asyncio.create_task(channel.run(bot.inbox))
        async with deadline():
            assert "no new session" in await bot.inbox.reported.get()
            server.identifies = 5
            assert await bot.inbox.reported.get() == ""
        running.cancel()
        await asyncio.wait([running])


async def test_a_service_that_is_down_is_reported_and_tried_again(
    bot: Bot, server: DiscordServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discord_gateway, "PAUSES", (0.0, 0.05))
    async with bot.running():
        server.refuses = True
        server.sever()
        async with deadline():
            while not (problem := await bot.inbox.reported.get()):
                pass
        assert "tried again" in problem
        server.refuses = False
        server.say(bot.ana, bot.direct, "hello")
        assert await bot.texts(1) == ["hello"]


async def test_an_idle_hour_costs_one_heartbeat_each_41_seconds(bot: Bot, server: DiscordServer) -> None:
    async with bot.running():
        server.say(bot.ana, bot.direct, "hello")
        assert await bot.texts(1) == ["hello"]
        connection = next(iter(server.sessions.values())).connection
        assert connection is not None
        with VirtualTime():
            await asyncio.sleep(60)
            asked, beats = len(server.requests), connection.beats
            await asyncio.sleep(3600)
        assert 86 <= connection.beats - beats <= 88
        assert len(server.requests) == asked
        assert (server.identified, server.resumed) == (1, 0)


# --- what arrives ---------------------------------------------------------------------------------------------------------


async def test_messages_of_a_server_say_whether_they_address_the_bot(bot: Bot, server: DiscordServer) -> None:
    ben = server.user("Ben")
    async with bot.running() as channel:
        post = await channel.deliver(OutboundMessage(id="s/1", chat=bot.general, text="A post."))
        (posted,) = server.posts(bot.general)
        server.say(bot.ana, bot.general, f"<@{BOT}> by name")
        server.say(bot.ana, bot.general, f"and <@{BOT}>, <@{ben}>?")
        server.say(bot.ana, bot.general, f"<@&{BOT_ROLE}> by role")
        server.say(bot.ana, bot.general, "by a reply", reply_to=posted)
        server.say(bot.ana, bot.general, f"<@{ben}> not you @everyone")
        arrived = [await bot.arrival() for _ in range(5)]
    assert [(each.text, each.mentioned) for each in arrived] == [
        ("by name", True), ("and @Exuvia, @Ben?", True), ("by role", True), ("by a reply", True),
        ("@Ben not you @everyone", False),
    ]  # fmt: skip
    assert arrived[3].reply == "A post."
    assert {abs(each.at - time.time()) < 600 for each in arrived} == {True}
    assert {each.group for each in arrived} == {True}
    assert (posted["id"], arrived[0].name) == (post, "Ana")


async def test_threads_and_posts_of_forums_are_threads_of_their_channel_also_if_nobody_told_of_them(
    bot: Bot, server: DiscordServer
) -> None:
    forum = server.text_channel(bot.home, "forum", kind=15)
    thread, post = server.thread(bot.general, "a thread", silent=True), server.thread(forum, "a post")
    async with bot.running() as channel:
        for place in (thread, post):
            server.say(bot.ana, place, f"<@{BOT}> hello")
        arrived = [await bot.arrival() for _ in range(2)]
        assert {(each.chat, each.thread) for each in arrived} == {(bot.general, thread), (forum, post)}
        await channel.deliver(OutboundMessage(id="s/1", chat=forum, thread=post, text="Hello."))
    assert [each["content"] for each in server.posts(post)] == ["Hello."]


async def test_stickers_polls_forwarded_messages_and_emojis_arrive_as_text(bot: Bot, server: DiscordServer) -> None:
    async with bot.running():
        server.say(bot.ana, bot.direct, "", sticker_items=[{"id": "1", "name": "Wave", "format_type": 1}])
        server.say(bot.ana, bot.direct, "", poll={"question": {"text": "Tea?"}, "answers": []})
        server.say(
            bot.ana, bot.direct, "look <:blob:1234567>", message_snapshots=[{"message": {"content": "There is tea."}}]
        )
        arrived = [await bot.arrival() for _ in range(3)]
    assert [(each.text, each.reply) for each in arrived] == [
        ("[sticker: Wave]", ""), ("[poll: Tea?]", ""), ("look :blob:", "There is tea."),
    ]  # fmt: skip


async def test_other_bots_webhooks_and_notices_of_discord_are_ignored(bot: Bot, server: DiscordServer) -> None:
    other = server.user("Other")
    server.users[other]["bot"] = True
    async with bot.running():
        server.say(other, bot.direct, "beep")
        server.say(bot.ana, bot.general, f"<@{BOT}> from a webhook", webhook_id="77")
        server.say(bot.ana, bot.general, "", type=7)
        server.dispatch("MESSAGE_CREATE", {"id": "not a message", "mentions": []})
        server.say(bot.ana, bot.direct, "hello")
        assert await bot.texts(1) == ["hello"]


async def test_edits_and_deletions_name_the_message_and_previews_are_no_edits(bot: Bot, server: DiscordServer) -> None:
    async with bot.running():
        first = server.say(bot.ana, bot.direct, "https://example.org")
        server.unfurl(first)
        server.edit(first, "changed")
        server.delete(first)
        arrived = [await bot.arrival() for _ in range(3)]
    assert [(each.edits, each.deletes, each.text) for each in arrived] == [
        ("", "", "https://example.org"), (first["id"], "", "changed"), ("", first["id"], ""),
    ]  # fmt: skip
    assert {each.sender for each in arrived} == {bot.ana}


async def test_a_reaction_to_a_post_names_its_receipt(bot: Bot, server: DiscordServer) -> None:
    async with bot.running() as channel:
        receipt = await channel.deliver(OutboundMessage(id="s/1", chat=bot.direct, text="May I?"))
        server.react(bot.ana, server.say(bot.ana, bot.direct, "hello"), "👍")  # not on a post of the bot
        server.react(bot.ana, server.posts(bot.direct)[0], "👍")
        arrived = [await bot.arrival() for _ in range(2)]
    assert [(each.reaction, each.reacts_to) for each in arrived] == [("", ""), ("👍", receipt)]


async def test_files_of_known_people_arrive_and_others_are_only_named(
    bot: Bot, server: DiscordServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discord_reception, "MAX_DOWNLOAD", 1000)
    async with bot.running():
        server.say(bot.ana, bot.direct, "see", files={"cat.png": b"a cat", "big.bin": b"x" * 1001})
        known = await bot.arrival()

        async def knows(_: str, **__: bool) -> bool:
            return False

        monkeypatch.setattr(bot.inbox, "knows", knows)
        server.say(bot.ana, bot.direct, "see", files={"cat.png": b"a cat"})
        unknown = await bot.arrival()
    assert [(file.name, file.content) for file in known.attachments] == [("cat.png", b"a cat")]
    assert known.text.startswith("see\n[file big.bin not received: it has")
    assert (unknown.attachments, unknown.text) == ((), "see\n[file: cat.png]")


async def test_a_person_is_told_once_why_a_message_was_rejected_and_a_stranger_is_not(
    bot: Bot, server: DiscordServer
) -> None:
    async with bot.running():
        bot.inbox.refused = MessageRejected("You are not known here.")
        server.say(bot.ana, bot.direct, "one")
        await until(lambda: bot.inbox.refused is None)
        bot.inbox.refused = MessageRejected("Your message is *too* long.", tell=True)
        second = server.say(bot.ana, bot.direct, "two")
        await until(lambda: server.posts(bot.direct))
    (told,) = server.posts(bot.direct)
    assert (told["content"], told["message_reference"]["message_id"]) == ("Your message is \\*too\\* long.", second["id"])


# --- buttons --------------------------------------------------------------------------------------------------------------

QUESTION = OutboundMessage(
    id="s/1",
    chat="",
    text="May I?",
    choices=(Choice(id="/approve k3f9 once", label="Once"), Choice(id="/deny k3f9", label="No")),
)


async def test_a_press_is_acknowledged_at_once_and_counts_when_the_gateway_has_it(bot: Bot, server: DiscordServer) -> None:
    async with bot.running() as channel:
        await channel.deliver(msgspec.structs.replace(QUESTION, chat=bot.general))
        press = server.press(bot.ana, server.posts(bot.general)[0], "No")
        arrived = await bot.arrival()
        await until(lambda: server.interactions[press]["answer"])
    assert (arrived.id, arrived.choice, arrived.chat, arrived.sender) == (press, "/deny k3f9", bot.general, bot.ana)
    assert server.interactions[press]["answer"] == {"type": 6}


async def test_a_press_from_while_the_gateway_was_stopped_counts_although_discord_no_longer_waits(
    bot: Bot, server: DiscordServer
) -> None:
    async with bot.running() as channel:
        await channel.deliver(msgspec.structs.replace(QUESTION, chat=bot.direct))
    server.interaction_seconds = -1.0
    server.press(bot.ana, server.posts(bot.direct)[0], "Once")
    async with bot.running():
        assert (await bot.arrival()).choice == "/approve k3f9 once"


async def test_a_press_that_is_rejected_is_explained_to_its_sender_alone(bot: Bot, server: DiscordServer) -> None:
    async with bot.running() as channel:
        await channel.deliver(msgspec.structs.replace(QUESTION, chat=bot.general))
        await until(lambda: server.identified)
        bot.inbox.refused = MessageRejected("It was answered already.", tell=True)
        press = server.press(bot.ana, server.posts(bot.general)[0], "No")
        await until(lambda: server.interactions[press]["answer"] and server.interactions[press]["follow_ups"])
    (told,) = server.interactions[press]["follow_ups"]
    assert (told["content"], told["flags"]) == ("It was answered already.", 64)
    assert len(server.posts(bot.general)) == 1


# --- a whole gateway ------------------------------------------------------------------------------------------------------


async def test_the_story_of_sixty_messages_ends_well(tmp_path: Path) -> None:
    report = await tell(Story, tmp_path, messages=60, seed=1)
    assert {"kill", "cut"} <= set(report.disturbances)
    assert (report.unseen, report.repeated) == (0, 0)
