"""The story of `telegram` on the fake of its Bot API."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from plugins.channels.telegram.telegram_channel import REPEATED
from tests.channels.link import Link
from tests.channels.story import StoryService
from tests.servers.telegram_rules import Refused
from tests.servers.telegram_server import Fault, TelegramServer

CONFIGURATION = """
[channels.telegram]
kind = "telegram"
token = "{token}"
base_url = "http://127.0.0.1:{port}"
messages_per_minute = 1000000
people = {{ "11" = "owner", "12" = "owner" }}
"""

CHATS = {"ana": 11, "ben": 12, "kitchen": -1000000000044}


class Story(StoryService):
    """Ana and Ben in private, and in a group."""

    chats: ClassVar[Sequence[str]] = tuple(CHATS)
    repeats: ClassVar[bool] = True
    mark: ClassVar[str] = REPEATED.strip("*")

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._server = TelegramServer()

    async def __aenter__(self) -> Self:
        await self._server.__aenter__()
        self._server.user(CHATS["ana"], "Ana")
        self._server.user(CHATS["ben"], "Ben")
        self._server.group(CHATS["kitchen"], "Kitchen")
        self.links = (await Link(self._server.port).__aenter__(),)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.links[0].__aexit__(None, None, None)
        await self._server.__aexit__(None, None, None)

    def compress(self, factor: float) -> None:
        self._server.poll_seconds /= factor

    @asynccontextmanager
    async def refusing(self, status: int) -> AsyncIterator[None]:
        chat = self._server.chats[CHATS["ana"]]
        chat.refusal = Refused(
            status, {400: "Bad Request: not enough rights", 403: "Forbidden: bot was blocked by the user"}[status]
        )
        yield
        chat.refusal = None

    async def limit(self, seconds: int) -> Callable[[], bool]:
        faults = self._server.faults["sendmessage"]
        faults.append(Fault(429, f"Too Many Requests: retry after {seconds}", parameters={"retry_after": seconds}))
        return lambda: not faults

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        refusal = Fault(status=429, description="Too Many Requests: retry after 1", parameters={"retry_after": 1})
        self._server.faults["sendmessage"].append(refusal)
        yield

    def configuration(self) -> str:
        return CONFIGURATION.format(token=self._server.token, port=self.links[0].port)

    async def say(self, chat: str, text: str) -> None:
        if chat == "kitchen":
            await self._server.say(CHATS["ana"], CHATS[chat], f"@exuvia_bot {text}")
        else:
            await self._server.say(CHATS[chat], CHATS[chat], text)

    async def attack(self, name: str, text: str) -> None:
        ana = CHATS["ana"]
        self._server.users[ana] |= {"first_name": name, "last_name": text}
        self._server.chats[ana].title = name
        file = self._server.upload(b"tea") | {"file_name": text, "mime_type": text}
        await self._server.say(ana, ana, document=file, caption=text)

    async def react(self, emoji: str) -> None:
        await self._server.react(CHATS["ana"], self._server.posts_in(CHATS["ana"])[-1], emoji)

    async def posts(self, chat: str) -> Sequence[str]:
        return [post["text"] for post in self._server.posts_in(CHATS[chat])]
