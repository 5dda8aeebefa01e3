"""The channel Matrix against a real Synapse."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest

from plugins.api.channel import (
    ChannelActivity,
    Choice,
    InboundFile,
    InboundMessage,
    MessageRejected,
    OutboundMessage,
    TryLater,
    Undeliverable,
)
from plugins.api.tool import OutputFile
from plugins.channels.matrix import sync
from plugins.channels.matrix.login import LoginFailed
from plugins.channels.matrix.matrix_api import MatrixClient as MatrixApi
from plugins.channels.matrix.matrix_api import MatrixError
from plugins.channels.matrix.matrix_channel import MatrixChannel, MatrixSettings
from plugins.channels.matrix.reader import KEYCAPS
from plugins.support.errors import PluginError
from plugins.support.secrets import Secret
from plugins.testing import channel_checks
from plugins.testing.channel_checks import ChannelConformance, RecordingInbox
from plugins.testing.contexts import make_context
from tests.channels.link import Link
from tests.channels.matrix_rooms import Rooms, named, person, rooms_of, settings_for, synapse
from tests.servers.synapse_server import PASSWORD, Person, SynapseServer, events_of, required
from tests.waiting import DEADLINE, deadline, until

__all__ = ["synapse"]

required()


class TestConformance(ChannelConformance):
    deleted_chat: ClassVar[str] = "demolished"
    busy_chat: ClassVar[str] = "crowded"
    edits: ClassVar[bool] = True
    buttons: ClassVar[bool] = True
    rooms: Rooms

    @pytest.fixture(autouse=True)
    def _on_a_real_server(self, synapse: SynapseServer, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        monkeypatch.setattr(channel_checks, "PATIENCE", DEADLINE)
        self.server = synapse
        type(self).channel = named(lambda: self.rooms)
        yield
        del type(self).channel

    @asynccontextmanager
    async def service(self) -> AsyncIterator[Rooms]:
        async with rooms_of(self.server) as self.rooms:
            yield self.rooms

    def settings(self, service: Rooms) -> MatrixSettings:
        return settings_for(self.server, service.bot, read_receipts=False)


# --- a channel and people ---------------------------------------------------------------------------------------------


class Opened(NamedTuple):
    """A running channel."""

    channel: MatrixChannel
    inbox: RecordingInbox
    running: asyncio.Task[None]

    async def arrival(self) -> InboundMessage:
        waiting = asyncio.create_task(self.inbox.arrived.get())
        await asyncio.wait([waiting, self.running], timeout=DEADLINE, return_when=asyncio.FIRST_COMPLETED)
        if self.running.done():
            self.running.result()
        assert waiting.done(), "The message did not arrive."
        return waiting.result()

    async def arrivals(self, number: int) -> list[InboundMessage]:
        return [await self.arrival() for _ in range(number)]


@asynccontextmanager
async def opened(folder: Path, settings: MatrixSettings, inbox: RecordingInbox | None = None) -> AsyncIterator[Opened]:
    inbox = inbox or RecordingInbox()
    async with make_context(folder, settings) as context, MatrixChannel(context) as channel:
        running = asyncio.create_task(channel.run(inbox))
        try:
            yield Opened(channel, inbox, running)
        finally:
            running.cancel()
            await asyncio.wait([running])


class Scene(NamedTuple):
    """Ana, the channel's account, and a private room of the two."""

    on: Opened
    ana: Person
    bot: Person
    room: str


@asynccontextmanager
async def scene(server: SynapseServer, folder: Path, **settings: Any) -> AsyncIterator[Scene]:
    async with (
        person(server) as ana,
        person(server, "bot") as bot,
        opened(folder, settings_for(server, bot, **settings)) as on,
    ):
        room = await ana.room(bot.user)
        await joined(ana, bot, room)
        yield Scene(on, ana, bot, room)


async def joined(ana: Person, bot: Person, room: str) -> None:
    async with deadline():
        while bot.user not in await ana.members(room):
            await asyncio.sleep(0.02)


