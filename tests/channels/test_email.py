"""The email channel, against a real dovecot and a real SMTP server."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from plugins.api.channel import DeliveryUnknown, MessageRejected, OutboundMessage, TryLater, Undeliverable
from plugins.api.tool import OutputFile
from plugins.channels.email import port_security, sent_mails
from plugins.channels.email.email_channel import EmailChannel
from plugins.channels.email.imap_client import ImapConnection, ImapError
from plugins.channels.email.sent_mails import SentMails
from plugins.support.errors import PluginError
from plugins.support.secrets import Secret
from plugins.testing.channel_checks import ChannelConformance, Opened, RecordingInbox
from plugins.testing.contexts import make_context
from sessions.files import fsync
from tests.channels.link import Link
from tests.channels.mail_stage import PEOPLE, MailService, NamedChannel, mail, parsed, reply_to, settings_for, text_of
from tests.channels.test_mail_reading import REPORT
from tests.servers.mail_servers import AUTHSERV, OURS, MailServers, mail_servers
from tests.waiting import deadline, until

REFUSALS = {f"demolished@{PEOPLE}": "550 5.1.1 No such user here", f"crowded@{PEOPLE}": "452 4.2.2 Mailbox full"}
ANA = f"ana@{PEOPLE}"


class TestEmail(ChannelConformance):
    channel = NamedChannel
    deleted_chat = "demolished"
    busy_chat = "crowded"

    @asynccontextmanager
    async def service(self) -> AsyncIterator[MailService]:
        async with mail_servers() as servers:
            servers.replies = REFUSALS.get
            yield MailService(servers)

    def settings(self, service: MailService) -> Any:
        return settings_for(service.servers)


@pytest.fixture
async def servers() -> AsyncIterator[MailServers]:
    async with mail_servers() as running:
        yield running


@asynccontextmanager
async def opened(servers: MailServers, home: Path, **changed: Any) -> AsyncIterator[Opened]:
    """Run a channel; closed and opened again with the same folder it is the same channel."""
    async with make_context(home, settings_for(servers, **changed)) as context, EmailChannel(context) as channel:
        inbox = RecordingInbox()
        running = asyncio.create_task(channel.run(inbox))
        try:
            yield Opened(channel, MailService(servers), inbox, running)
        finally:
            running.cancel()
            await asyncio.wait([running])


async def sent(servers: MailServers) -> bytes:
    """Return the next mail that the assistant sent."""
    async with deadline():
        return (await servers.arrived.get())[1]


# --- threads ----------------------------------------------------------------------------------------------------------


async def test_a_thread_is_a_conversation_and_answers_stay_in_it(servers: MailServers, tmp_path: Path) -> None:
    async with opened(servers, tmp_path) as on:
        date = "Mon, 23 Nov 2026 12:00:00 +0100"
        servers.post(mail("Is there any?", subject="Tea", Message_ID="<first@people.test>", Date=date))
        first = await on.arrival()
        assert first.at == datetime(2026, 11, 23, 11, tzinfo=UTC).timestamp()
        assert (first.id, first.sender, first.chat, first.text) == ("first@people.test", ANA, ANA, "Tea\n\nIs there any?")

        receipt = await on.channel.deliver(OutboundMessage(id="s/1", chat=ANA, thread=first.thread, text="Yes, **green**."))
        answer = parsed(await sent(servers))
        assert (answer["Subject"], answer["To"], answer["From"]) == ("Re: Tea", ANA, f"Exuvia <{OURS}>")
        assert answer["In-Reply-To"] == answer["References"] == "<first@people.test>"
        assert (answer["Message-ID"], answer["Auto-Submitted"]) == (receipt, "auto-replied")
        html = answer.get_body(("html",))
        assert html is not None
        assert "<strong>green</strong>" in html.get_content()

        servers.post(reply_to(answer.as_bytes(), "How much?\n\nOn Monday Exuvia wrote:\n> Yes, **green**.\n"))
        second = await on.arrival()
        assert second.at == 0.0  # it has no date
        assert (second.text, second.thread) == ("How much?", first.thread)
        servers.post(reply_to(answer.as_bytes(), "A client without References.", References=""))
        assert (await on.arrival()).thread == first.thread
        servers.post(mail("Is there any?", subject="Tea"))
        assert (await on.arrival()).thread != first.thread


async def test_an_answer_has_the_same_message_id_at_each_attempt(servers: MailServers, tmp_path: Path) -> None:
    async with opened(servers, tmp_path) as on:
        reply = OutboundMessage(id="s/1", chat=ANA, text="Yes.")
        receipts = {await on.channel.deliver(reply) for _ in range(2)}
        other = await on.channel.deliver(OutboundMessage(id="s/2", chat=ANA, text="Yes."))
        assert len(receipts) == 1
        assert other not in receipts


async def test_a_reply_to_a_mail_outside_of_threads_belongs_to_none(servers: MailServers, tmp_path: Path) -> None:
    async with opened(servers, tmp_path) as on:
        await on.channel.deliver(OutboundMessage(id="s/1", chat=ANA, text="Good morning."))
        servers.post(reply_to(await sent(servers), "Good morning!"))
        assert (await on.arrival()).thread == ""


async def test_the_answer_to_a_mail_with_other_recipients_goes_to_its_sender_alone(
    servers: MailServers, tmp_path: Path
) -> None:
    async with opened(servers, tmp_path) as on:
        servers.post(mail("For you, too.", Cc=f"ben@{PEOPLE}"))
        to_us = await on.arrival()
        servers.post(mail("A copy.", To=f"ben@{PEOPLE}", Cc=OURS))
        copy = await on.arrival()
        assert [(each.group, each.mentioned) for each in (to_us, copy)] == [(True, True), (True, False)]
        await on.channel.deliver(OutboundMessage(id="s/1", chat=to_us.chat, thread=to_us.thread, text="Thanks."))
        answer = parsed(await sent(servers))
        assert (answer["To"], answer["Cc"]) == (ANA, None)
        assert set(servers.mails) == {ANA}


# --- once -------------------------------------------------------------------------------------------------------------


async def test_a_mail_is_marked_as_read_once_it_was_received_and_not_before(servers: MailServers, tmp_path: Path) -> None:
    async with opened(servers, tmp_path) as on:
        on.inbox.refused = MessageRejected("No.")
        servers.post(mail("rejected"))
        await on.refusal()
        servers.post(mail("taken"))
        await on.arrival()
        await until(lambda: '"uid": 2' in (tmp_path / "plugin" / "mailbox.json").read_text())
        assert servers.seen() == 1


async def test_mails_from_before_the_first_start_do_not_count_and_those_since_do(
    servers: MailServers, tmp_path: Path
) -> None:
    servers.post(mail("old"))
    async with opened(servers, tmp_path) as on:
        servers.post(mail("new"))
        assert (await on.arrival()).text == "new"
        await until(lambda: servers.seen() == 1)
    servers.post(mail("while it was closed"))
    async with opened(servers, tmp_path) as on:
        arrived = [(await on.arrival()).text]
        while arrived[-1] == "new":  # read again if the channel was closed before it had noted it; its id is known
            arrived.append((await on.arrival()).text)
        assert arrived[-1] == "while it was closed"
        assert on.inbox.arrived.empty()


async def test_a_mail_that_was_not_noted_as_handled_comes_again_with_the_same_id(
    servers: MailServers, tmp_path: Path
) -> None:
    async with opened(servers, tmp_path) as on:
        servers.post(mail("hello", Message_ID=""))
        first = await on.arrival()
        await until(lambda: servers.seen() == 1)
    state = tmp_path / "plugin" / "mailbox.json"
    state.write_text(state.read_text().replace('"uid": 1', '"uid": 0'))
    async with opened(servers, tmp_path) as on:
        assert (await on.arrival()).id == first.id


async def test_a_folder_that_is_numbered_anew_loses_nothing(servers: MailServers, tmp_path: Path) -> None:
    async with opened(servers, tmp_path) as on:
        servers.post(mail("known"))
        known = await on.arrival()
        await until(lambda: servers.seen() == 1)
    state = tmp_path / "plugin" / "mailbox.json"
    state.write_text(state.read_text().replace('"uidvalidity": ', '"uidvalidity": 1'))
    servers.post(mail("meanwhile"))
    async with opened(servers, tmp_path) as on:
        assert [(await on.arrival()).id, (await on.arrival()).text] == [known.id, "meanwhile"]


async def test_a_mail_for_which_the_gateway_is_too_busy_comes_later_and_keeps_its_place(
    servers: MailServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugins.channels.email.mailbox.BUSY_SECONDS", 0.2)
    async with opened(servers, tmp_path) as on:
        servers.post(mail("first", Message_ID="<root@people.test>"))
        await on.arrival()
        on.inbox.refused = MessageRejected("Busy.", later=True)
        servers.post(mail("second", References="<root@people.test>"))
        await on.refusal()
        servers.post(mail("third", References="<root@people.test>"))
        servers.post(mail("elsewhere"))
        texts = [(await on.arrival()).text for _ in range(3)]
        assert sorted(texts) == ["elsewhere", "second", "third"]
        assert texts.index("second") < texts.index("third")
        await until(lambda: servers.seen() == 4)


async def test_a_severed_connection_is_reported_and_nothing_is_missed(servers: MailServers, tmp_path: Path) -> None:
    async with Link(servers.imap) as link, opened(servers, tmp_path, imap=f"127.0.0.1:{link.port}") as on:
        servers.post(mail("one"))
        assert (await on.arrival()).text == "one"
        link.sever()
        async with deadline():
            assert "not reachable" in await on.inbox.reported.get()
        servers.post(mail("two"))
        while (await on.arrival()).text != "two":  # the first may come again: it was not noted as handled yet
            pass
        async with deadline():
            assert await on.inbox.reported.get() == ""


async def test_a_connection_is_closed_also_if_its_task_is_cancelled_while_it_logs_out() -> None:
    logging_out, closed = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"* OK\r\n")
        writer.write((await reader.readline()).split()[0] + b" OK\r\n")
        assert b"LOGOUT" in await reader.readline()
        logging_out.set()
        with suppress(ConnectionError):
            await reader.read()
        writer.close()
        closed.set()

    async def use(port: int) -> None:
        context = ssl.create_default_context()
        async with await ImapConnection.open("127.0.0.1", port, security="none", context=context):
            pass

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as server, deadline():
        using = asyncio.create_task(use(server.sockets[0].getsockname()[1]))
        await logging_out.wait()
        using.cancel()
        await asyncio.wait([using])
        await closed.wait()


async def test_a_server_without_idle_is_polled(
    servers: MailServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from plugins.channels.email.imap_client import ImapConnection

    async def no_idle(self: ImapConnection) -> None:
        await asked(self)
        self.capabilities -= {"IDLE"}

    asked = ImapConnection._ask_capabilities
    monkeypatch.setattr(ImapConnection, "_ask_capabilities", no_idle)
    async with opened(servers, tmp_path, poll_seconds=0.1) as on:
        for text in ("one", "two"):
            servers.post(mail(text))
            assert (await on.arrival()).text == text


# --- who is believed, and what is never answered ----------------------------------------------------------------------


async def test_what_no_server_has_verified_and_what_programs_send_does_not_arrive(
    servers: MailServers, tmp_path: Path
) -> None:
    async with opened(servers, tmp_path) as on:
        servers.post(mail("forged", Authentication_Results=""))
        servers.post(mail("forged", Authentication_Results=f"{AUTHSERV}; dmarc=fail header.from={PEOPLE}"))
        servers.post(mail("a list", List_Id="<tea.people.test>"))
        servers.post(mail("absent", Auto_Submitted="auto-replied"))
        servers.post(mail("ourselves", sender=OURS))
        servers.post(mail("true"))
        assert (await on.arrival()).text == "true"
        assert on.inbox.arrived.empty()


async def test_an_answer_that_came_back_is_reported(servers: MailServers, tmp_path: Path) -> None:
    async with opened(servers, tmp_path) as on:
        receipt = await on.channel.deliver(OutboundMessage(id="s/1", chat=ANA, text="Hello."))
        await sent(servers)
        report = REPORT.format(action="failed", id=receipt if receipt.startswith("<") else f"<{receipt}>")
        head = f"From: mailer-daemon@{PEOPLE}\nContent-Type: multipart/report; report-type=delivery-status; boundary=b\n\n"
        servers.post((head + report).encode())
        async with deadline():
            assert await on.inbox.reported.get() == "ana@x.org: 550 No such user"
        assert servers.mails[ANA][1:] == []  # and never answered


async def test_without_verification_every_sender_is_believed_only_if_it_is_switched_off(
    servers: MailServers, tmp_path: Path
) -> None:
    async with opened(servers, tmp_path, authserv_id="", trust_from=True) as on:
        servers.post(mail("hello", Authentication_Results=""))
        assert (await on.arrival()).text == "hello"
    with pytest.raises(PluginError, match="Set authserv_id to the name"):
        async with opened(servers, tmp_path, authserv_id=""):
            pass


async def test_a_stranger_is_listed_and_told_nothing(servers: MailServers, tmp_path: Path) -> None:
    async with opened(servers, tmp_path) as on:
        on.inbox.unknown.add(f"eve@{PEOPLE}")
        on.inbox.refused = MessageRejected("Who are you? Your code is 1234.", tell=True)
        servers.post(mail("x" * 100_000, subject="Hello", sender=f"eve@{PEOPLE}"))
        assert (await on.refusal()).chat == ""  # nor later that they are admitted
        servers.post(mail("true"))
        assert (await on.arrival()).text == "true"
        assert servers.mails == {}


async def test_a_known_person_is_told_why_a_mail_was_rejected(servers: MailServers, tmp_path: Path) -> None:
    async with opened(servers, tmp_path) as on:
        on.inbox.refused = MessageRejected("The limit for an attachment is 10 bytes.", tell=True)
        servers.post(mail("look", subject="A picture"))
        answer = await sent(servers)
        assert (parsed(answer)["Subject"], text_of(answer)) == ("Re: A picture", "The limit for an attachment is 10 bytes.")


async def test_too_many_mails_of_a_thread_are_not_accepted_in_a_day(servers: MailServers, tmp_path: Path) -> None:
    async with opened(servers, tmp_path, replies_per_thread=2) as on:
        for number in range(6):
            servers.post(mail(f"loop {number}", References="<root@people.test>"))
        servers.post(mail("elsewhere"))
        assert [(await on.arrival()).text for _ in range(3)] == ["loop 0", "loop 1", "elsewhere"]
        told = [text_of(await sent(servers)) for _ in range(2)]
        assert told == ["This mail was ignored: 2 mails a day are accepted in this conversation."] * 2
        assert servers.arrived.empty()


# --- sending ----------------------------------------------------------------------------------------------------------


async def test_a_sent_mail_is_saved_in_the_folder_of_sent_mails(servers: MailServers, tmp_path: Path) -> None:
    async with opened(servers, tmp_path) as on:
        receipt = await on.channel.deliver(OutboundMessage(id="s/1", chat=ANA, text="Yes."))
        await until(lambda: servers.box(folder="Sent"))
        (saved,) = servers.box(folder="Sent")
        assert parsed(saved)["Message-ID"] == receipt
        await until(lambda: not list((tmp_path / "plugin" / "sent").iterdir()))


@pytest.mark.parametrize("content", [b"", bytes(4096), b"Subject: Tea\r\nMessage-ID: <cut@exu"])
async def test_a_damaged_file_of_a_sent_mail_holds_nothing(servers: MailServers, tmp_path: Path, content: bytes) -> None:
    folder = tmp_path / "plugin" / "sent"
    folder.mkdir(parents=True)
    (folder / "0.eml").write_bytes(content)
    (folder / "1.eml").write_bytes(mail("An earlier reply.", sender=OURS).as_bytes())
    async with opened(servers, tmp_path) as on:
        await until(lambda: on.running.done() or len(servers.box(folder="Sent")) == 1)
        await on.channel.deliver(OutboundMessage(id="s/1", chat=ANA, text="Yes."))
        await until(lambda: on.running.done() or len(servers.box(folder="Sent")) == 2)
        servers.post(mail("Is it still running?"))
        assert (await on.arrival()).text == "Is it still running?"
        await until(lambda: [file.name for file in folder.iterdir()] == ["0.damaged"])
        assert (folder / "0.damaged").read_bytes() == content
        assert isinstance(on.channel, EmailChannel)
        assert await on.channel._sent.has("0", "<zero@exuvia.test>")  # its name says that it was accepted


async def test_a_file_of_a_sent_mail_that_cannot_be_read_holds_nothing_and_is_read_again(
    servers: MailServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sent_mails, "RETRY_SECONDS", 0.01)
    folder = tmp_path / "plugin" / "sent"
    (folder / "0.eml").mkdir(parents=True)
    (folder / "1.eml").write_bytes(mail("An earlier reply.", sender=OURS).as_bytes())
    async with opened(servers, tmp_path):
        await until(lambda: len(servers.box(folder="Sent")) == 1)
        (folder / "0.eml").rmdir()
        (folder / "part").write_bytes(mail("The first reply.", sender=OURS).as_bytes())
        (folder / "part").rename(folder / "0.eml")
        await until(lambda: len(servers.box(folder="Sent")) == 2)


async def test_a_sent_mail_that_the_server_refuses_to_save_holds_nothing(
    servers: MailServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    append = ImapConnection.append

    async def refuse_first(self: ImapConnection, folder: str, content: bytes) -> None:
        if b"The first reply." in content:
            raise ImapError("Message is too large")
        await append(self, folder, content)

    monkeypatch.setattr(ImapConnection, "append", refuse_first)
    folder = tmp_path / "plugin" / "sent"
    folder.mkdir(parents=True)
    for number, text in enumerate(("The first reply.", "Another reply.")):
        (folder / f"{number}.eml").write_bytes(mail(text, sender=OURS).as_bytes())
    async with opened(servers, tmp_path):
        await until(lambda: len(servers.box(folder="Sent")) == 1)
        await until(lambda: [file.name for file in folder.iterdir()] == ["0.eml"])


async def test_a_mail_is_durable_before_it_is_sent_and_so_is_its_acceptance(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, synced, is_broken = tmp_path / "sent", list[tuple[str, ...]](), False
    sync_content, sync = fsync.sync_content, os.fsync

    def sync_and_note_size(descriptor: int) -> None:
        sync_content(descriptor)
        synced.append((f"{os.fstat(descriptor).st_size} bytes",))

    def sync_and_note_names(descriptor: int) -> None:
        if is_broken:
            raise OSError(errno.EIO, "Input/output error")
        sync(descriptor)
        if os.path.samestat(os.fstat(descriptor), folder.stat()):
            synced.append(tuple(os.listdir(descriptor)))

    async def nowhere() -> ImapConnection:
        raise OSError("There is no server.")

    monkeypatch.setattr(fsync, "sync_content", sync_and_note_size)
    monkeypatch.setattr(os, "fsync", sync_and_note_names)
    sent = SentMails(folder, nowhere, "Sent", save=True)
    for _ in range(2):  # also at another attempt
        synced.clear()
        await sent.prepare("key", b"a mail")
        assert synced == [("6 bytes",), ("key.new",)]
    await sent.accepted("key")
    assert synced[2:] == [("key.eml",)]
    is_broken = True
    await sent.accepted("key")  # the mail was sent all the same


async def test_a_mail_that_may_have_been_sent_is_looked_up_before_it_is_sent_again(
    servers: MailServers, tmp_path: Path
) -> None:
    reply = OutboundMessage(id="s/1", chat=ANA, text="Yes.")
    again = OutboundMessage(id="s/1", chat=ANA, text="Yes.", again=True)
    async with opened(servers, tmp_path) as on:
        receipt = await on.channel.deliver(reply)
        assert await on.channel.deliver(again) == receipt
        await until(lambda: servers.box(folder="Sent"))
        assert await on.channel.deliver(again) == receipt
        assert len(servers.mails[ANA]) == 1
        await on.channel.deliver(OutboundMessage(id="s/2", chat=ANA, text="It was not sent.", again=True))
        assert len(servers.mails[ANA]) == 2


async def test_a_connection_that_is_lost_before_the_server_accepts_leaves_the_outcome_open(
    servers: MailServers, tmp_path: Path
) -> None:
    async with Link(servers.smtp) as link, opened(servers, tmp_path, smtp=f"127.0.0.1:{link.port}") as on:

        def cut(what: str) -> None:
            if what == "DATA":
                link.sever()

        servers.replies = cut
        with pytest.raises(DeliveryUnknown, match="broke off"):
            await on.channel.deliver(OutboundMessage(id="s/1", chat=ANA, text="Yes."))
        servers.replies = lambda what: link.sever() if what == ANA else None
        with pytest.raises(TryLater, match="cannot be reached"):
            await on.channel.deliver(OutboundMessage(id="s/2", chat=ANA, text="Yes."))


@pytest.mark.parametrize(
    ("reply", "raised"),
    [
        ("450 4.2.0 Greylisted", TryLater),
        ("421 4.3.0 Closing", TryLater),
        ("550 5.1.1 No such user", Undeliverable),
        ("552 5.2.3 Too large", Undeliverable),
    ],
)
@pytest.mark.parametrize("at", [ANA, "DATA"])
async def test_a_refusal_for_now_is_tried_later_and_one_for_good_is_not(
    servers: MailServers, tmp_path: Path, reply: str, raised: type[Exception], at: str
) -> None:
    async with opened(servers, tmp_path) as on:
        servers.replies = {at: reply}.get
        with pytest.raises(raised, match=f"The SMTP server says {reply}"):
            await on.channel.deliver(OutboundMessage(id="s/1", chat=ANA, text="Yes."))
        servers.replies = lambda _: None
        await on.channel.deliver(OutboundMessage(id="s/2", chat=ANA, text="Next."))
        assert text_of(await sent(servers)) == "Next."


async def test_files_arrive_and_are_sent(servers: MailServers, tmp_path: Path) -> None:
    async with opened(servers, tmp_path) as on:
        written = mail("Two files.")
        written.add_attachment(b"\x89PNG...", maintype="image", subtype="png", filename="täglich 😀.png")
        written.add_attachment("a,b\n", subtype="csv", filename="list.csv")
        servers.post(written)
        files = (await on.arrival()).attachments
        assert [(file.name, file.media) for file in files] == [("täglich 😀.png", "image/png"), ("list.csv", "text/csv")]
        assert files[0].content == b"\x89PNG..."
        out = (
            OutputFile(content=b"\x00\r\n.\r\n\x01" * 1000, media="application/zip", name="a\r\nBcc: eve@x.y.zip"),
            OutputFile(content=b"From nobody\n.\n", media="text/plain", name=""),
        )
        await on.channel.deliver(OutboundMessage(id="s/1", chat=ANA, text="Here.", attachments=out))
        answer = parsed(await sent(servers))
        assert [part.get_content() for part in answer.iter_attachments()] == [out[0].content, out[1].content]
        assert answer["Bcc"] is None
        too_large = (OutputFile(content=bytes(18_000_001), media="application/zip", name="x"),)
        with pytest.raises(Undeliverable, match="more than 18 MB"):
            await on.channel.deliver(OutboundMessage(id="s/2", chat=ANA, text="", attachments=too_large))


async def test_a_long_answer_is_one_mail(servers: MailServers, tmp_path: Path) -> None:
    text = "\n\n".join(["word " * 200, "```\n" + ".\n" * 2000 + "```", "x" * 25_000])
    async with opened(servers, tmp_path) as on:
        await on.channel.deliver(OutboundMessage(id="s/1", chat=ANA, text=text))
        assert text_of(await sent(servers)) == text


@pytest.mark.parametrize(
    "chat", ["", "ana", "ana@people.test\r\nRCPT TO:<eve@x.y>", "<ana@people.test>", "ana@people.test, b@c.d"]
)
async def test_what_is_no_address_is_undeliverable(servers: MailServers, tmp_path: Path, chat: str) -> None:
    async with opened(servers, tmp_path) as on:
        with pytest.raises(Undeliverable):
            await on.channel.deliver(OutboundMessage(id="s/1", chat=chat, text="Yes."))


# --- opening ----------------------------------------------------------------------------------------------------------


async def test_what_is_wrong_is_said_when_the_channel_is_opened(servers: MailServers, tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"password": Secret("wrong-password")}, "refuses the login of 'bot@exuvia.test': .*app password"),
        ({"folder": "Täglich & mehr"}, "The folder 'Täglich & mehr' cannot be opened"),
        ({"ca_file": ""}, "cannot be reached: .*certificate verify failed"),
        ({"imap": "127.0.0.1:1"}, "The IMAP server 127.0.0.1:1 cannot be reached"),
        ({"smtp": "127.0.0.1:1"}, "The SMTP server 127.0.0.1:1 cannot be reached"),
        ({"smtp": "example.org:25", "smtp_security": "none"}, 'smtp_security = "none" is possible on this machine only'),
        ({"password": None}, "Set either password or the table oauth"),
    ]
    for changed, sentence in wrong:
        with pytest.raises(PluginError, match=sentence):
            async with opened(servers, tmp_path, **changed):
                pass


async def test_a_setting_of_tls_that_does_not_fit_the_port_is_named_at_once(
    servers: MailServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(port_security, "LOOK_SECONDS", 0.2)
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"imap": f"127.0.0.1:{servers.imaps}"}, 'begins with TLS: set imap_security = "tls"'),
        ({"smtp": f"127.0.0.1:{servers.smtps}"}, 'begins with TLS: set smtp_security = "tls"'),
        ({"imap_security": "tls"}, 'does not begin with TLS: set imap_security = "starttls"'),
        ({"smtp_security": "tls"}, 'does not begin with TLS: set smtp_security = "starttls"'),
    ]
    for changed, sentence in wrong:
        with pytest.raises(PluginError, match=sentence):
            async with deadline(), opened(servers, tmp_path, **changed):
                pass


async def test_it_says_as_whom_it_is_logged_in(servers: MailServers, tmp_path: Path) -> None:
    servers.post(mail("one"))
    tls = {"imap": f"127.0.0.1:{servers.imaps}", "smtp": f"127.0.0.1:{servers.smtps}"}
    settings = settings_for(servers, **tls, imap_security="tls", smtp_security="tls")
    async with make_context(tmp_path, settings) as context, EmailChannel(context) as channel:
        assert await channel.check() == (
            "Logged in to 127.0.0.1 and 127.0.0.1 as bot@exuvia.test; INBOX has 1 mails, and new mail is announced at once."
        )
