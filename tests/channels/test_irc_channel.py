"""The channel `irc`: on a real ngircd, and on a fake with the extensions of IRCv3."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.api.channel import (
    ChannelActivity,
    ChannelInbox,
    DeliveryUnknown,
    InboundMessage,
    MessageRejected,
    OutboundMessage,
    TryLater,
    Undeliverable,
)
from plugins.api.tool import OutputFile
from plugins.channels.irc import irc_channel, irc_connection
from plugins.channels.irc.irc_channel import IrcChannel
from plugins.channels.irc.irc_connection import IrcConnection
from plugins.channels.irc.irc_formatting import irc_lines
from plugins.channels.irc.irc_lines import cut_line, parse_line
from plugins.channels.irc.irc_settings import IrcSettings
from plugins.support.errors import SettingsRefused, Unreachable
from plugins.support.secrets import Secret
from plugins.support.state_file import StateFile
from plugins.testing.channel_checks import ChannelConformance, RecordingInbox
from plugins.testing.contexts import make_context
from tests.channels.irc_network import IrcPerson, Ngircd, needs_ngircd, ngircd
from tests.channels.irc_story import Story
from tests.channels.link import Link
from tests.channels.story import tell
from tests.servers.irc_server import OFFERED, IrcServer
from tests.waiting import VirtualTime, deadline, until


def settings(port: int, *rooms: str, **own: Any) -> IrcSettings:
    defaults: dict[str, Any] = {"server": f"127.0.0.1:{port}", "tls": False, "rooms": rooms, "flood_seconds": 0.001}
    return IrcSettings(**{**defaults, **own})


class Running:
    """A channel that runs."""

    def __init__(self, channel: IrcChannel, inbox: RecordingInbox) -> None:
        self.channel = channel
        self.inbox = inbox

    async def arrival(self) -> InboundMessage:
        async with deadline():
            return await self.inbox.arrived.get()

    async def reported(self) -> str:
        """Return the next report."""
        async with deadline():
            return await self.inbox.reported.get()

    async def post(self, chat: str, text: str, id_: str = "s/1", **fields: Any) -> str:
        return await self.channel.deliver(OutboundMessage(id=id_, chat=chat, text=text, **fields))


@asynccontextmanager
async def running(folder: Path, keys: IrcSettings, inbox: RecordingInbox | None = None) -> AsyncIterator[Running]:
    async with make_context(folder, keys) as context, IrcChannel(context) as channel:
        inbox = inbox or RecordingInbox()
        task = asyncio.create_task(channel.run(inbox))
        try:
            yield Running(channel, inbox)
        finally:
            task.cancel()
            await asyncio.wait([task])


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Ngircd]:
    async with ngircd(tmp_path / "ngircd") as server:
        yield server


@pytest.fixture
async def ana(server: Ngircd) -> AsyncIterator[IrcPerson]:
    ana = IrcPerson("ana", server.port)
    await ana.enter("#kitchen")
    yield ana
    await ana.leave()


# --- the kit ----------------------------------------------------------------------------------------------------------


class _Kitchen(IrcChannel):
    """The channel, with the names of the kit's chats: "kitchen" is #kitchen, and "crowded" somebody who is not there."""

    async def run(self, inbox: ChannelInbox) -> None:
        class Renamed(RecordingInbox):
            async def receive(self, arrival: InboundMessage) -> bool:
                return await inbox.receive(msgspec.structs.replace(arrival, chat=arrival.chat.removeprefix("#")))

        await super().run(Renamed())

    async def deliver(self, message: OutboundMessage) -> str:
        chat = message.chat if message.chat == "crowded" else f"#{message.chat}"
        return await super().deliver(msgspec.structs.replace(message, chat=chat))


