"""Email: one conversation for each thread, from an IMAP folder and by an SMTP server."""

from __future__ import annotations

import asyncio
import ssl
from collections import OrderedDict
from contextlib import suppress
from datetime import UTC
from hashlib import blake2b
from types import TracebackType
from typing import ClassVar, Self

import msgspec
import structlog

from plugins.api.channel import (
    Channel,
    ChannelInbox,
    InboundMessage,
    MessageRejected,
    OutboundMessage,
    TryLater,
    Undeliverable,
)
from plugins.api.context import PluginContext
from plugins.api.hookspecs import hookimpl
from plugins.channels.email import outbound_mail
from plugins.channels.email.access_tokens import AccessTokens, Credentials
from plugins.channels.email.email_settings import Settings, check_settings, server_of
from plugins.channels.email.html_text import markdown_of_html
from plugins.channels.email.imap_client import Fetched, Folder, ImapConnection, ImapError, ImapLoginRefused
from plugins.channels.email.mailbox import Handled, Mailbox
from plugins.channels.email.mime_reading import Headers, Mail, read_mail
from plugins.channels.email.outbound_mail import Draft, ThreadState
from plugins.channels.email.port_security import naming_wrong_security
from plugins.channels.email.reply_text import new_text
from plugins.channels.email.sender_checks import Author, author_of, bounces, why_automatic, why_not_believed
from plugins.channels.email.sent_mails import SentMails
from plugins.channels.email.smtp_submission import SmtpSubmission, dot_stuffed
from plugins.channels.service_library import import_library
from plugins.support.errors import PluginError, SettingsRefused
from plugins.support.state_file import StateFile

MAIL_BYTES = 64 * 1024 * 1024
"""Maximum size of a mail that is read."""

REPORT_BYTES = 256 * 1024
"""Maximum size of a report about an undelivered mail that is read."""

FILE_BYTES = 18_000_000
"""Maximum bytes of the files of a reply: most servers accept mails of 25 MB, in which files take a third more."""

REMEMBERED = 1000
"""Maximum senders and threads whose mails are counted, and mails that were logged as not believed."""

NOT_YET_SECONDS = 2.0
"""Seconds until a reply is tried again whose thread may be in a mail that was not fetched yet."""

log = structlog.get_logger("exuvia.channels")


class _Incoming(msgspec.Struct, frozen=True, kw_only=True):
    """A mail from a person, by its header."""

    id: str
    message_id: str
    author: Author
    thread: str
    subject: str
    references: tuple[str, ...]
    group: bool
    mentioned: bool
    at: float

    @property
    def is_reply(self) -> bool:
        return bool(self.references)


