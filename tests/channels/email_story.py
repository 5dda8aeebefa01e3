"""The story of the email channel: people whose mails reach dovecot, and answers that reach their mail server.

A recipient's mail server that discards a Message-ID which it has seen shows each answer once; `repetitions` counts what it
discards: mails whose connection was cut between their end and the server's reply.
"""

from __future__ import annotations

import base64
import re
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from email.policy import SMTP
from html import escape, unescape
from types import TracebackType
from typing import ClassVar, Self
from urllib.parse import quote

from tests.channels.link import Link
from tests.channels.mail_stage import PEOPLE, mail, parsed, text_of
from tests.channels.story import StoryService
from tests.servers.mail_servers import AUTHSERV, OURS, PASSWORD, MailServers, mail_servers
from tests.waiting import until

CHANNEL = """
[channels.mail]
kind = "email"
address = "{address}"
password = "{password}"
imap = "127.0.0.1:{imap}"
smtp = "127.0.0.1:{smtp}"
ca_file = "{ca_file}"
authserv_id = "{authserv}"
replies_per_thread = 1000000
replies_per_sender = 1000000
messages_per_minute = 1000000
pairing = false
people = {{ {people} }}
"""


class Story(StoryService):
    """Each chat is a thread of somebody's."""

    chats: ClassVar[Sequence[str]] = (f"ana@{PEOPLE}", f"ben@{PEOPLE}", f"cleo@{PEOPLE}")
    timers: ClassVar[Sequence[str]] = (
        "plugins.channels.email.mailbox.RENEW_SECONDS",
        "plugins.channels.email.smtp_submission.PAUSE",
        "plugins.channels.email.sent_mails.RETRY_SECONDS",
    )

    async def __aenter__(self) -> Self:
        self._stack = AsyncExitStack()
        self.servers: MailServers = await self._stack.enter_async_context(mail_servers())
        self._imap = await self._stack.enter_async_context(Link(self.servers.imap))
        self._smtp = await self._stack.enter_async_context(Link(self.servers.smtp))
        self.links = (self._imap, self._smtp)
        self._noted = self.folder.parent / "home" / "channels" / "mail" / "mailbox.json"
        self.repetitions = 0
        self._shown: dict[str, list[str]] = {chat: [] for chat in self.chats}
        self._ids: dict[str, set[str]] = {chat: set() for chat in self.chats}
        self._read = dict.fromkeys(self.chats, 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()
        print(f"mails that were sent again with the same Message-ID: {self.repetitions}")  # noqa: T201

    @asynccontextmanager
    async def refusing(self, status: int) -> AsyncIterator[None]:
        said = {
            400: {"DATA": "554 5.6.0 The content is not accepted."},
            403: {self.chats[0]: "550 5.7.1 You may not write there."},
        }
        self.servers.replies = said[status].get
        yield
        self.servers.replies = lambda _: None

    async def limit(self, seconds: int) -> Callable[[], bool]:
        waiting = ["451 4.7.1 Too many mails; try again later."]
        self.servers.replies = lambda _: waiting.pop() if waiting else None
        return lambda: not waiting

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        self.servers.replies = lambda _: "451 4.7.1 Too many mails; try again later."
        try:
            yield
        finally:
            self.servers.replies = lambda _: None

    def configuration(self) -> str:
        return CHANNEL.format(
            address=OURS,
            password=PASSWORD,
            imap=self._imap.port,
            smtp=self._smtp.port,
            ca_file=self.servers.ca_file,
            authserv=AUTHSERV,
            people=", ".join(f'"{chat}" = "owner"' for chat in self.chats),
        )

    async def say(self, chat: str, text: str) -> None:
        await until(self._noted.exists)  # mails from before the channel was first open do not count
        self.servers.post(mail(text, sender=chat, References=f"<first.{chat}>"))

    async def attack(self, name: str, text: str) -> None:
        await until(self._noted.exists)
        written = mail("", sender=self.chats[0], name="NAME")
        written.set_content(f"<title>{text}</title><p>{escape(text)}</p>{text}", subtype="html")
        written.add_attachment(b"tea", maintype="application", subtype="pdf", filename="NAME.pdf")
        content = written.as_bytes(policy=SMTP)  # as no honest program would write it
        content = content.replace(b'"NAME"', b"=?utf-8?b?%s?=" % base64.b64encode(name.encode()))
        content = content.replace(b'filename="NAME.pdf"', f"filename*=utf-8''{quote(text)}.pdf".encode())
        self.servers.post(content)

    async def posts(self, chat: str) -> Sequence[str]:
        received = self.servers.mails.get(chat, [])
        for content in received[self._read[chat] :]:
            if (name := str(parsed(content)["Message-ID"])) in self._ids[chat]:
                self.repetitions += 1
            else:
                self._ids[chat].add(name)
                self._shown[chat].append(text_of(content))
        self._read[chat] = len(received)
        return self._shown[chat]

    async def code(self, chat: str) -> Sequence[str]:
        bodies = [parsed(content).get_body(("html",)) for content in self.servers.mails.get(chat, [])]
        found = [code for body in bodies if body for code in re.findall(r"(?s)<pre[^>]*>(.*?)</pre>", body.get_content())]
        return [unescape(re.sub(r"<[^>]*>", "", code)).replace("\r\n", "\n") for code in found]