class _Network:
    """People in the rooms of the kit."""

    rooms = ("#kitchen", "#garden", "#attic", "#street")

    def __init__(self, server: Ngircd) -> None:
        self.port = server.port
        self.people = {nick: IrcPerson(nick, server.port) for nick in ("ana", "eve")}
        self._heard = 0

    async def say(self, sender: str, chat: str, text: str) -> None:
        room, person = f"#{chat}", self.people[sender]
        await until(lambda: "exuvia" in person.here[room])
        await person.say(room, f"exuvia: {text}")

    async def hear(self) -> tuple[str, str]:
        posts: list[tuple[str, str]] = []

        def heard() -> bool:
            posts[:] = [
                (words[2].removeprefix("#"), line.partition(" :")[2])
                for line in self.people["ana"].lines
                if (words := line.split(" "))[1] == "PRIVMSG" and words[0].startswith(":exuvia!")
            ]
            return len(posts) > self._heard

        await until(heard)
        self._heard += 1
        return posts[self._heard - 1]


@needs_ngircd
class TestConformance(ChannelConformance):
    channel = _Kitchen
    deleted_chat = "demolished"
    busy_chat = "crowded"

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[_Network]:
        folder = Path(self.folder.mkdtemp())
        async with ngircd(folder) as server:
            network = _Network(server)
            for person in network.people.values():
                await person.enter(*network.rooms)
            yield network
            for person in network.people.values():
                await person.leave()

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        class Folder:
            @staticmethod
            def mkdtemp() -> Path:
                return tmp_path_factory.mktemp("ngircd")

        self.folder = Folder

    def service(self) -> AbstractAsyncContextManager[Any]:
        return self._serving()

    def settings(self, service: Any) -> IrcSettings:
        return settings(service.port, *service.rooms)


@needs_ngircd
async def test_sixty_messages_while_everything_breaks(tmp_path: Path) -> None:
    await tell(Story, tmp_path, messages=60, seed=1)


# --- on ngircd --------------------------------------------------------------------------------------------------------


@needs_ngircd
async def test_messages_of_channels_and_people_arrive(tmp_path: Path, server: Ngircd, ana: IrcPerson) -> None:
    async with running(tmp_path, settings(server.port, "#kitchen")) as irc:
        await until(lambda: "exuvia" in ana.here["#kitchen"])
        await ana.say("#kitchen", "Ben, is there tea?")
        await ana.say("#kitchen", "I think EXUVIA knows.")
        await ana.say("#kitchen", "exuvia, is there \x02tea\x02\x0304,01?\x0f")
        await ana.say("exuvia", "\x01ACTION waves\x01")
        arrived = [await irc.arrival() for _ in range(4)]
    assert [(each.chat, each.text, each.group, each.mentioned) for each in arrived] == [
        ("#kitchen", "Ben, is there tea?", True, False),
        ("#kitchen", "I think EXUVIA knows.", True, True),
        ("#kitchen", "is there tea?", True, True),
        ("ana", "* ana waves", False, True),
    ]
    assert {(each.sender, each.name) for each in arrived} == {("ana", "ana")}
    assert len({each.id for each in arrived}) == 4


@needs_ngircd
async def test_programs_are_answered_and_notices_are_not(tmp_path: Path, server: Ngircd, ana: IrcPerson) -> None:
    async with running(tmp_path, settings(server.port, "#kitchen")) as irc:
        await until(lambda: "exuvia" in ana.here["#kitchen"])
        await ana.say("exuvia", "\x01VERSION\x01")
        assert await ana.heard("ana", command="NOTICE") == ["\x01VERSION Exuvia\x01"]
        await ana.say("exuvia", "\x01VERSION\x01")  # too soon
        await ana.say("exuvia", "\x01DCC SEND virus.exe 2130706433 1024 1\x01")
        ana.write("NOTICE exuvia :Is anybody there?")
        await ana.say("exuvia", "hello")
        assert (await irc.arrival()).text == "hello"
        await irc.post("ana", "Hello.")
        await ana.heard("ana")
    assert len(ana.messages("ana", command="NOTICE")) == 1