class EmailChannel:
    """A mailbox of the assistant."""

    name: ClassVar[str] = "email"
    Settings: ClassVar[type[msgspec.Struct]] = Settings
    attempts_noted: ClassVar[bool] = True

    def __init__(self, context: PluginContext) -> None:
        settings: Settings = context.settings
        check_settings(settings)
        self._settings = settings
        self._context = context
        self._imap = server_of("imap", settings.imap, settings.imap_security, tls_port=993)
        self._smtp = server_of("smtp", settings.smtp, settings.smtp_security, tls_port=465)
        self._address = settings.address.lower()
        self._domain = self._address.rpartition("@")[2]
        self._ours = outbound_mail.our_ids(self._domain)
        tokens = None
        if settings.oauth is not None:
            state = StateFile(context.folder / "token.json")
            tokens = AccessTokens(settings.oauth, context.transport, context.clock, state)
        self._credentials = Credentials(
            settings.user or settings.address,
            settings.password.reveal() if settings.password is not None else "",
            tokens,
        )
        self._mailbox = Mailbox(
            self._connect,
            settings.folder,
            StateFile(context.folder / "mailbox.json"),
            context.clock,
            settings.poll_seconds,
        )
        self._sent = SentMails(context.folder / "sent", self._connect, settings.sent, save=settings.save_sent)
        self._tls: ssl.SSLContext
        self._submission: SmtpSubmission
        self._first: tuple[ImapConnection, Folder] | None = None
        self._inbox: ChannelInbox
        self._waiting: dict[str, str] = {}
        self._day = ""
        self._counts: OrderedDict[str, int] = OrderedDict()
        self._doubted: set[str] = set()

    async def __aenter__(self) -> Self:
        library = await import_library("aiosmtplib", "email")
        try:
            self._tls = await asyncio.to_thread(ssl.create_default_context, cafile=self._settings.ca_file or None)
        except OSError as error:
            raise PluginError(f"The file of ca_file, {self._settings.ca_file!r}, cannot be read: {error}") from error
        self._submission = SmtpSubmission(library, self._smtp, self._credentials, self._tls, self._domain)
        self._first = await self._open_mailbox()
        try:
            async with naming_wrong_security("smtp", self._smtp):
                await self._submission.check()
            await self._sent.open()
        except BaseException:
            self._first[0].close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._first is not None:
            self._first[0].close()
            self._first = None

    async def _open_mailbox(self) -> tuple[ImapConnection, Folder]:
        try:
            async with naming_wrong_security("imap", self._imap):
                return await self._mailbox.open()
        except (OSError, ImapError) as error:
            raise PluginError(f"{self._imap_place()} cannot be reached: {str(error) or type(error).__name__}") from error

    def _imap_place(self) -> str:
        return f"The IMAP server {self._imap.host}:{self._imap.port}"

    async def _connect(self) -> ImapConnection:
        """Connect and log in."""
        server = self._imap
        connection = await ImapConnection.open(server.host, server.port, security=server.security, context=self._tls)
        try:
            await self._credentials.log_in(connection.login, connection.login_xoauth2, ImapLoginRefused)
        except ImapLoginRefused as error:
            connection.close()
            raise SettingsRefused(
                f"{self._imap_place()} refuses the login of {self._credentials.user!r}: {str(error).rstrip('.')}."
                f" {self._credentials.advice}"
            ) from error
        except BaseException:
            connection.close()
            raise
        return connection

    async def check(self) -> str:
        """Say as whom the channel is logged in."""
        assert self._first is not None
        connection, folder = self._first
        waits = "new mail is announced at once" if "IDLE" in connection.capabilities else "the folder is polled"
        return (
            f"Logged in to {self._imap.host} and {self._smtp.host} as {self._credentials.user};"
            f" {self._settings.folder} has {folder.messages} mails, and {waits}."
        )

    # --- mails to us --------------------------------------------------------------------------------------------------

    async def run(self, inbox: ChannelInbox) -> None:
        """Receive mails, and save sent ones, until cancelled."""
        self._inbox = inbox
        first, self._first = self._first, None
        follow = self._mailbox.follow(first, self._handle, inbox.report)
        tasks = [asyncio.create_task(follow), asyncio.create_task(self._sent.run())]
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
            for task in done:
                task.result()
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def _handle(self, connection: ImapConnection, header: Fetched) -> Handled:
        """Decide about a mail, see `MailHandler`."""
        headers = Headers(header.content)
        author = author_of(headers)
        if author is None:
            log.info("mail_ignored", reason="it names no author")
            return Handled.IGNORED
        if reason := why_automatic(headers, author, frozenset({self._address})):
            log.info("mail_ignored", sender=author.address, reason=reason)
            await self._note_bounces(connection, header, headers)
            return Handled.IGNORED
        if not self._settings.trust_from and (reason := why_not_believed(headers, author, self._settings.authserv_id)):
            await self._note_doubt(author.address, reason)
            return Handled.IGNORED
        incoming = self._incoming(headers, author, header.content)
        if not await self._inbox.knows(author.address):
            with suppress(MessageRejected):  # lists the sender; unknown senders are never answered
                stranger = self._message(incoming, Mail(text=incoming.subject))
                await self._inbox.receive(msgspec.structs.replace(stranger, chat=""))
            return Handled.IGNORED
        return await self._handle_known(connection, header, incoming)

    async def _handle_known(self, connection: ImapConnection, header: Fetched, incoming: _Incoming) -> Handled:
        conversation = f"{incoming.author.address} {incoming.thread}"
        first = next((mail for mail, waits_in in self._waiting.items() if waits_in == conversation), incoming.id)
        if first != incoming.id:  # the order within a conversation is kept
            self._waiting.setdefault(incoming.id, conversation)
            return Handled.LATER
        if reason := self._over_limit(incoming):
            await self._tell(incoming, reason)
            return Handled.IGNORED
        mail = Mail(text=f"(A mail of {header.size // 1_000_000} MB, which is too large to be read.)")
        if header.size <= MAIL_BYTES:
            if (fetched := await connection.fetch(header.uid)) is None:
                return Handled.IGNORED
            mail = await asyncio.to_thread(read_mail, fetched.content)
        message = await asyncio.to_thread(self._message, incoming, mail)
        await self._remember_thread(incoming)
        try:
            new = await self._inbox.receive(message)
        except MessageRejected as error:
            if error.later:
                self._waiting[incoming.id] = conversation
                return Handled.LATER
            log.info("mail_rejected", sender=incoming.author.address, reason=str(error))
            self._waiting.pop(incoming.id, None)
            if error.tell:
                await self._tell(incoming, str(error))
            return Handled.IGNORED
        self._waiting.pop(incoming.id, None)
        if new:
            self._count(incoming)
        return Handled.ACCEPTED

    def _incoming(self, headers: Headers, author: Author, raw: bytes) -> _Incoming:
        ids = headers.message_ids("message-id")
        message_id = ids[0] if ids else ""
        references = [*headers.message_ids("references"), *headers.message_ids("in-reply-to")]
        to = {address for _, address in headers.addresses("to")}
        others = (to | {address for _, address in headers.addresses("cc")}) - {self._address, author.address}
        digest = blake2b(raw, digest_size=16).hexdigest()
        return _Incoming(
            id=message_id or digest,
            message_id=message_id,
            author=author,
            thread=self._thread_of(references, message_id or digest),
            subject=headers.get("subject")[:1000],
            references=tuple(dict.fromkeys(references)),
            group=bool(others),
            mentioned=self._address in to or not others,
            at=headers.sent_at(),
        )

    def _thread_of(self, references: list[str], own_id: str) -> str:
        """Return the thread's name: the one in an id of ours that the mail refers to, or a hash of its first mail's id."""
        for each in reversed(references):
            if ours := self._ours.fullmatch(f"<{each}>"):
                return "" if ours[1] == "none" else ours[1]
        return blake2b((references or [own_id])[0].encode("utf-8", "replace"), digest_size=8).hexdigest()

    def _message(self, incoming: _Incoming, mail: Mail) -> InboundMessage:
        whole = mail.text if mail.text.strip() else markdown_of_html(mail.html)
        forwarded = incoming.subject.lower().startswith(("fwd:", "fw:", "wg:", "tr:", "rv:"))
        text = new_text(whole, reply=incoming.is_reply and not forwarded)
        if not incoming.is_reply and incoming.subject and not text.startswith("/"):
            text = text if text.startswith(incoming.subject) else f"{incoming.subject}\n\n{text}".strip()
        return InboundMessage(
            id=incoming.id,
            sender=incoming.author.address,
            chat=incoming.author.address,
            text=text or ("" if mail.files else "(an empty mail)"),
            group=incoming.group,
            attachments=mail.files,
            mentioned=incoming.mentioned,
            thread=incoming.thread,
            name=incoming.author.name,
            at=incoming.at,
        )

    # --- limits and notes ---------------------------------------------------------------------------------------------

    def _counted(self, incoming: _Incoming) -> tuple[tuple[str, int, str], ...]:
        sender, settings = incoming.author.address, self._settings
        return (
            (sender, settings.replies_per_sender, "from you"),
            (f"{sender} {incoming.thread}", settings.replies_per_thread, "in this conversation"),
        )

    def _over_limit(self, incoming: _Incoming) -> str:
        """Return a sentence if the sender or the thread has had its mails for today."""
        if (today := self._context.clock.now().date().isoformat()) != self._day:
            self._day = today
            self._counts.clear()
        for key, limit, where in self._counted(incoming):
            if self._counts.get(key, 0) >= limit:
                return f"This mail was ignored: {limit} mails a day are accepted {where}."
        return ""

    def _count(self, incoming: _Incoming) -> None:
        for key, _, _ in self._counted(incoming):
            self._counts[key] = self._counts.pop(key, 0) + 1
        while len(self._counts) > REMEMBERED:
            self._counts.popitem(last=False)

    async def _note_doubt(self, sender: str, reason: str) -> None:
        if sender not in self._doubted and len(self._doubted) < REMEMBERED and await self._inbox.knows(sender):
            self._doubted.add(sender)
            log.warning("mail_not_believed", sender=sender, reason=reason)

    async def _note_bounces(self, connection: ImapConnection, header: Fetched, headers: Headers) -> None:
        if header.size <= REPORT_BYTES and headers.get("content-type").lower().startswith("multipart/report"):
            fetched = await connection.fetch(header.uid)
            mail = await asyncio.to_thread(read_mail, fetched.content) if fetched is not None else Mail()
            for bounce in bounces(mail, self._ours):
                log.warning("mail_bounced", recipient=bounce.recipient, reason=bounce.reason, message_id=bounce.message_id)
                self._inbox.bounced(bounce.recipient, bounce.reason)

    async def _tell(self, incoming: _Incoming, sentence: str) -> None:
        """Send a sentence about a mail that was not accepted, once, and at most as often as mails are accepted."""
        key = f"told {incoming.author.address}"
        self._counts[key] = self._counts.get(key, 0) + 1
        if self._counts[key] <= self._settings.replies_per_thread:
            reply = OutboundMessage(
                id=f"about {incoming.id}", chat=incoming.author.address, thread=incoming.thread, text=sentence, again=True
            )
            await self._remember_thread(incoming)
            with suppress(PluginError):
                await self.deliver(reply)

    # --- threads ------------------------------------------------------------------------------------------------------

    def _thread_file(self, chat: str, thread: str) -> StateFile:
        digest = blake2b(f"{chat}\n{thread}".encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
        return StateFile(self._context.folder / "threads" / f"{digest}.json")

    async def _remember_thread(self, incoming: _Incoming) -> None:
        """Save what the reply needs. Before the mail is handed over, since the reply may come before `receive` returns."""
        references = (*incoming.references, *([incoming.message_id] if incoming.message_id else []))
        if len(references) > outbound_mail.REFERENCES:
            references = (references[0], *references[1 - outbound_mail.REFERENCES :])
        state = {"subject": incoming.subject, "references": list(references)}
        await self._thread_file(incoming.author.address, incoming.thread).save(state)

    async def _thread(self, chat: str, thread: str) -> ThreadState:
        """Return what is known of a thread. Raises TryLater if its mail may not have been fetched again yet."""
        kept = await self._thread_file(chat, thread).load()
        if not kept and thread and not self._mailbox.caught_up:
            raise TryLater(NOT_YET_SECONDS, "The folder has not been read yet.")
        return ThreadState(subject=str(kept.get("subject", "")), references=tuple(map(str, kept.get("references", ()))))

    # --- mails from us ------------------------------------------------------------------------------------------------

    async def deliver(self, message: OutboundMessage) -> str:
        """Send a reply; the receipt is its Message-ID."""
        if sum(len(file.content) for file in message.attachments) > FILE_BYTES:
            raise Undeliverable(f"The files have more than {FILE_BYTES // 1_000_000} MB, which mail servers do not accept.")
        thread = await self._thread(message.chat, message.thread)
        message_id = outbound_mail.message_id(message.id, message.thread, self._domain)
        key = blake2b(message_id.encode("ascii"), digest_size=16).hexdigest()
        if message.again and await self._was_sent(key, message_id):
            return message_id
        draft = Draft(
            message_id=message_id,
            sender=self._settings.address,
            sender_name=self._settings.name,
            recipient=message.chat,
            text=message.text,
            thread=thread,
            date=self._context.clock.now().astimezone(UTC),
            files=message.attachments,
        )
        try:
            content = await asyncio.to_thread(outbound_mail.compose, draft)
        except (ValueError, IndexError) as error:
            raise Undeliverable(f"{message.chat!r} is no address that mail can be sent to.") from error
        await self._sent.prepare(key, content)
        await self._submission.send(self._settings.address, message.chat, await asyncio.to_thread(dot_stuffed, content))
        await self._sent.accepted(key)
        return message_id

    async def _was_sent(self, key: str, message_id: str) -> bool:
        try:
            return await self._sent.has(key, message_id)
        except (OSError, ImapError) as error:
            raise TryLater(
                5.0, f"{self._imap_place()} cannot be asked whether the mail was sent: {str(error) or type(error).__name__}"
            ) from error


@hookimpl
def register_channels() -> list[type[Channel]]:
    """Register the channel."""
    return [EmailChannel]
