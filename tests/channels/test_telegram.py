"""The Telegram channel against the fake of its Bot API."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
import pytest
from aiohttp import web

from benchmarks.ports import free_port
from plugins.api.channel import (
    ChannelActivity,
    Choice,
    DeliveryUnknown,
    InboundMessage,
    MessageRejected,
    OutboundMessage,
    TryLater,
    Undeliverable,
)
from plugins.api.command import CommandHelp
from plugins.api.tool import OutputFile
from plugins.channels.telegram import telegram_channel, update_queue, update_reader
from plugins.channels.telegram.bot_api import NotSent
from plugins.channels.telegram.telegram_channel import TelegramChannel, TelegramSettings
from plugins.support.errors import PluginError, SettingsRefused
from plugins.support.secrets import Secret
from plugins.testing.channel_checks import ChannelConformance, Opened, RecordingInbox
from plugins.testing.contexts import make_context
from tests.pictures import png
from tests.servers.telegram_rules import Json, Parameters, Refused
from tests.servers.telegram_server import TOKEN, Fault, TelegramServer
from tests.waiting import DEADLINE, VirtualTime, deadline, until

ANA, BEN, EVE = 11, 12, 13
GROUP, OLD_GROUP, NEW_GROUP = -1000000000044, -55, -1000000000055
BLOCKED = Refused(403, "Forbidden: bot was blocked by the user")
SECONDS = 30.0
"""Seconds after which a message has not arrived; less than the time that a test of a guard may take."""
ANONYMOUS_ADMIN = {"id": 1087968824, "is_bot": True, "first_name": "Group", "username": "GroupAnonymousBot"}


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(telegram_channel, "PAUSES", (0.02,))
    monkeypatch.setattr(update_reader, "RETRY_SECONDS", (0.02,) * 5)
    monkeypatch.setattr(update_queue, "ALBUM_SECONDS", 0.3)
    monkeypatch.setattr(update_queue, "PAUSES", (0.02,))


@pytest.fixture
async def telegram() -> AsyncIterator[TelegramServer]:
    async with TelegramServer() as server:
        server.user(ANA, "Ana", last_name="Bell")
        server.user(BEN, "Ben")
        server.group(GROUP, "Kitchen", forum=True)
        yield server


@asynccontextmanager
async def opened(server: TelegramServer, folder: Path, **settings: Any) -> AsyncIterator[Opened]:
    """Run the channel against a fake."""
    channel = Channel(server, settings)
    async with channel.opened(folder) as on:
        yield on


class Channel(ChannelConformance):
    """Runs the channel as the conformance checks do."""

    channel = TelegramChannel

    def __init__(self, server: TelegramServer, settings: dict[str, Any]) -> None:
        self._server = server
        self._settings = settings

    @asynccontextmanager
    async def service(self) -> AsyncIterator[TelegramServer]:
        yield self._server

    def settings(self, service: TelegramServer) -> TelegramSettings:
        return TelegramSettings(**{"token": Secret(service.token), "base_url": service.url, **self._settings})


def message(chat: int, text: str = "", **fields: Any) -> OutboundMessage:
    return OutboundMessage(id="s/1", chat=str(chat), text=text, **fields)


async def answered(on: Opened, chat: int, text: str = "", **fields: Any) -> str:
    async with deadline():
        return await on.channel.deliver(message(chat, text, **fields))


async def arrived(on: Opened) -> InboundMessage:
    async with asyncio.timeout(SECONDS):
        return await on.inbox.arrived.get()


async def reported(on: Opened) -> str:
    async with deadline():
        return await on.inbox.reported.get()


async def nothing_else(on: Opened, server: TelegramServer) -> None:
    """Check that everything was confirmed and nothing more arrived."""
    async with asyncio.timeout(SECONDS):
        await until(lambda: server.unconfirmed() == 0)
    assert on.inbox.arrived.empty()


class FakeOfChecks(TelegramServer):
    """The fake as the conformance checks use it: its people and chats by their names."""

    IDS: ClassVar[dict[str, int]] = {
        "ana": ANA,
        "ben": BEN,
        "eve": EVE,
        **dict(
            zip(
                ("kitchen", "street", "garden", "attic", "demolished", "crowded", "silent"), range(-1007, -1000), strict=True
            )
        ),
    }

    async def __aenter__(self) -> Self:
        for name, number in self.IDS.items():
            if number > 0:
                self.user(number, name)
            else:
                self.group(number, name)
        self.privacy = False
        self.chats[self.IDS["demolished"]].refusal = Refused(403, "Forbidden: bot was kicked from the supergroup chat")
        self.chats[self.IDS["crowded"]].refusal = Refused(429, "Too Many Requests: retry after 3", retry_after=3)
        self._heard = 0
        return await super().__aenter__()

    async def _answer(self, request: web.Request, method: str, given: Parameters) -> Any:
        result = await super()._answer(request, method, given)
        if given.number("chat_id") == self.IDS["silent"]:
            await self._fail(request, Fault())
        return result

    async def hear(self) -> tuple[str, str]:
        await until(lambda: len(self.posts) > self._heard)
        post = self.posts[self._heard]
        self._heard += 1
        return str(post["chat"]["id"]), post.get("text", "")


class People:
    """The people of the conformance checks."""

    def __init__(self, server: FakeOfChecks) -> None:
        self.server = server
        self.hear = server.hear
        self._said: Json = {}

    async def say(self, sender: str, chat: str, text: str) -> None:
        self._said = await self.server.say(self.server.IDS[sender], self.server.IDS[chat], text)

    async def edit(self, sender: str, chat: str, text: str) -> None:
        await self.server.edit(self._said, text)

    async def press(self, sender: str, chat: str, label: str) -> None:
        await self.server.press(self.server.IDS[sender], self.server.posts[-1], label)


class TestConformance(ChannelConformance):
    channel = TelegramChannel
    deleted_chat = "demolished"
    busy_chat = "crowded"
    silent_chat = "silent"
    edits = True
    buttons = True

    def known_as(self, name: str) -> str:
        return str(FakeOfChecks.IDS[name])

    @asynccontextmanager
    async def service(self) -> AsyncIterator[People]:
        async with FakeOfChecks() as server:
            yield People(server)

    def settings(self, service: People) -> TelegramSettings:
        return TelegramSettings(token=Secret(service.server.token), base_url=service.server.url)


# --- receiving --------------------------------------------------------------------------------------------------------


async def test_a_message_is_confirmed_only_once_it_is_received(
    telegram: TelegramServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(telegram, tmp_path) as on:
        receive, durable = on.inbox.receive, asyncio.Event()

        async def slow(inbound: InboundMessage) -> bool:
            await durable.wait()
            return await receive(inbound)

        monkeypatch.setattr(on.inbox, "receive", slow)
        said = await telegram.say(ANA, ANA, "hello")
        polls = telegram.called("getUpdates")
        await until(lambda: telegram.called("getUpdates") > polls + 2)
        assert telegram.unconfirmed() == 1
        durable.set()
        found = await arrived(on)
        assert (found.id, found.sender, found.name, found.chat) == (f"{ANA}/{said['message_id']}", "11", "Ana Bell", "11")
        assert (found.text, found.group, found.mentioned, found.at) == ("hello", False, True, said["date"])
        await nothing_else(on, telegram)


async def test_a_message_that_is_rejected_for_now_is_passed_on_again(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        on.inbox.refused = MessageRejected("The disk is slow.", later=True)
        await telegram.say(ANA, ANA, "hello")
        assert (await arrived(on)).text == "hello"
        await nothing_else(on, telegram)


async def test_what_was_not_confirmed_comes_again_with_the_same_id(telegram: TelegramServer, tmp_path: Path) -> None:
    await telegram.say(ANA, ANA, "hello")
    telegram.faults["getupdates"].extend([Fault(after=True)] * 2)
    async with opened(telegram, tmp_path) as on:
        first = await arrived(on)
        await until(lambda: telegram.unconfirmed() == 0)
    await telegram.say(ANA, ANA, "again")
    async with opened(telegram, tmp_path) as on:
        assert (await arrived(on)).text == "again"
        assert first.text == "hello"


async def test_a_chat_that_waits_does_not_hold_the_others(
    telegram: TelegramServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(telegram, tmp_path) as on:
        receive, busy = on.inbox.receive, asyncio.Event()

        async def slow(inbound: InboundMessage) -> bool:
            if inbound.sender == str(ANA) and not busy.is_set():
                raise MessageRejected("Busy.", later=True)
            return await receive(inbound)

        monkeypatch.setattr(on.inbox, "receive", slow)
        await telegram.say(ANA, ANA, "one")
        await telegram.say(ANA, ANA, "two")
        for number in range(3):
            await telegram.say(BEN, BEN, f"ben {number}")
            assert (await arrived(on)).text == f"ben {number}"
        assert telegram.unconfirmed() == 5
        busy.set()
        assert [(await arrived(on)).text, (await arrived(on)).text] == ["one", "two"]
        await nothing_else(on, telegram)


async def test_an_album_is_one_message(telegram: TelegramServer, tmp_path: Path) -> None:
    pictures = [png(2 + number) for number in range(3)]
    async with opened(telegram, tmp_path) as on:
        said = await telegram.album(ANA, ANA, [{"photo": telegram.photo(each)} for each in pictures], "three cups")
        found = await arrived(on)
        assert (found.id, found.text) == (f"{ANA}/{said[0]['message_id']}", "three cups")
        assert [file.content for file in found.attachments] == pictures
        await nothing_else(on, telegram)


async def test_an_album_that_is_cut_by_a_crash_loses_and_repeats_nothing(telegram: TelegramServer, tmp_path: Path) -> None:
    (first, late) = (telegram.photo(png(2)), telegram.photo(png(3)))
    said = await telegram.say(ANA, ANA, photo=first, media_group_id="77")
    async with opened(telegram, tmp_path) as on:
        one = await arrived(on)
        telegram.faults["getupdates"].extend([Fault(502)] * 1000)
    telegram.faults["getupdates"].clear()
    assert telegram.unconfirmed() == 1  # as after a kill: received, but not confirmed
    later = await telegram.say(ANA, ANA, photo=late, media_group_id="77")
    async with opened(telegram, tmp_path) as on:
        again, rest = await arrived(on), await arrived(on)
        assert again == one
        assert [one.id, rest.id] == [f"{ANA}/{said['message_id']}", f"{ANA}/{later['message_id']}"]
        assert len(rest.attachments) == 1
        await nothing_else(on, telegram)


@pytest.mark.parametrize(
    ("fields", "name", "media"),
    [
        ({"document": {"file_name": "a.pdf", "mime_type": "application/pdf"}}, "a.pdf", "application/pdf"),
        ({"voice": {"mime_type": "audio/ogg"}}, "voice-1.ogg", "audio/ogg"),
        ({"audio": {"file_name": "a.mp3"}}, "a.mp3", "audio/mpeg"),
        ({"video": {}}, "video-1.mp4", "video/mp4"),
        ({"video_note": {}}, "video_note-1.mp4", "video/mp4"),
        ({"animation": {}, "document": {}}, "animation-1.mp4", "video/mp4"),
        ({"sticker": {"emoji": "😀"}}, "sticker-1.webp", "image/webp"),
        ({"sticker": {"is_animated": True}}, "sticker-1.tgs", "application/gzip"),
        ({"sticker": {"is_video": True}}, "sticker-1.webm", "video/webm"),
    ],
)
async def test_files_arrive(telegram: TelegramServer, tmp_path: Path, fields: Json, name: str, media: str) -> None:
    stored = telegram.upload(b"content")
    async with opened(telegram, tmp_path) as on:
        said: Json = {kind: {**stored, **more} for kind, more in fields.items()}
        await telegram.say(ANA, ANA, **said)
        found = await arrived(on)
    assert [(file.name, file.media, file.content) for file in found.attachments] == [(name, media, b"content")]


async def test_a_file_that_is_too_large_is_told_to_its_sender(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        for size in (25 * 1024**2, 0):  # the size that Telegram names, and one that it does not
            file = telegram.upload(b"x", "film.mkv", size=25 * 1024**2) | {"file_size": size, "file_name": "film.mkv"}
            await telegram.say(ANA, ANA, document=file, caption="a film")
            found = await arrived(on)
            assert found.attachments == ()
            assert found.text.startswith("a film\n[The file 'film.mkv' could not be received:")
            await until(lambda: telegram.posts)
            assert "at most 20 MB" in telegram.posts.pop()["text"]


async def test_a_file_of_a_stranger_is_not_downloaded(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        on.inbox.unknown = {str(ANA)}
        await telegram.say(ANA, ANA, document=telegram.upload(b"x", "a.txt"), caption="hi")
        assert (await arrived(on)).attachments == ()
        assert telegram.called("getFile") == 0
        on.inbox.refused = MessageRejected("You are not known.")
        await telegram.say(ANA, ANA, "let me in")
        await nothing_else(on, telegram)
        assert telegram.posts == []  # nothing is told that the gateway does not want told
        on.inbox.refused = MessageRejected("Your code is 1234.", tell=True)
        await telegram.say(ANA, ANA, "let me in")
        await until(lambda: telegram.posts)
        assert telegram.posts[0]["text"] == "Your code is 1234."


async def test_a_file_in_a_group_is_downloaded_only_if_its_message_counts(telegram: TelegramServer, tmp_path: Path) -> None:
    telegram.privacy = False
    async with opened(telegram, tmp_path) as on:
        await telegram.say(ANA, GROUP, document=telegram.upload(b"x", "a.txt"), caption="look")
        assert (await arrived(on)).attachments == ()
        assert telegram.called("getFile") == 0
        mention = {"type": "mention", "offset": 0, "length": 11}
        file = telegram.upload(b"x", "a.txt")
        await telegram.say(ANA, GROUP, document=file, caption="@exuvia_bot look", caption_entities=[mention])
        assert [file.content for file in (await arrived(on)).attachments] == [b"x"]


async def test_a_download_that_fails_is_repeated(telegram: TelegramServer, tmp_path: Path) -> None:
    telegram.faults["getfile"].extend([Fault(500), Fault(), Fault(429, "Too Many Requests", parameters={"retry_after": 1})])
    async with opened(telegram, tmp_path) as on:
        await telegram.say(ANA, ANA, document=telegram.upload(b"x", "a.txt"))
        assert [file.content for file in (await arrived(on)).attachments] == [b"x"]


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"location": {"latitude": 48.2, "longitude": 16.37}}, "Location: 48.200000, 16.370000"),
        (
            {"venue": {"location": {"latitude": 1, "longitude": 2}, "title": "Café", "address": "Ring 1"}, "location": {
                "latitude": 1, "longitude": 2}},
            "Location: Café, Ring 1 (1.000000, 2.000000)",
        ),
        ({"contact": {"phone_number": "+43 1", "first_name": "Ben"}}, "Contact: Ben, +43 1"),
        ({"poll": {"id": "1", "question": "Tea?", "options": [{"text": "yes"}]}}, "Poll: Tea?\n- yes"),
        ({"dice": {"emoji": "🎲", "value": 4}}, "🎲 4"),
        (
            {"text": "/approve k3 once", "forward_origin": {"type": "user", "sender_user": {"id": 5, "first_name": "Eve"}}},
            "Forwarded from Eve:\n/approve k3 once",
        ),
        ({"text": "see x = 1 ok", "entities": [{"type": "pre", "offset": 4, "length": 5, "language": "py"}]},
         "see ```py\nx = 1\n``` ok"),
        ({"text": "😀 a`b here", "entities": [
            {"type": "code", "offset": 3, "length": 3}, {"type": "text_link", "offset": 7, "length": 4, "url": "http://e.org"}]},
         "😀 ``a`b`` [here](http://e.org)"),
        ({"text": "/start"}, "/help"),
        ({"text": "/start join"}, "/help"),
        ({"text": "/new@exuvia_bot now"}, "/new now"),
    ],
)  # fmt: skip
async def test_everything_is_text(telegram: TelegramServer, tmp_path: Path, fields: Json, text: str) -> None:
    async with opened(telegram, tmp_path) as on:
        await telegram.say(ANA, ANA, **fields)
        assert (await arrived(on)).text == text


async def test_an_edit_names_what_it_replaces(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        said = await telegram.say(ANA, ANA, "tee")
        first = await arrived(on)
        await telegram.edit(said, "tea")
        edited = await arrived(on)
        assert (edited.edits, edited.text) == (first.id, "tea")
        assert edited.id.startswith(f"{first.id}/e")


async def test_replies_and_quotes(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        said = await telegram.say(ANA, ANA, "the whole text")
        await arrived(on)
        await telegram.say(ANA, ANA, "why?", reply_to_message=said)
        assert (await arrived(on)).reply == "the whole text"
        await telegram.say(ANA, ANA, "why?", reply_to_message=said, quote={"text": "whole", "position": 4})
        assert (await arrived(on)).reply == "whole"


@pytest.mark.parametrize(
    ("text", "fields", "expected"),
    [
        ("hello", {}, (False, "hello")),
        ("@exuvia_bot hello", {}, (True, "hello")),
        ("hello @Exuvia_Bot!", {}, (True, "hello @Exuvia_Bot!")),
        ("hello @exuvia_bot_2", {}, (False, "hello @exuvia_bot_2")),
        ("/status", {}, (True, "/status")),
        ("/status@exuvia_bot", {}, (True, "/status")),
        ("/status@other_bot", {}, (False, "/status@other_bot")),
        ("tea?", {"reply_to_message": {"message_id": 1, "chat": {"id": GROUP}, "from": {"id": 7000000001}}}, (True, "tea?")),
        ("tea?", {"message_thread_id": 7}, (False, "tea?")),
        ("Bot: tea?", {"entities": [{"type": "text_mention", "offset": 0, "length": 3, "user": {
            "id": 7000000001, "is_bot": True, "first_name": "x"}}]}, (True, "Bot: tea?")),
    ],
)  # fmt: skip
async def test_who_is_addressed_in_a_group(
    telegram: TelegramServer, tmp_path: Path, text: str, fields: Json, expected: tuple[bool, str]
) -> None:
    telegram.privacy = False
    async with opened(telegram, tmp_path) as on:
        await telegram.say(ANA, GROUP, text, **fields)
        found = await arrived(on)
    assert (found.group, (found.mentioned, found.text)) == (True, expected)


async def test_topics_are_threads(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        await telegram.say(ANA, GROUP, "@exuvia_bot hello", message_thread_id=7)
        found = await arrived(on)
        assert (found.chat, found.thread, found.reply) == (str(GROUP), "7", "")
        await answered(on, GROUP, "There is tea.", thread=found.thread, reply_to=found.id)
        (post,) = telegram.posts
        assert (post["message_thread_id"], post["reply_to_message"]["text"]) == (7, "@exuvia_bot hello")
        with pytest.raises(Undeliverable, match="thread not found"):
            await answered(on, GROUP, "There is tea.", thread="8")


async def test_who_writes_as_a_group_or_is_a_bot(telegram: TelegramServer, tmp_path: Path) -> None:
    """Anonymous administrators share one user: the group is the sender."""
    telegram.users[1087968824] = ANONYMOUS_ADMIN
    telegram.users[99] = {"id": 99, "is_bot": True, "first_name": "Other"}
    async with opened(telegram, tmp_path) as on:
        await telegram.say(99, GROUP, "@exuvia_bot hello")
        await telegram.say(
            1087968824, GROUP, "@exuvia_bot hi", sender_chat={"id": GROUP, "type": "supergroup", "title": "K"}
        )
        found = await arrived(on)
        assert (found.sender, found.name, found.text) == (str(GROUP), "K", "hi")
        await nothing_else(on, telegram)


async def test_a_group_that_becomes_a_supergroup_stays_one_conversation(telegram: TelegramServer, tmp_path: Path) -> None:
    telegram.group(OLD_GROUP, "Attic", supergroup=False)
    async with opened(telegram, tmp_path) as on:
        await telegram.migrate(OLD_GROUP, NEW_GROUP)
        await telegram.say(ANA, NEW_GROUP, "@exuvia_bot hello")
        assert (await arrived(on)).chat == str(OLD_GROUP)
    async with opened(telegram, tmp_path) as on:
        await answered(on, OLD_GROUP, "There is tea.")
        assert [post["chat"]["id"] for post in telegram.posts] == [NEW_GROUP]
        assert telegram.called("sendMessage") == 1


async def test_a_group_that_became_a_supergroup_unseen_is_found(telegram: TelegramServer, tmp_path: Path) -> None:
    telegram.group(OLD_GROUP, "Attic", supergroup=False)
    async with opened(telegram, tmp_path) as on:
        on.running.cancel()
        await telegram.migrate(OLD_GROUP, NEW_GROUP)
        for _ in range(2):
            await answered(on, OLD_GROUP, "There is tea.")
        assert telegram.called("sendMessage") == 3
        assert [post["chat"]["id"] for post in telegram.posts] == [NEW_GROUP] * 2


async def test_reactions_name_the_post(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        receipt = await answered(on, ANA, "May I?")
        await telegram.react(ANA, telegram.posts[0], "👍")
        found = await arrived(on)
        assert (found.reaction, found.reacts_to, found.sender, found.text) == ("👍", receipt, "11", "")
        await telegram.react(ANA, telegram.posts[0], "", before="👍")
        await nothing_else(on, telegram)


async def test_buttons_come_back_and_stop_spinning(telegram: TelegramServer, tmp_path: Path) -> None:
    choices = (Choice(id="/approve k3f9 once " + "x" * 45, label="Once"), Choice(id="/deny k3f9", label="Deny"))
    async with opened(telegram, tmp_path) as on:
        await answered(on, GROUP, "May I?", choices=choices)
        query = await telegram.press(BEN, telegram.posts[0], "Once")
        found = await arrived(on)
        assert (found.choice, found.sender, found.group) == (choices[0].id, "12", True)
        await until(lambda: query in telegram.answers)
        on.inbox.refused = MessageRejected("Only Ana may answer.", tell=True)
        query = await telegram.press(BEN, telegram.posts[0], "Deny")
        await until(lambda: query in telegram.answers)
        assert telegram.answers[query] == {"text": "Only Ana may answer.", "show_alert": True}


async def test_an_update_that_cannot_be_read_does_not_hold_the_others(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        await telegram.news("message", {"message_id": "not a number", "chat": 7})
        await telegram.say(ANA, ANA, "hello")
        assert (await arrived(on)).text == "hello"
        await nothing_else(on, telegram)


async def test_ids_that_begin_anew_lower_are_received(
    telegram: TelegramServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a week without updates their ids are chosen anew."""
    monkeypatch.setattr(update_queue, "POLL_SECONDS", 0)
    async with opened(telegram, tmp_path) as on:
        await telegram.say(ANA, ANA, "one")
        await arrived(on)
        await until(lambda: telegram.unconfirmed() == 0)
        polls = telegram.called("getUpdates")
        telegram.restart_numbers()
        await until(lambda: telegram.called("getUpdates") > polls + 1)
        await telegram.say(ANA, ANA, "two")
        assert (await arrived(on)).text == "two"


