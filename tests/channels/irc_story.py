"""The story of `irc` on a real ngircd, which keeps nothing for a client that is away, and takes every line as a new one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from plugins.channels.irc.irc_channel import REPEATED
from tests.channels.irc_network import IrcPerson, Ngircd
from tests.channels.link import Link
from tests.channels.story import StoryService
from tests.waiting import until

CONFIGURATION = """
[channels.irc]
kind = "irc"
server = "127.0.0.1:{port}"
tls = false
rooms = ["#kitchen", "#garden"]
flood_seconds = 0.001
messages_per_minute = 1000000
people = {{ "*" = "owner" }}
"""


class Story(StoryService):
    """Ana, who talks in two channels and in private."""

    chats: ClassVar[Sequence[str]] = ("ana", "#kitchen", "#garden")
    acknowledges: ClassVar[bool] = False
    repeats: ClassVar[bool] = True
    mark: ClassVar[str] = REPEATED
    timers: ClassVar[Sequence[str]] = ("plugins.channels.irc.irc_connection.SILENCE_SECONDS",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = Ngircd(folder)
        self._ana = IrcPerson("ana", self._server.port)

    async def __aenter__(self) -> Self:
        await self._server.start()
        self.links = (await Link(self._server.port).__aenter__(),)
        await self._ana.enter("#kitchen", "#garden")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._ana.leave()
        await self.links[0].__aexit__(None, None, None)
        await self._server.stop()

    @asynccontextmanager
    async def refusing(self, status: int) -> AsyncIterator[None]:
        self._ana.write("MODE ana +b")  # only people with an account may write to her
        await self._ana.fence()
        yield
        self._ana.write("MODE ana -b")
        await self._ana.fence()

    def configuration(self) -> str:
        return CONFIGURATION.format(port=self.links[0].port)

    async def ready(self, chat: str) -> None:
        await until(lambda: self._nick(chat))

    async def say(self, chat: str, text: str) -> None:
        while True:
            await self.ready(chat)
            nick, since = self._nick(chat), len(self._ana.lines)
            await (self._ana.say(nick, text) if chat == "ana" else self._ana.say(chat, f"{nick}: {text}"))
            if not any(" 401 " in line for line in self._ana.lines[since:]):  # it left a moment ago
                return
            await asyncio.sleep(0.05)

    async def attack(self, name: str, text: str) -> None:
        text = "".join(each for each in text if each not in "\0\r\n")
        for start in range(0, len(text), 100):
            await self.say("ana", text[start : start + 100])

    async def posts(self, chat: str) -> Sequence[str]:
        return self._ana.messages(chat)

    async def notices(self, chat: str) -> Sequence[str]:
        return self._ana.messages("ana", command="NOTICE")

    async def code(self, chat: str) -> Sequence[str]:
        """Return the lines in a fixed width: there are no blocks of code."""
        return [line[1:-1] for line in await self.posts(chat) if line.startswith("\x11") and line.endswith("\x11")]

    def _nick(self, chat: str) -> str:
        """Return the assistant's nick while it is there, else ""."""
        here = self._ana.here["#garden" if chat == "ana" else chat]  # it joins this one last
        return next((nick for nick in here if nick.rstrip("_") == "exuvia"), "")