@needs_ngircd
async def test_long_lines_arrive_whole(tmp_path: Path, server: Ngircd, ana: IrcPerson) -> None:
    text = " ".join(f"wörd{number}🙂" for number in range(3200))
    assert len(text) > 30_000
    async with running(tmp_path, settings(server.port, "#kitchen")) as irc:
        await until(lambda: "exuvia" in ana.here["#kitchen"])
        await irc.post("#kitchen", text)
        await irc.post("ana", f"**{text}**", "s/2")
        await ana.fence()
    assert " ".join(ana.messages("#kitchen")) == text
    private = ana.messages("ana")
    assert all(piece.startswith("\x02") for piece in private)
    assert " ".join(private).replace("\x02", "") == text
    assert max(len(line.encode()) for line in ana.lines) > 430  # lines are filled up to what the server passes on


@needs_ngircd
async def test_a_text_cannot_be_a_command(tmp_path: Path, server: Ngircd, ana: IrcPerson) -> None:
    async with running(tmp_path, settings(server.port, "#kitchen")) as irc:
        await until(lambda: "exuvia" in ana.here["#kitchen"])
        hostile = "tea\r\nQUIT :gone\nPART #kitchen\r\x00JOIN 0 \x01VERSION\x01 \u202eeat"
        await irc.post("#kitchen", hostile)
        file = OutputFile(content=b"x" * 1200, media="text/plain", name="a\r\nQUIT\x01.txt")
        await irc.post("#kitchen", "", "s/3", attachments=(file,))
        await ana.fence()
        assert "exuvia" in ana.here["#kitchen"]
    assert ana.messages("#kitchen") == [
        "tea",
        "QUIT :gone",
        "PART #kitchen",
        "JOIN 0 VERSION eat",
        "[aQUIT.txt, 1,200 bytes: no files on IRC; see the console]",
    ]


@needs_ngircd
async def test_a_reply_in_a_channel_addresses_the_person(tmp_path: Path, server: Ngircd, ana: IrcPerson) -> None:
    async with running(tmp_path, settings(server.port, "#kitchen")) as irc:
        await until(lambda: "exuvia" in ana.here["#kitchen"])
        await ana.say("#kitchen", "exuvia: tea?")
        asked = await irc.arrival()
        await irc.post("#kitchen", "There is.\n\nIn the drawer.", reply_to=asked.id)
        await irc.post("#kitchen", "And sugar.", "s/1/2", reply_to=asked.id, part=2, parts=2)
        assert await ana.heard("#kitchen", 3) == ["ana: There is.", "In the drawer.", "And sugar."]