# --- the connection ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("token", [TOKEN[:-1] + "X", "123:short"])
async def test_a_wrong_token_is_said_with_how_to_fix_it(telegram: TelegramServer, tmp_path: Path, token: str) -> None:
    settings = TelegramSettings(token=Secret(token), base_url=telegram.url)
    async with make_context(tmp_path, settings) as context:
        with pytest.raises(SettingsRefused, match="@BotFather"):
            await TelegramChannel(context).__aenter__()


async def test_a_token_that_is_revoked_ends_the_channel_with_how_to_fix_it(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        await until(lambda: telegram.called("getUpdates"))
        telegram.token = "7000000001:another-token-that-nobody-has-told-us-12345"
        telegram.end_poll()
        await asyncio.wait([on.running], timeout=DEADLINE)
        assert isinstance(error := on.running.exception(), PluginError)
        assert "@BotFather" in str(error)


async def test_another_poller_and_a_webhook_are_reported_with_how_to_fix_it(
    telegram: TelegramServer, tmp_path: Path
) -> None:
    async with opened(telegram, tmp_path) as on:
        await until(lambda: telegram.called("getUpdates"))
        telegram.faults["getupdates"].append(Fault(502, "Bad Gateway"))
        telegram.end_poll()
        problems = [await reported(on) for _ in range(2)]
        assert "Another program receives this bot's messages" in problems[0]
        assert "502: Bad Gateway" in problems[1]
        await telegram.say(ANA, ANA, "hello")
        await arrived(on)
        assert await reported(on) == ""
        telegram.webhook = "https://example.org"
        telegram.end_poll()
        while "deleteWebhook" not in await reported(on):
            pass


async def test_a_poll_that_hangs_is_ended(telegram: TelegramServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(update_queue, "POLL_SECONDS", 0)
    monkeypatch.setattr(telegram_channel, "MARGIN", 0.5)
    telegram.faults["getupdates"].append(Fault(delay=3600))
    async with opened(telegram, tmp_path) as on:
        await telegram.say(ANA, ANA, "hello")
        assert (await arrived(on)).text == "hello"
        assert "did not answer" in await reported(on)


async def test_an_idle_hour_costs_a_poll_in_50_seconds(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        await telegram.say(ANA, ANA, "hello")
        await arrived(on)
        await until(lambda: telegram.unconfirmed() == 0)
        before = telegram.called("getUpdates")
        with VirtualTime():
            await asyncio.sleep(3600)
        assert telegram.called("getUpdates") - before <= 3600 / update_queue.POLL_SECONDS + 1
        assert not on.running.done()


async def test_the_slash_commands_are_in_the_menu(telegram: TelegramServer, tmp_path: Path) -> None:
    helps = [
        CommandHelp(name="help", usage="/help", summary="List the commands"),
        CommandHelp(name="x", usage="/x", summary=""),
    ]
    settings = TelegramSettings(token=Secret(telegram.token), base_url=telegram.url)
    async with (
        make_context(tmp_path, settings) as context,
        TelegramChannel(msgspec.structs.replace(context, commands=lambda: helps)) as channel,
    ):
        running = asyncio.create_task(channel.run(RecordingInbox()))
        await until(lambda: telegram.commands)
        running.cancel()
        await asyncio.wait([running])
    assert telegram.commands == [
        {"command": "help", "description": "List the commands"},
        {"command": "x", "description": "x"},
    ]


async def test_it_says_who_it_is(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        assert isinstance(on.channel, TelegramChannel)
        assert await on.channel.check() == (
            "It is logged in as @exuvia_bot (id 7000000001). "
            "In groups it sees only commands, mentions and replies (privacy mode)."
        )


# --- sending ----------------------------------------------------------------------------------------------------------


async def test_texts_are_sent_with_entities(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        receipt = await answered(on, ANA, "There is **tea** 😀\n\n```py\nx\n```")
    (post,) = telegram.posts
    assert receipt == f"{ANA}/{post['message_id']}"
    assert (post["text"], [each["type"] for each in post["entities"]]) == ("There is tea 😀\n\nx", ["bold", "pre"])
    (_, sent) = telegram.calls[-1]
    assert "parse_mode" not in sent
    assert sent["link_preview_options"] == {"is_disabled": True}


async def test_what_fits_is_accepted_and_counted_after_conversion(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        assert isinstance(on.channel, TelegramChannel)
        link = "[x](https://example.org/" + "y" * 100 + ") "
        for text in ("😀" * 2030, "a " * 2020, link * 60, "| a | b |\n|---|---|\n" + "| 1 | 2 |\n" * 300):
            assert on.channel.fits(text)
            await answered(on, ANA, text, again=True)
        for text in (
            "😀" * 2048,
            "a" * 4090,
            link * 101,
            "- a\n" * 5000,
            f"| {'a' * 900} | x |\n|---|---|\n" + "| b | x |\n" * 9,
        ):
            assert not on.channel.fits(text)


async def test_a_text_that_telegram_finds_too_long_is_sent_as_a_file(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        await answered(on, ANA, "long " * 3000)
        telegram.faults["sendmessage"].append(Fault(400, "Bad Request: message is too long"))
        await answered(on, ANA, "There is tea.")
    contents = [telegram.content(post["document"]["file_id"]).decode() for post in telegram.posts]
    assert contents == ["long " * 3000, "There is tea."]


async def test_entities_and_buttons_that_are_refused_are_left_out(telegram: TelegramServer, tmp_path: Path) -> None:
    telegram.faults["sendmessage"].append(Fault(400, "Bad Request: can't parse entities: unexpected"))
    async with opened(telegram, tmp_path) as on:
        await answered(on, ANA, "There is **tea**.")
        assert (telegram.posts[0]["text"], telegram.posts[0].get("entities")) == ("There is tea.", None)
        telegram.faults["sendmessage"].append(Fault(400, "Bad Request: BUTTON_DATA_INVALID"))
        await answered(on, ANA, "Answer /yes", choices=(Choice(id="x", label="Yes"),))
        assert telegram.posts[1].get("reply_markup") is None


@pytest.mark.parametrize("text", ["", "   ", "\x00\u202e", "\n\n"])
async def test_an_empty_text_is_undeliverable(telegram: TelegramServer, tmp_path: Path, text: str) -> None:
    async with opened(telegram, tmp_path) as on:
        with pytest.raises(Undeliverable):
            await answered(on, ANA, text)


async def test_pictures_and_files_are_sent(telegram: TelegramServer, tmp_path: Path) -> None:
    files = [
        OutputFile(content=png(40, 30), media="image/png", name="cup.png"),
        OutputFile(content=png(9000, 10), media="image/png", name="long.png"),
        OutputFile(content=b"not a picture", media="image/png", name="fake.png"),
        OutputFile(content=b"a,b", media="text/csv", name='li"st\r\nX: y.csv'),
        OutputFile(content=b"a", media="text/plain\r\nX: y", name=""),
    ]
    async with opened(telegram, tmp_path) as on:
        for file in files:
            await answered(on, ANA, attachments=(file,))
        await answered(on, ANA, attachments=(files[0],), again=True)
        big = OutputFile(content=bytes(50 * 1024**2 + 1), media="text/plain", name="big.txt")
        with pytest.raises(Undeliverable, match="50 MB"):
            await answered(on, ANA, attachments=(big,))
    assert [("photo" in post, "document" in post) for post in telegram.posts] == [
        (True, False),
        *[(False, True)] * 4,
        (True, False),
    ]
    sent = [post.get("document") or post["photo"][-1] for post in telegram.posts]
    assert [telegram.content(each["file_id"]) for each in sent] == [*(file.content for file in files), files[0].content]
    assert [each.get("file_name") for each in sent[1:5]] == ["long.png", "fake.png", "li'stX: y.csv", "file"]
    assert telegram.posts[-1]["caption"] == "[possibly repeated]"


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Fault(400, "Bad Request: PEER_ID_INVALID"), Undeliverable),
        (Fault(403, "Forbidden: bot was kicked from the group chat"), Undeliverable),
        (Fault(413, "Request Entity Too Large"), Undeliverable),
        (Fault(500), DeliveryUnknown),
        (Fault(502, "Bad Gateway"), DeliveryUnknown),
        (Fault(502, "Bad Gateway", after=True), DeliveryUnknown),
        (Fault(), DeliveryUnknown),
        (Fault(after=True), DeliveryUnknown),
        (Fault(401, "Unauthorized"), SettingsRefused),
    ],
)
async def test_errors_of_sending(telegram: TelegramServer, tmp_path: Path, fault: Fault, expected: type[Exception]) -> None:
    async with opened(telegram, tmp_path) as on:
        telegram.faults["sendmessage"].append(fault)
        with pytest.raises(expected) as raised:
            await answered(on, ANA, "There is tea.")
        assert raised.type is expected
        await answered(on, ANA, "There is coffee.")
    assert telegram.posts[-1]["text"] == "There is coffee."


async def test_what_never_reached_telegram_is_not_unknown(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        on.channel._api._base_url = f"http://127.0.0.1:{free_port()}"  # type: ignore[attr-defined]
        with pytest.raises(NotSent):
            await answered(on, ANA, "There is tea.")


async def test_the_wait_that_telegram_asks_for_is_passed_on(telegram: TelegramServer, tmp_path: Path) -> None:
    telegram.faults["sendmessage"].append(Fault(429, "Too Many Requests: retry after 37", parameters={"retry_after": 37}))
    async with opened(telegram, tmp_path) as on:
        with pytest.raises(TryLater) as raised:
            await answered(on, ANA, "There is tea.")
        assert raised.value.after == 37


async def test_a_message_that_may_have_been_sent_is_marked_or_dropped(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        await answered(on, ANA, "There is tea.", again=True)
        assert telegram.posts[0]["text"] == "[possibly repeated]\n\nThere is tea."
    async with opened(telegram, tmp_path, unknown="drop") as on:
        with pytest.raises(Undeliverable, match="drop"):
            await answered(on, ANA, "There is tea.", again=True)
        await answered(on, ANA, "There is coffee.")
    assert len(telegram.posts) == 2


# --- activity ---------------------------------------------------------------------------------------------------------


async def active(on: Opened, chat: int, text: str = "") -> None:
    assert isinstance(on.channel, TelegramChannel)
    await on.channel.show_activity(ChannelActivity(chat=str(chat), text=text))


async def test_typing_and_drafts_are_shown(telegram: TelegramServer, tmp_path: Path) -> None:
    async with opened(telegram, tmp_path) as on:
        for _ in range(3):
            await active(on, ANA)
        assert telegram.actions == [(ANA, "typing")]  # it lasts five seconds
        for text in ("There", "There is **tea", "There is **tea**." + " More." * 2000):
            await active(on, ANA, text)
        await active(on, GROUP, "There is")
        assert telegram.actions == [(ANA, "typing"), (GROUP, "typing")]
        assert [draft["text"][:14] for draft in telegram.drafts[:2]] == ["There", "There is **tea"]
        assert telegram.drafts[2]["text"].endswith("More.")
        await answered(on, ANA, "There is tea.")
        await active(on, ANA, "And")
        numbers = [draft["draft_id"] for draft in telegram.drafts]
        assert (len(set(numbers[:3])), numbers[3] != numbers[0]) == (1, True)


async def test_a_server_without_drafts_shows_typing(telegram: TelegramServer, tmp_path: Path) -> None:
    telegram.drafts_supported = False
    async with opened(telegram, tmp_path) as on:
        for _ in range(3):
            await active(on, ANA, "There is")
        assert (telegram.called("sendMessageDraft"), telegram.actions) == (1, [(ANA, "typing")])


async def test_activity_is_not_shown_while_telegram_asks_to_wait(telegram: TelegramServer, tmp_path: Path) -> None:
    telegram.faults["sendmessagedraft"].append(Fault(429, "Too Many Requests", parameters={"retry_after": 30}))
    async with opened(telegram, tmp_path) as on:
        for _ in range(3):
            await active(on, ANA, "There is")
        assert (telegram.called("sendMessageDraft"), telegram.called("sendChatAction")) == (1, 0)