def post(room: str, text: str = "There is tea.", number: int = 1, **more: Any) -> OutboundMessage:
    return OutboundMessage(id=f"20261123-000000-aaaaaa/{number}", chat=room, text=text, **more)


# --- rooms ------------------------------------------------------------------------------------------------------------


async def test_what_was_said_between_an_invitation_and_its_acceptance_arrives(
    synapse: SynapseServer, tmp_path: Path
) -> None:
    async with person(synapse) as ana, person(synapse, "bot") as bot:
        room = await ana.room(bot.user)
        for number in range(70):  # more than a sync response contains
            await ana.say(room, f"before {number}")
        async with opened(tmp_path, settings_for(synapse, bot)) as on:
            arrived = await on.arrivals(70)
    assert [each.text for each in arrived] == [f"before {number}" for number in range(70)]
    assert {(each.sender, each.chat, each.group) for each in arrived} == {(ana.user, room, False)}
    assert arrived[0].name == ana.user[1:].partition(":")[0]


async def test_invitations_of_unknown_people_wait_until_they_are_known(synapse: SynapseServer, tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with person(synapse, "eve") as eve, person(synapse, "bot") as bot:
        inbox.unknown.add(eve.user)
        async with opened(tmp_path, settings_for(synapse, bot), inbox):
            room = await eve.room(bot.user)
            async with person(synapse) as ana:
                await joined(ana, bot, await ana.room(bot.user))  # its invitation came later
            assert bot.user not in await eve.members(room)
        inbox.unknown.clear()
        async with opened(tmp_path, settings_for(synapse, bot), inbox):
            await joined(eve, bot, room)


async def test_invitations_can_be_left_to_nobody_or_everyone(synapse: SynapseServer, tmp_path: Path) -> None:
    inbox = RecordingInbox()
    async with person(synapse, "eve") as eve, person(synapse) as ana, person(synapse, "bot") as bot:
        inbox.unknown.add(eve.user)
        async with opened(tmp_path / "nobody", settings_for(synapse, bot, invitations="nobody")) as on:
            room, open_room = await ana.room(bot.user), await ana.room(preset="public_chat")
            settings = settings_for(synapse, bot, invitations="nobody", rooms=(open_room,))
            assert bot.user not in await ana.members(room)
            assert not on.running.done()
        async with opened(tmp_path / "nobody", settings):
            await joined(ana, bot, open_room)
            assert bot.user not in await ana.members(room)
        async with opened(tmp_path / "everyone", settings_for(synapse, bot, invitations="everyone"), inbox):
            await joined(eve, bot, await eve.room(bot.user))


async def test_a_gap_of_a_sync_response_is_filled(synapse: SynapseServer, tmp_path: Path) -> None:
    async with person(synapse) as ana, person(synapse, "bot") as bot:
        settings = settings_for(synapse, bot)
        async with opened(tmp_path, settings) as on:
            room = await ana.room(bot.user)
            await joined(ana, bot, room)
            await ana.say(room, "first")
            first = await on.arrival()
            assert (first.text, abs(first.at - time.time()) < 600) == ("first", True)
        for number in range(230):
            await ana.say(room, f"missed {number}")
        async with opened(tmp_path, settings) as on:
            texts = [""]
            while texts[-1] != "missed 229":
                texts.append((await on.arrival()).text)
    assert [text for text in texts if text.startswith("missed")] == [f"missed {number}" for number in range(230)]


async def test_a_group_is_heard_where_it_mentions_the_assistant(synapse: SynapseServer, tmp_path: Path) -> None:
    async with scene(synapse, tmp_path) as (on, ana, bot, _), person(synapse, "ben") as ben:
        room = await ana.room(bot.user, ben.user)
        await ben.join(room)
        await joined(ana, bot, room)
        name = bot.user[1:].partition(":")[0]
        sent = await on.channel.deliver(post(room))
        await ana.say(room, "no")
        await ana.say(room, f"no, {name}", m_mentions={})
        await ana.say(room, "no", m_mentions={"user_ids": [ben.user], "room": True})
        await ana.say(room, "yes", m_mentions={"user_ids": [bot.user]})
        await ana.say(room, f"yes, {name.upper()}: please")
        await ana.say(room, f"no, {name}x")
        await ana.say(room, "yes", m_mentions={}, m_relates_to={"m.in_reply_to": {"event_id": sent}})
        arrived = await on.arrivals(7)
    assert [(each.text[:3].strip(","), each.mentioned, each.group) for each in arrived] == [
        (text, text == "yes", True) for text in ("no", "no", "no", "yes", "yes", "no", "yes")
    ]


# --- kinds of messages ------------------------------------------------------------------------------------------------


async def test_replies_threads_and_their_old_fallbacks(synapse: SynapseServer, tmp_path: Path) -> None:
    async with scene(synapse, tmp_path) as (on, ana, bot, room):
        sent = await on.channel.deliver(post(room, "Tea is **ready**."))
        fallback = f"> <{bot.user}> Tea is **ready**.\n> More\n\nThanks"
        await ana.say(room, fallback, m_relates_to={"m.in_reply_to": {"event_id": sent}})
        reply = await on.arrival()
        assert (reply.text, reply.reply, reply.thread) == ("Thanks", "Tea is **ready**.", "")
        root = await ana.say(room, "> quoted by hand")
        assert (await on.arrival()).text == "> quoted by hand"
        falling_back = {
            "rel_type": "m.thread",
            "event_id": root,
            "is_falling_back": True,
            "m.in_reply_to": {"event_id": root},
        }
        await ana.say(room, "in the thread", m_relates_to=falling_back)
        threaded = await on.arrival()
        assert (threaded.text, threaded.reply, threaded.thread) == ("in the thread", "", root)
        await on.channel.deliver(post(room, "there", 2, thread=root))
        await on.channel.deliver(post(room, "answer", 3, reply_to=reply.id))
        posts = await ana.posts(room, bot.user, 3)
    assert posts[1]["content"]["m.relates_to"] == falling_back
    assert posts[2]["content"]["m.relates_to"] == {"m.in_reply_to": {"event_id": reply.id}}


async def test_edits_deletions_and_reactions(synapse: SynapseServer, tmp_path: Path) -> None:
    async with scene(synapse, tmp_path) as (on, ana, bot, room), person(synapse, "ben") as ben:
        await ana.ask("POST", f"/_matrix/client/v3/rooms/{room}/invite", {"user_id": ben.user})
        await ben.join(room)
        said = await ana.say(room, "Is there tee?", m_mentions={"user_ids": [bot.user]})
        await ben.edit(room, said, "Is there whisky?")  # an edit of somebody else's message counts for nothing
        edit = await ana.edit(room, said, f"Is there tea, {bot.user}?")
        first, edited = await on.arrivals(2)
        assert (first.id, edited.id, edited.edits, edited.text) == (said, edit, said, f"Is there tea, {bot.user}?")
        sent = await on.channel.deliver(post(room))
        await ben.react(room, sent, "👍🏽")
        reaction = await on.arrival()
        assert (reaction.reaction, reaction.reacts_to, reaction.sender) == ("👍", sent, ben.user)
        deletion = await ana.redact(room, said)
        deleted = await on.arrival()
        assert (deleted.id, deleted.deletes, deleted.text, deleted.sender) == (deletion, said, "", ana.user)


async def test_notices_of_other_programs_and_what_is_no_message_are_ignored(synapse: SynapseServer, tmp_path: Path) -> None:
    odd: list[dict[str, Any]] = [
        {"msgtype": "m.notice", "body": "I am a program"},
        {"msgtype": "x" * 500, "body": "odd"},
        {"msgtype": "m.text", "body": "odd", "m.relates_to": [1]},
        {"msgtype": "m.text", "body": "odd", "m.relates_to": {"rel_type": "m.replace", "event_id": {"a": 1}}},
        {"msgtype": "m.text", "body": "odd", "m.mentions": {"user_ids": "all"}},
        {"msgtype": "m.file", "body": "no file", "url": 7, "info": "x"},
        {"msgtype": "m.image", "body": "../../etc/passwd", "url": "mxc://../../etc/passwd"},
    ]
    async with scene(synapse, tmp_path) as (on, ana, _, room):
        for content in odd:
            await ana.send(room, content)
        await ana.send(room, {"body": "a poll"}, "org.example.poll")
        await ana.say(room, "last")
        texts = [""]
        while texts[-1] != "last":
            texts.append((await on.arrival()).text)
    assert "I am a program" not in texts


# --- files ------------------------------------------------------------------------------------------------------------


async def test_files_both_ways(synapse: SynapseServer, tmp_path: Path) -> None:
    async with scene(synapse, tmp_path) as (on, ana, bot, room):
        address = await ana.upload(b"\x89PNG and so on")
        await ana.send(room, {"msgtype": "m.image", "body": "cat.png", "url": address, "info": {"mimetype": "image/png"}})
        await ana.send(room, {"msgtype": "m.file", "filename": "a.txt", "body": "Look at this", "url": address})
        picture, file = await on.arrivals(2)
        assert (picture.text, picture.attachments) == (
            "",
            (InboundFile(content=b"\x89PNG and so on", name="cat.png", media="image/png"),),
        )
        assert (file.text, file.attachments[0].name) == ("Look at this", "a.txt")
        files = (
            OutputFile(content=b"1,2", media="text/csv", name="\u202eplan.csv"),
            OutputFile(content=b"p", media="image/png"),
        )
        for number, each in enumerate(files):
            await on.channel.deliver(post(room, "", number, attachments=(each,)))
        csv, png = [event["content"] for event in await ana.posts(room, bot.user, 2)]
        assert (csv["msgtype"], csv["body"], csv["info"]) == ("m.file", "plan.csv", {"mimetype": "text/csv", "size": 3})
        assert (png["msgtype"], await ana.download(csv["url"]), await ana.download(png["url"])) == ("m.image", b"1,2", b"p")
        with pytest.raises(Undeliverable, match="M_TOO_LARGE"):
            await on.channel.deliver(post(room, "", 9, attachments=(OutputFile(content=bytes(9 * 2**20), media="a/b"),)))


async def test_a_file_that_cannot_be_had_is_told_and_holds_nothing(
    synapse: SynapseServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sync, "PAUSES", (0.01,))
    async with scene(synapse, tmp_path) as (on, ana, bot, room):
        waiting = await ana.ask("POST", "/_matrix/media/v1/create", {})  # an address to which nothing is uploaded
        monkeypatch.setattr(on.channel._client, "download", partial(impatient, on.channel._client))
        for address in ("mxc://test/unknown", str(waiting["content_uri"])):
            await ana.send(room, {"msgtype": "m.file", "body": "a.txt", "url": address})
        await ana.say(room, "next")
        assert (await on.arrival()).text == "next"
        told = [event["content"]["body"] for event in await ana.posts(room, bot.user, 2)]
    assert all(text.startswith("The file 'a.txt' cannot be received: ") for text in told)
    assert len(told) == 2


async def impatient(client: MatrixApi, address: str) -> bytes:
    """Download a file, and do not wait until somebody uploads it."""
    server, _, media = address.removeprefix("mxc://").partition("/")
    query = {"timeout_ms": "1"}
    return await client._send(
        "GET", f"/_matrix/client/v1/media/download/{server}/{media}", b"", media="application/json", query=query
    )


async def test_an_invitation_is_accepted_although_the_server_was_away(synapse: SynapseServer, tmp_path: Path) -> None:
    async with person(synapse) as ana, person(synapse, "bot") as bot:
        room = await ana.room(bot.user)
        async with make_context(tmp_path, settings_for(synapse, bot)) as context, MatrixChannel(context) as channel:
            request, refused = channel._client.request, asyncio.Event()

            async def refuse(method: str, path: str, *more: Any, **options: Any) -> dict[str, Any]:
                if "/join/" in path and not refused.is_set():
                    refused.set()
                    raise MatrixError(502, {}, None)
                return await request(method, path, *more, **options)

            channel._client.request = refuse  # type: ignore[method-assign]
            running = asyncio.create_task(channel.run(RecordingInbox()))
            await joined(ana, bot, room)
            assert refused.is_set()
            running.cancel()
            await asyncio.wait([running])


async def test_nothing_is_fetched_for_unknown_senders(synapse: SynapseServer, tmp_path: Path) -> None:
    async with scene(synapse, tmp_path) as (on, ana, _, room):
        said = await ana.say(room, "known")
        assert (await on.arrival()).text == "known"
        on.inbox.unknown.add(ana.user)
        await ana.send(room, {"msgtype": "m.file", "body": "a.txt", "url": await ana.upload(b"content")})
        await ana.edit(room, said, "edited")
        await ana.react(room, said, "👍")
        await ana.say(room, "last")
        arrived = await on.arrivals(2)
    assert [(each.text, each.attachments) for each in arrived] == [("", ()), ("last", ())]


# --- answers ----------------------------------------------------------------------------------------------------------


async def test_markdown_becomes_html_and_nothing_else_does(synapse: SynapseServer, tmp_path: Path) -> None:
    links = "[bank.example](http://evil.example/) ![p](http://evil.example/p)"
    text = f"**Tea** <script>x</script> @room {links}\n\u202e\x07 [j](javascript:x)"
    async with scene(synapse, tmp_path) as (on, ana, bot, room):
        await on.channel.deliver(post(room, text))
        await on.channel.deliver(post(room, "plain & simple", 2))
        formatted, plain = [event["content"] for event in await ana.posts(room, bot.user, 2)]
    assert formatted["formatted_body"] == (
        "<p><strong>Tea</strong> &lt;script&gt;x&lt;/script&gt; @room "
        '<a href="http://evil.example/">bank.example</a> (evil.example) <a href="http://evil.example/p">p</a> (evil.example)'
        "<br />\n[j](javascript:x)</p>"
    )
    assert formatted["body"] == text.replace("\u202e\x07", "")
    assert plain == {"msgtype": "m.text", "body": "plain & simple", "m.mentions": {}}


async def test_the_same_answer_is_the_same_event_even_after_a_restart(synapse: SynapseServer, tmp_path: Path) -> None:
    async with person(synapse) as ana, person(synapse, "bot") as bot:
        events = []
        room = ""
        for _ in range(2):
            async with opened(tmp_path, settings_for(synapse, bot)) as on:
                if not room:
                    room = await ana.room(bot.user)
                    await joined(ana, bot, room)
                choices = (Choice(id="/approve a once", label="Once"), Choice(id="/deny a", label="Deny"))
                events += [await on.channel.deliver(post(room, choices=choices)) for _ in range(2)]
        reactions = [
            each["content"]["m.relates_to"]["key"]
            for each in await ana.events(room, bot.user)
            if each["type"] == "m.reaction"
        ]
        assert len(await ana.posts(room, bot.user, 1)) == 1
    assert len(set(events)) == 1
    assert reactions == list(KEYCAPS[:2])


async def test_a_choice_is_found_after_a_restart(synapse: SynapseServer, tmp_path: Path) -> None:
    async with person(synapse) as ana, person(synapse, "bot") as bot:
        async with opened(tmp_path, settings_for(synapse, bot)) as on:
            room = await ana.room(bot.user)
            await joined(ana, bot, room)
            choices = (Choice(id="/approve a once", label="Once"), Choice(id="/deny a", label="Deny"))
            sent = await on.channel.deliver(post(room, choices=choices))
        async with opened(tmp_path, settings_for(synapse, bot)) as on:
            await ana.react(room, sent, KEYCAPS[1])
            await ana.react(room, sent, KEYCAPS[5])
            chosen, other = await on.arrivals(2)
    assert (chosen.choice, chosen.text) == ("/deny a", "")
    assert (other.choice, other.reacts_to) == ("", sent)


async def test_long_answers_fit_or_do_not(synapse: SynapseServer, tmp_path: Path) -> None:
    async with scene(synapse, tmp_path) as (on, ana, bot, room):
        for number, text in enumerate(("word " * 3000, "😀" * 2000, "`a`<" * 900, '\\"&<>' * 1200), start=1):
            longest = text * next(times for times in range(1, 50) if not on.channel.fits(text * (times + 1)))
            assert await on.channel.deliver(post(room, longest, number))
        with pytest.raises(Undeliverable, match="M_TOO_LARGE"):
            await on.channel.deliver(post(room, "x" * 70_000, 9))
        await on.channel.deliver(post(room, "next", 10))
        assert events_of(await ana.posts(room, bot.user, 5))[-1] == "next"


async def test_typing_is_shown_and_ends_with_the_answer(synapse: SynapseServer, tmp_path: Path) -> None:
    def typing(*users: str) -> Callable[[dict[str, Any]], object]:
        return lambda event: event["type"] == "m.typing" and event["content"]["user_ids"] == list(users)

    async with scene(synapse, tmp_path) as (on, ana, bot, room):
        await on.channel.show_activity(ChannelActivity(chat=room))
        await ana.until_shown(room, typing(bot.user))
        await on.channel.deliver(post(room))
        await ana.until_shown(room, typing())


async def test_messages_are_marked_as_read_when_they_are_durable(synapse: SynapseServer, tmp_path: Path) -> None:
    async with scene(synapse, tmp_path) as (on, ana, bot, room):
        on.inbox.refused = MessageRejected("Busy.", later=True)
        said = await ana.say(room, "hello")
        assert (await on.arrival()).id == said
        await ana.until_shown(
            room, lambda event: event["type"] == "m.receipt" and bot.user in event["content"].get(said, {}).get("m.read", {})
        )


# --- errors -----------------------------------------------------------------------------------------------------------


async def test_a_rejected_message_is_told_only_to_who_may_know(synapse: SynapseServer, tmp_path: Path) -> None:
    async with scene(synapse, tmp_path) as (on, ana, bot, room):
        for text, tell in (("one", False), ("two", True)):
            on.inbox.refused = MessageRejected(f"{text} is **refused**.", tell=tell)
            await ana.say(room, text)
            await until(lambda: on.inbox.refused is None)
        await ana.say(room, "three")
        assert (await on.arrival()).text == "three"
        (told,) = await ana.posts(room, bot.user, 1)
    assert (told["content"]["msgtype"], told["content"]["body"]) == ("m.notice", "two is **refused**.")


async def test_a_rate_limit_is_kept_to_the_millisecond(synapse: SynapseServer, tmp_path: Path) -> None:
    async with rooms_of(synapse) as rooms, opened(tmp_path, settings_for(synapse, rooms.bot)) as on:
        room = await rooms.room("kitchen")
        await rooms.limit()
        with pytest.raises(TryLater) as limited:
            await on.channel.deliver(post(room))
        assert 0 < limited.value.after <= 2.0
        await asyncio.sleep(limited.value.after)
        assert await on.channel.deliver(post(room))


async def test_a_room_that_was_left_takes_no_answers(synapse: SynapseServer, tmp_path: Path) -> None:
    async with scene(synapse, tmp_path) as (on, ana, bot, room):
        await on.channel.deliver(post(room))
        await ana.ask("POST", f"/_matrix/client/v3/rooms/{room}/kick", {"user_id": bot.user})
        for chat in (room, "!unknown:test", "no room"):
            with pytest.raises(Undeliverable):
                await on.channel.deliver(post(chat, number=2))


async def test_wrong_credentials_say_how_to_mend_them(synapse: SynapseServer, tmp_path: Path) -> None:
    wrong = (
        (MatrixSettings(homeserver=synapse.url, token=Secret("syt_no")), "put a new one into `token`"),
        (MatrixSettings(homeserver=synapse.url, user="nobody", password=Secret("no")), "the user or the password is wrong"),
    )
    for settings, how in wrong:
        with pytest.raises(LoginFailed, match=how):
            async with opened(tmp_path, settings):
                pass


async def test_a_token_that_ended_is_replaced_with_the_password(synapse: SynapseServer, tmp_path: Path) -> None:
    async with scene(synapse, tmp_path) as (on, ana, bot, room):
        await bot.ask("POST", "/_matrix/client/v3/logout/all", {})  # deletes the device too: run ends, and is opened again
        await asyncio.wait([on.running], timeout=DEADLINE)
        with pytest.raises(PluginError, match="had deleted the channel's device; it has a new one now"):
            on.running.result()
        async with opened(tmp_path, settings_for(synapse, bot)) as again:
            await ana.say(room, "still there?")
            assert (await again.arrival()).text == "still there?"
            assert "device" in await again.channel.check()


@pytest.mark.parametrize("expires", [True, False])
async def test_a_token_that_ended_and_cannot_be_replaced_ends_the_channel_with_how_to_fix_it(
    synapse: SynapseServer, tmp_path: Path, *, expires: bool
) -> None:
    async with person(synapse) as ana, person(synapse, "bot") as bot:
        who = {"identifier": {"type": "m.id.user", "user": bot.user}, "password": PASSWORD}
        login = {"type": "m.login.password", "refresh_token": expires, "device_id": "OURS"} | who
        token = (await ana.ask("POST", "/_matrix/client/v3/login", login))["access_token"]
        async with opened(tmp_path, MatrixSettings(homeserver=synapse.url, token=Secret(token))) as on:
            if expires:
                synapse.expire(bot.user, "OURS")
            else:
                await bot.ask("POST", "/_matrix/client/v3/logout/all", {})
            await asyncio.wait([on.running], timeout=DEADLINE)
            with pytest.raises(LoginFailed, match="its access token has ended or is not valid; put a new one into `token`"):
                on.running.result()


async def test_the_server_and_the_connection_may_end_at_any_time(synapse: SynapseServer, tmp_path: Path) -> None:
    async with Link(synapse.port) as link, person(synapse) as ana, person(synapse, "bot") as bot:
        settings = MatrixSettings(homeserver=f"http://127.0.0.1:{link.port}", user=bot.user, password=Secret(PASSWORD))
        async with opened(tmp_path, settings) as on:
            room = await ana.room(bot.user)
            await joined(ana, bot, room)
            for number in range(6):
                link.sever("in", number * 150)
                await ana.say(room, str(number))
            assert [each.text for each in await on.arrivals(6)] == [str(number) for number in range(6)]
            synapse.kill()
            async with deadline():
                while "cannot be reached" not in await on.inbox.reported.get():
                    pass
            with pytest.raises(Exception, match=r"cannot be reached|interrupted|Cannot connect"):
                await on.channel.deliver(post(room))
            synapse.start()
            await ana.say(room, "back")
            assert (await on.arrival()).text == "back"
            assert on.inbox.reported.get_nowait() == "" or await on.inbox.reported.get() == ""
            await on.channel.deliver(post(room))
            assert len(await ana.posts(room, bot.user, 1)) == 1


async def test_a_busy_chat_does_not_hold_the_others_and_loses_nothing(synapse: SynapseServer, tmp_path: Path) -> None:
    class Busy(RecordingInbox):
        busy = ""

        async def receive(self, arrival: InboundMessage) -> bool:
            if arrival.chat == self.busy:
                raise MessageRejected("Busy.", later=True)
            return await super().receive(arrival)

    inbox = Busy()
    async with person(synapse) as ana, person(synapse, "bot") as bot:
        settings = settings_for(synapse, bot)
        async with opened(tmp_path, settings, inbox) as on:
            busy, free = await ana.room(bot.user), await ana.room(bot.user)
            await joined(ana, bot, busy)
            await joined(ana, bot, free)
            inbox.busy = busy
            await ana.say(busy, "waits")
            for number in range(3):
                await ana.say(free, str(number))
                assert (await on.arrival()).text == str(number)
        inbox.busy = ""
        async with opened(tmp_path, settings, inbox) as on:
            await ana.say(busy, "last")
            texts = [""]
            while texts[-1] != "last":
                texts.append((await on.arrival()).text)
    assert "waits" in texts