@needs_ngircd
async def test_a_taken_nick_is_replaced_until_it_is_free(
    tmp_path: Path, server: Ngircd, ana: IrcPerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(irc_channel, "KEEP_SECONDS", 0.0)
    other = IrcPerson("exuvia", server.port)
    await other.enter()
    async with running(tmp_path, settings(server.port, "#kitchen")) as irc:
        await until(lambda: "exuvia_" in ana.here["#kitchen"])
        assert await irc.channel.check() == f"Connected to 127.0.0.1:{server.port} as exuvia_."
        await ana.say("#kitchen", "exuvia_: hello")
        assert (await irc.arrival()).text == "hello"
        await other.leave()
        while not any(line.startswith(":exuvia_!") and " NICK " in line for line in ana.lines):
            await ana.say("exuvia_", "is it free?")  # each line is an occasion to ask for the nick
        await ana.say("exuvia", "now?")
        while (await irc.arrival()).text != "now?":
            pass


@needs_ngircd
async def test_it_reconnects_and_returns_to_its_channels(tmp_path: Path, server: Ngircd) -> None:
    async with running(tmp_path, settings(server.port, "#kitchen")) as irc:
        await server.restart()
        assert "ended" in await irc.reported()
        with pytest.raises(TryLater):
            await irc.post("#kitchen", "hello")
        while await irc.reported():
            pass
        ana = IrcPerson("ana", server.port)
        await ana.enter("#kitchen")
        await until(lambda: "exuvia" in ana.here["#kitchen"])
        await ana.say("#kitchen", "exuvia: hello again")
        assert (await irc.arrival()).text == "hello again"
        await irc.post("#kitchen", "Hello.")
        assert await ana.heard("#kitchen") == ["Hello."]
        await ana.leave()


@needs_ngircd
async def test_a_channel_that_is_closed_to_it_is_reported_and_entered_when_invited(tmp_path: Path, server: Ngircd) -> None:
    warden = IrcPerson("warden", server.port)
    await warden.enter("#vault")
    warden.write("MODE #vault +in")
    await warden.fence()
    async with running(tmp_path, settings(server.port, "#vault")) as irc:
        assert "does not let the assistant into #vault" in await irc.reported()
        with pytest.raises(Undeliverable, match="#vault"):
            await irc.post("#vault", "hello?")
        warden.write("INVITE exuvia #vault")
        assert await irc.reported() == ""
        await irc.post("#vault", "Thank you.")
        assert await warden.heard("#vault") == ["Thank you."]
        warden.write("KICK #vault exuvia :out")
        await until(lambda: "exuvia" not in warden.here["#vault"])
        with pytest.raises(Undeliverable):
            await irc.post("#vault", "hello?", "s/2")
    await warden.leave()


@needs_ngircd
async def test_somebody_who_is_away_is_tried_later(tmp_path: Path, server: Ngircd) -> None:
    async with running(tmp_path, settings(server.port)) as irc:
        with pytest.raises(TryLater, match="zoe is not there") as refused:
            await irc.post("zoe", "hello")
        assert refused.value.after == irc_channel.ABSENT_SECONDS


@needs_ngircd
async def test_a_reply_without_a_confirmation_is_sent_again_with_a_mark(
    tmp_path: Path, server: Ngircd, ana: IrcPerson
) -> None:
    async with Link(server.port) as link, running(tmp_path, settings(link.port, "#kitchen")) as irc:
        await until(lambda: "exuvia" in ana.here["#kitchen"])
        link.sever("out", after=len("PRIVMSG #kitchen :Tea.\r\n"))
        with pytest.raises(DeliveryUnknown):
            await irc.post("#kitchen", "Tea.")
        while await irc.reported():
            pass
        await irc.post("#kitchen", "Tea.", again=True)
        assert await ana.heard("#kitchen", 2) == ["Tea.", "[possibly repeated] Tea."]


@needs_ngircd
async def test_a_reply_without_a_confirmation_can_be_dropped(tmp_path: Path, server: Ngircd) -> None:
    async with running(tmp_path, settings(server.port, unknown="drop")) as irc:
        with pytest.raises(Undeliverable, match="`unknown`"):
            await irc.post("ana", "Tea.", again=True)


@needs_ngircd
async def test_a_silent_server_is_left(tmp_path: Path, server: Ngircd, monkeypatch: pytest.MonkeyPatch) -> None:
    async with Link(server.port) as link, running(tmp_path, settings(link.port)) as irc:
        monkeypatch.setattr(irc_connection, "SILENCE_SECONDS", 0.05)
        monkeypatch.setattr(irc_connection, "LAG_SECONDS", 0.05)
        link.delay = 600.0
        writer = IrcPerson("ben", server.port)
        await writer.enter()
        await writer.say("exuvia", "hello")  # it does not pass the link, and the next wait for a line is a short one
        link.delay = 600.0
        assert irc.channel._connection is not None
        irc.channel._connection._reader.feed_data(b":irc.example.test NOTICE exuvia :the last line\r\n")
        assert "did not respond" in await irc.reported()
        await writer.leave()


@needs_ngircd
@pytest.mark.parametrize(("tell_", "told"), [(True, ["The limit is 20 messages a minute."]), (False, [])])
async def test_a_rejection_is_told_only_if_it_may_be(
    tmp_path: Path, server: Ngircd, ana: IrcPerson, tell_: bool, told: list[str]
) -> None:
    async with running(tmp_path, settings(server.port, "#kitchen")) as irc:
        await until(lambda: "exuvia" in ana.here["#kitchen"])
        irc.inbox.refused = MessageRejected("The limit is 20 messages a minute.", tell=tell_)
        await ana.say("exuvia", "hello")
        await ana.say("exuvia", "hello again")
        assert (await irc.arrival()).text == "hello again"
        await irc.post("ana", "Hello.")
        await ana.heard("ana")
    assert ana.messages("ana", command="NOTICE") == told


@needs_ngircd
async def test_a_message_that_cannot_be_stored_is_passed_on_later(
    tmp_path: Path, server: Ngircd, ana: IrcPerson, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(irc_channel, "LATER_SECONDS", 0.01)
    async with running(tmp_path, settings(server.port, "#kitchen")) as irc:
        await until(lambda: "exuvia" in ana.here["#kitchen"])
        irc.inbox.refused = MessageRejected("The disk is full.", later=True)
        await ana.say("exuvia", "hello")
        await ana.say("exuvia", "hello again")
        assert [(await irc.arrival()).text for _ in range(2)] == ["hello", "hello again"]


@needs_ngircd
async def test_a_server_password_is_sent_and_a_wrong_one_named(tmp_path: Path) -> None:
    async with ngircd(tmp_path / "ngircd", password="sesame") as server:
        async with running(tmp_path, settings(server.port, server_password=Secret("sesame"))) as irc:
            assert "as exuvia" in await irc.channel.check()
        with pytest.raises((SettingsRefused, Unreachable), match="password"):
            async with running(tmp_path, settings(server.port, server_password=Secret("wrong"))):
                pass


@needs_ngircd
async def test_certificates_are_checked(tmp_path: Path) -> None:
    key, certificate = tmp_path / "key.pem", tmp_path / "certificate.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-keyout", str(key), "-out", str(certificate)]
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    assert await process.wait() == 0
    async with ngircd(tmp_path / "ngircd", tls=(certificate, key)) as server:
        own = {"server": f"localhost:{server.tls_port}", "tls": True}
        async with running(tmp_path, settings(0, **own, certificates=str(certificate))) as irc:
            assert f"localhost:{server.tls_port}" in await irc.channel.check()
        with pytest.raises(Unreachable, match="The certificate of localhost is not valid"):
            async with running(tmp_path, settings(0, **own)):
                pass
        with pytest.raises(Unreachable, match="does not speak TLS"):
            async with running(tmp_path, settings(0, server=f"localhost:{server.port}", tls=True)):
                pass


# --- with IRCv3 -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("offered", [OFFERED, tuple(name for name in OFFERED if name != "labeled-response")])
async def test_the_server_confirms_posts_and_names_them(tmp_path: Path, offered: tuple[str, ...]) -> None:
    async with IrcServer(offered=offered).serving() as fake, running(tmp_path, settings(fake.port, "#kitchen")) as irc:
        assert await irc.post("#kitchen", "one\n\ntwo\n\nthree") == "m3"
        with pytest.raises(Undeliverable, match="No such channel"):
            await irc.post("#gone", "one\n\ntwo", "s/2")
        for name in ("", "no such nick", "#kitchen,#gone", ":ana"):
            with pytest.raises(Undeliverable, match="neither a channel nor a nick"):
                await irc.post(name, "one", "s/2")
        assert await irc.post("#kitchen", "four", "s/3") == "m4"
    assert [text for _, _, text in fake.history["#kitchen"]] == ["one", "two", "three", "four"]


async def test_lines_that_the_server_confirmed_are_not_repeated(tmp_path: Path) -> None:
    offered = tuple(name for name in OFFERED if name != "draft/chathistory")
    async with IrcServer(offered=offered).serving() as fake, running(tmp_path, settings(fake.port)) as irc:
        await irc.post("ana", "before")
        fake.swallow = 1
        with pytest.raises(DeliveryUnknown):
            await irc.post("ana", "one", "s/2")
        while await irc.reported():
            pass
        assert irc.channel._connection is not None
        irc.channel._accepted["s/3"] = 2  # as after an echo of two lines
        await irc.post("ana", "one\n\ntwo\n\nthree", "s/3", again=True)
    assert [text for _, _, text in fake.history["ana"]] == ["before", "one", "[possibly repeated] three"]


async def test_it_logs_in(tmp_path: Path) -> None:
    async with IrcServer(accounts={"assistant": "ä" * 300}).serving() as fake:
        own = {"user": "assistant", "password": Secret("ä" * 300)}
        async with running(tmp_path, settings(fake.port, **own)) as irc:
            assert (await irc.channel.check()).endswith("as exuvia, logged in as assistant.")
        with pytest.raises(SettingsRefused, match=r"refuses the login of 'assistant'.*Check `user` and `password`"):
            async with running(tmp_path, settings(fake.port, user="assistant", password=Secret("wrong"))):
                pass
    async with IrcServer(offered=("server-time",)).serving() as fake:
        with pytest.raises(SettingsRefused, match="offers no login by SASL"):
            async with running(tmp_path, settings(fake.port, password=Secret("x"))):
                pass
        with pytest.raises(SettingsRefused, match="account-tag"):
            async with running(tmp_path, settings(fake.port, accounts=True)):
                pass


async def test_senders_can_be_accounts(tmp_path: Path) -> None:
    async with IrcServer().serving() as fake, running(tmp_path, settings(fake.port, accounts=True)) as irc:
        fake.say("ana", "exuvia", "hello", account="Ana")
        fake.say("Ana", "exuvia", "hello")  # somebody else with her name
        fake.say("robot", "exuvia", "beep", tags=";bot")
        fake.say("ben", "exuvia", "hello", account="ben")
        assert [((each := await irc.arrival()).sender, each.chat) for _ in range(3)] == [
            ("Ana", "ana"),
            ("~ana", "ana"),
            ("ben", "ben"),
        ]


async def test_what_was_said_meanwhile_is_fetched_from_the_history(tmp_path: Path) -> None:
    async with IrcServer().serving() as fake, running(tmp_path, settings(fake.port, "#kitchen")) as irc:
        await fake.joined("#kitchen")
        fake.say("ana", "#kitchen", "exuvia: one")
        fake.say("ana", "exuvia", "private one")
        first = [(await irc.arrival()).id for _ in range(2)]
        await until(lambda: len(irc.channel._history) == 2)
        fake.disconnect()
        assert await irc.reported()
        for number in range(250):
            fake.say("ana", "#kitchen", f"exuvia: missed {number}")
        fake.say("ana", "exuvia", "private two")
        fake.say("zoe", "exuvia", "she never spoke before")
        arrived = [await irc.arrival() for _ in range(251)]
        await irc.post("ana", "Here I am.")
    texts = [each.text for each in arrived if each.chat == "#kitchen"]
    assert texts == [f"missed {number}" for number in range(250)]
    assert [each.text for each in arrived if each.chat == "ana"] == ["private two"]
    assert len({each.id for each in arrived} | set(first)) == 253
    assert min(each.at for each in arrived) > 1_700_000_000
    assert not irc.inbox.arrived.qsize()


async def test_nothing_is_lost_for_want_of_threads_or_disk_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(irc_channel, "LATER_SECONDS", 0.01)
    failures = [RuntimeError("can't start new thread"), OSError(28, "No space left on device")]

    class Scarce(RecordingInbox):
        async def receive(self, arrival: InboundMessage) -> bool:
            if failures:
                raise failures.pop()
            return await super().receive(arrival)

    async def fail(self: StateFile, value: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(StateFile, "save", fail)
    async with IrcServer().serving() as fake, running(tmp_path, settings(fake.port, "#kitchen"), Scarce()) as irc:
        await fake.joined("#kitchen")
        fake.say("ana", "exuvia", "one")
        fake.say("ana", "exuvia", "two")
        assert [(await irc.arrival()).text for _ in range(2)] == ["one", "two"]


class _StrictInbox(RecordingInbox):
    """An inbox that rejects everybody but Ana, who is told why if she says "too much"."""

    async def receive(self, arrival: InboundMessage) -> bool:
        if arrival.sender != "ana":
            self.rejected.append(arrival)
            raise MessageRejected("The sender is unknown.")
        if arrival.text == "too much":
            raise MessageRejected("The limit is 20 messages a minute.", tell=True)
        return await super().receive(arrival)


async def test_messages_of_unknown_people_leave_nothing_in_the_history(tmp_path: Path) -> None:
    inbox = _StrictInbox()
    async with IrcServer().serving() as fake, running(tmp_path, settings(fake.port, "#kitchen"), inbox) as irc:
        await fake.joined("#kitchen")
        for number in range(irc_channel.REMEMBERED + 100):
            fake.say(f"stranger{number}", "exuvia", "hello")
        fake.say("eve", "#kitchen", "exuvia: hello")
        fake.say("ana", "exuvia", "hello")
        await irc.arrival()
        fake.say("ana", "exuvia", "too much")  # is not passed on again after a reconnection
        latest = fake.history["ana"][-1][0].partition("time=")[2]
        await until(lambda: irc.channel._history.get("ana") == latest)
        assert set(irc.channel._history) == {"#kitchen", "ana"}
        assert len(inbox.rejected) == irc_channel.REMEMBERED + 101


async def test_the_history_has_the_latest_chats(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(irc_channel, "REMEMBERED", 3)
    async with IrcServer().serving() as fake:
        async with running(tmp_path, settings(fake.port, "#kitchen")) as irc:
            await fake.joined("#kitchen")
            for nick in ("ana", "ben", "zoe", "ana", "eve"):
                fake.say(nick, "exuvia", "hello")
            await until(lambda: "eve" in irc.channel._history)
            assert list(irc.channel._history) == ["zoe", "ana", "eve"]
            file = tmp_path / "plugin" / "history.json"
            await until(lambda: "eve" in file.read_text())
        monkeypatch.setattr(irc_channel, "REMEMBERED", 2)
        async with running(tmp_path, settings(fake.port, "#kitchen")) as irc:
            assert list(irc.channel._history) == ["ana", "eve"]


async def test_typing_and_what_is_answered_are_shown(tmp_path: Path) -> None:
    async with IrcServer().serving() as fake, running(tmp_path, settings(fake.port, "#kitchen")) as irc:
        await fake.joined("#kitchen")
        fake.say("ana", "#kitchen", "exuvia: tea?")
        asked = await irc.arrival()
        await irc.channel.show_activity(ChannelActivity(chat="#kitchen"))
        await irc.post("#kitchen", "There is.", reply_to=asked.id)
        assert fake.typing == ["#kitchen"]
        assert any(f"+draft/reply={asked.id} PRIVMSG #kitchen :ana: There is." in line for line in fake.received)


# --- alone ------------------------------------------------------------------------------------------------------------


class _Wire:
    """A connection to nobody: what is written, with the time, on a clock of the test."""

    def __init__(self) -> None:
        self.written: list[tuple[float, str]] = []
        self.reader = asyncio.StreamReader()
        self.answers = True

    def is_closing(self) -> bool:
        return False

    def write(self, raw: bytes) -> None:
        line = raw.decode().strip()
        self.written.append((asyncio.get_running_loop().time(), line))
        if self.answers and line.startswith("PING "):
            self.reader.feed_data(f":irc PONG irc {line[5:]}\r\n".encode())


async def test_lines_keep_to_the_flood_limit() -> None:
    with VirtualTime():
        wire = _Wire()
        connection = IrcConnection(wire.reader, cast(asyncio.StreamWriter, wire), IrcSettings(flood_seconds=2.0))
        reading = asyncio.create_task(_listen(connection))
        await connection.send("ana", [str(number) for number in range(8)])
        reading.cancel()
        await asyncio.wait([reading])
    times = [round(at - wire.written[0][0]) for at, line in wire.written if line.startswith("PRIVMSG")]
    assert times == [0, 0, 0, 0, 0, 2, 4, 6]


async def _listen(connection: IrcConnection) -> None:
    async for _ in connection.lines():
        pass


async def test_an_idle_hour_costs_forty_lines() -> None:
    with VirtualTime():
        wire = _Wire()
        connection = IrcConnection(wire.reader, cast(asyncio.StreamWriter, wire), IrcSettings())
        listening = asyncio.create_task(_listen(connection))
        await asyncio.sleep(3601)
        listening.cancel()
        await asyncio.wait([listening])
    assert len(wire.written) == 3600 // irc_connection.SILENCE_SECONDS


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("**bold** *it* ~~no~~ `x`", ["\x02bold\x02 \x1dit\x1d \x1eno\x1e \x11x\x11"]),
        ("# Tea\n\n1. one\n2. two\n   - a\n\n> said", ["\x02Tea\x02", "1. one", "2. two", "   • a", "> said"]),
        ("```\na\n\n  b\n```", ["\x11a\x11", "\x11  b\x11"]),
        ("[tea](https://a.example/) <https://b.example/>", ["tea <https://a.example/> https://b.example/"]),
        ("|a|b|\n|-|-|\n|1|2|", ["\x02a | b\x02", "1 | 2"]),
        ("<b>&amp;</b>\nnext", ["<b>&</b>", "next"]),
        ("\x01VERSION\x01\x02\u202e", ["VERSION"]),
    ],
)
def test_markdown_becomes_lines(text: str, lines: list[str]) -> None:
    assert irc_lines(text) == lines


@given(text=st.text(), most=st.integers(20, 200))
def test_cut_lines_fit_and_lose_only_spaces(text: str, most: int) -> None:
    text = text.encode("utf-8", "ignore").decode()
    pieces = list(cut_line(text, most))
    assert all(len(piece.encode()) <= most for piece in pieces)
    assert plain("".join(pieces)) == plain(text) or not plain(text)


def plain(text: str) -> str:
    return "".join(character for character in text if character not in " \x02\x1d\x1e\x11")


@given(st.binary(max_size=600))
def test_any_bytes_are_a_line_or_nothing(raw: bytes) -> None:
    line = parse_line(raw)
    assert line is None or line.command


@pytest.mark.parametrize(
    ("server", "tls", "address"),
    [
        ("irc.example.org", True, ("irc.example.org", 6697)),
        ("irc.example.org", False, ("irc.example.org", 6667)),
        ("irc.example.org:7000", True, ("irc.example.org", 7000)),
        ("[::1]:7000", True, ("::1", 7000)),
        ("::1", True, ("::1", 6697)),
    ],
)
def test_addresses_of_servers(server: str, tls: bool, address: tuple[str, int]) -> None:
    assert IrcSettings(server=server, tls=tls).address() == address


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ({"server": ""}, "`server` must be"),
        ({"server": "a:b"}, "`server` must be"),
        ({"nick": "no spaces"}, "change `nick`"),
        ({"rooms": ("tea",)}, "names such as"),
        ({"rooms": ("#a\r\nQUIT",)}, "names such as"),
    ],
)
def test_settings_that_cannot_be_used_are_named(own: dict[str, Any], sentence: str) -> None:
    with pytest.raises(SettingsRefused, match=sentence):
        IrcSettings(**{"server": "irc.example.org", **own}).check()
