"""Mails and an email channel for tests."""

from __future__ import annotations

from email import message_from_bytes, policy
from email.message import EmailMessage
from email.utils import make_msgid
from typing import Any

import msgspec

from plugins.api.channel import ChannelInbox, InboundMessage, OutboundMessage
from plugins.channels.email.email_channel import EmailChannel
from plugins.channels.email.email_settings import Settings
from plugins.support.secrets import Secret
from plugins.testing.channel_checks import RemoteService
from tests.servers.mail_servers import AUTHSERV, OURS, PASSWORD, MailServers

PEOPLE = "people.test"


def settings_for(servers: MailServers, **changed: Any) -> Settings:
    """Return the settings of a channel for these servers."""
    keys: dict[str, Any] = {
        "address": OURS,
        "password": Secret(PASSWORD),
        "imap": f"127.0.0.1:{servers.imap}",
        "smtp": f"127.0.0.1:{servers.smtp}",
        "ca_file": servers.ca_file,
        "authserv_id": AUTHSERV,
    }
    return Settings(**keys | changed)


def mail(text: str, *, sender: str = f"ana@{PEOPLE}", name: str = "", subject: str = "", **fields: str) -> EmailMessage:
    """Return a mail that our server has verified. `fields` have `_` for `-`; an empty one is left out."""
    written = EmailMessage(policy=policy.SMTP)
    domain = sender.rpartition("@")[2]
    defaults = {
        "Authentication_Results": f"{AUTHSERV}; dmarc=pass (p=none) header.from={domain}",
        "From": f'"{name}" <{sender}>' if name else sender,
        "To": OURS,
        "Subject": subject,
        "Message_ID": make_msgid(domain=domain),
    }
    for field, value in (defaults | fields).items():
        if value:
            written[field.replace("_", "-")] = value
    written.set_content(text)
    return written


def reply_to(received: bytes, text: str, **fields: str) -> EmailMessage:
    """Return a reply to a mail of the assistant."""
    answered = parsed(received)
    references = f"{answered['References'] or ''} {answered['Message-ID']}".strip()
    return mail(
        text,
        sender=str(answered["To"]),
        **{"subject": str(answered["Subject"]), "In_Reply_To": str(answered["Message-ID"]), "References": references}
        | fields,
    )


def parsed(content: bytes) -> EmailMessage:
    """Return a mail that was sent."""
    message = message_from_bytes(content, policy=policy.default)
    assert isinstance(message, EmailMessage)
    return message


def text_of(content: bytes) -> str:
    """Return the plain text of a mail that was sent."""
    body = parsed(content).get_body(("plain",))
    assert body is not None
    return str(body.get_content()).replace("\r\n", "\n").removesuffix("\n")


class NamedChannel(EmailChannel):
    """A channel that shows `chat@people.test` as the chat, and the name beside the address as the sender: the checks of
    channels have people and chats of any names."""

    async def run(self, inbox: ChannelInbox) -> None:
        await super().run(_Renamed(inbox))

    async def deliver(self, message: OutboundMessage) -> str:
        return await super().deliver(msgspec.structs.replace(message, chat=f"{message.chat}@{PEOPLE}"))


class _Renamed:
    def __init__(self, inbox: ChannelInbox) -> None:
        self._inbox = inbox

    async def receive(self, message: InboundMessage) -> bool:
        chat = message.chat.partition("@")[0]
        return await self._inbox.receive(msgspec.structs.replace(message, sender=message.name, chat=chat))

    async def knows(self, sender: str, *, mentioned: bool = True) -> bool:
        return await self._inbox.knows(sender, mentioned=mentioned)

    def bounced(self, chat: str, reason: str) -> None:
        self._inbox.bounced(chat, reason)

    def report(self, problem: str = "") -> None:
        self._inbox.report(problem)


class MailService(RemoteService):
    """The servers as the checks of channels use them."""

    def __init__(self, servers: MailServers) -> None:
        self.servers = servers

    async def say(self, sender: str, chat: str, text: str) -> None:
        """Deliver a mail to the assistant."""
        self.servers.post(mail(text, sender=f"{chat}@{PEOPLE}", name=sender))

    async def hear(self) -> tuple[str, str]:
        """Return the next mail of the assistant."""
        recipient, content = await self.servers.arrived.get()
        return recipient.partition("@")[0], text_of(content)

    async def edit(self, sender: str, chat: str, text: str) -> None:
        """Fail: a mail cannot be edited."""
        raise NotImplementedError

    async def press(self, sender: str, chat: str, label: str) -> None:
        """Fail: a mail has no buttons."""
        raise NotImplementedError
