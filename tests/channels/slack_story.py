"""The story of a channel, told through the fake of Slack: two direct messages, a channel with a mention, and a thread."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.channels.link import Link
from tests.channels.story import StoryService
from tests.servers.slack_blocks import text_of
from tests.servers.slack_server import APP_TOKEN, BOT_TOKEN, BOT_USER, SlackServer

KINDS = {"D1": "im", "D2": "im", "C1": "channel", "G1": "group"}

MANY = 20
"""More attempts than are made while posts are refused."""


class Story(StoryService):
    """Slack with four conversations. In `G1` everything is said in one thread, and in `C1` the answers stand outside."""

    chats: ClassVar[Sequence[str]] = tuple(KINDS)
    timers: ClassVar[Sequence[str]] = ("plugins.channels.slack.socket_mode.HEARTBEAT",)

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.slack = SlackServer(ack_seconds=3.0, retry_delays=(0.0, 5.0, 20.0))
        self._stack = AsyncExitStack()
        self._thread = ""

    async def __aenter__(self) -> Self:
        await self._stack.enter_async_context(self.slack.serving())
        link = await self._stack.enter_async_context(Link(self.slack.port))
        self.links = (link,)
        self.slack.url = f"http://127.0.0.1:{link.port}"
        for chat, kind in KINDS.items():
            self.slack.conversation(chat, kind)
        self._thread = self.slack.write("U2", "G1", "Here we talk.", silent=True)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._stack.aclose()

    @asynccontextmanager
    async def refusing(self, status: int) -> AsyncIterator[None]:
        for _ in range(MANY):
            self.slack.fail("chat.postMessage", error="as_user_not_supported", status=status if status == 403 else 200)
        yield
        self.slack.faults["chat.postMessage"].clear()

    async def limit(self, seconds: int) -> Callable[[], bool]:
        self.slack.fail("chat.postMessage", error="ratelimited", status=429, retry_after=seconds)
        return lambda: not self.slack.faults["chat.postMessage"]

    @asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        self.slack.fail("chat.postMessage", error="ratelimited", status=429, retry_after=1)
        yield

    def configuration(self) -> str:
        return f"""
[channels.slack]
kind = "slack"
token = "{BOT_TOKEN}"
app_token = "{APP_TOKEN}"
base_url = "{self.slack.api}"
threads = false
messages_per_minute = 1000000
people = {{ "U1" = "owner" }}
"""

    async def say(self, chat: str, text: str) -> None:
        mention = "" if KINDS[chat] == "im" else f"<@{BOT_USER}> "
        self.slack.write("U1", chat, mention + escaped(text), thread=self._thread if chat == "G1" else "")

    async def attack(self, name: str, text: str) -> None:
        self.slack.people["U1"] = name
        file = self.slack.attach("U1", text, b"tea", "text/plain", title=text, filetype=text)
        await self.slack.say(
            "U1", "D1", f"<!channel> <@U1> <http://evil.example|tea> {escaped(text)}", files=[file], subtype="file_share"
        )

    async def react(self, emoji: str) -> None:
        self.slack.react("U1", "D1", self.slack.posts("D1")[-1]["ts"], {"👍": "+1", "👎": "-1"}[emoji])

    async def posts(self, chat: str) -> Sequence[str]:
        return [text_of(post) for post in self.slack.posts(chat)]

    async def code(self, chat: str) -> Sequence[str]:
        blocks = [
            block for post in self.slack.posts(chat) for block in post.get("blocks", ()) if block["type"] == "rich_text"
        ]
        found = [element for block in blocks for element in block["elements"] if element["type"] == "rich_text_preformatted"]
        return ["".join(part["text"] for part in element["elements"]) for element in found]

    async def source(self, chat: str) -> str:
        return str(self.slack.posts(chat))


def escaped(text: str) -> str:
    """Return a text as Slack's clients send it."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
