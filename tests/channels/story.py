"""The story of a channel: numbered messages through its service while everything breaks, and the check of what came of it.

    python -m tests.channels.story KIND [--messages 1000] [--seed N]

A run starts a real gateway process with one channel and a model that answers message 17 with the paragraphs `n17.1`, `n17.2`
and so on. People say messages through the service. Meanwhile, at random moments that the seed decides, the gateway is killed
and started again, connections to the service are cut at any byte, and the service, the disk and the model are slow. At the
end everything is calm until all messages are answered. Then it must be true that

- every message stands in the journals once, in the order in which it was said in its chat, and has exactly one turn;
- every paragraph of every answer is on the service exactly once, in order for each chat;
- `exuvia sessions verify` finds nothing.

A channel's owner writes `tests/channels/KIND_story.py` with a class `Story`, a `StoryService`, and a test that awaits
`tell(Story, tmp_path, messages=60, seed=1)`. Two weaknesses of services are allowed for, and only as far as they go:
`acknowledges = False` (what was under way when a connection ended may be lost) and `repeats = True` (a post may come twice
if the second one says so).
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import re
import shutil
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from importlib import import_module
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import aiohttp
import msgspec
from markdown_it import MarkdownIt

from benchmarks.ports import free_port
from plugins.testing.servers.openai_server import KEY, OpenAIServer, ScriptedResponse
from tests.channels.link import Link
from tests.channels.story_checks import Said, Told, check, is_delivered, marked_places, places, received
from tests.faults.gateway_process import GatewayProcess, journals, start_process, verify
from tests.torture.preload import Preload, compiler

WAITING = 6
"""Messages without an answer, at most: people wait then."""

IMPATIENT_SECONDS = 8.0
"""Seconds after which people no longer wait for an answer that the service may never show them."""

START_SECONDS = 240.0
"""Seconds in which a gateway must start."""

STUCK_SECONDS = 240.0
"""Seconds without any progress, while answers are owed, after which a run has failed. Only a fault takes this long."""

LOG_CHARS = 3000
"""Characters of the gateway's log that a report repeats, from its end."""

WORDS = (
    "Is there tea?",
    "Is there *tea* <b>or</b> coffee?",
    "😀 & “tea” — \\o/",
    "What about https://example.org/?a=1&b=2 …",
)
PARAGRAPH = "It is in the second drawer from the top, left of the window, with `sugar` and the *small* spoons. " * 2

CONFIGURATION = """
[agent]
model = "openai:gpt-test"
context_windows = {{ "openai:gpt-test" = 4000000 }}
[providers.openai]
base_url = "{url}"
api_key = "{key}"
[memory.embedding]
provider = "none"
[memory.recall]
mode = "off"
[memory.facts]
auto_extract = false
{channel}
"""

PEOPLE = re.compile(r"^(?:people|pairing) = .*\n", re.MULTILINE)
"""The lines of a channel's table that say who may speak."""

ASKED = re.compile(r"\bn(\d+)\b")
"""The number of a message, in its text."""


class StoryService(ABC):
    """A service with one channel of a gateway to it, as people use it.

    Attributes:
        chats: The chats in which people say something; groups among them if the service has groups.
        acknowledges: The service sends again what the gateway has not acknowledged. If not, `links` must have the one
            connection of the channel, and `ready` must wait until the assistant is there.
        repeats: Sending is not idempotent: after an attempt without a result the channel posts again, with a mark.
        mark: The text in such a post.
        timers: The channel's constants, as MODULE.NAME, with the seconds between two signs of life of an idle connection. A
            soak divides them.
        links: Proxies between the gateway and the service, through which it connects.
        gateway_port: The port of the gateway, for services that connect to it; set before the service is started.
    """

    chats: ClassVar[Sequence[str]]
    acknowledges: ClassVar[bool] = True
    repeats: ClassVar[bool] = False
    mark: ClassVar[str] = ""
    timers: ClassVar[Sequence[str]] = ()

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.links: tuple[Link, ...] = ()
        self.gateway_port = 0

    @abstractmethod
    async def __aenter__(self) -> Self:
        """Start the service, its proxies and the people's clients."""

    @abstractmethod
    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop everything that was started."""

    @abstractmethod
    def configuration(self) -> str:
        """Return the channel's tables of the gateway's configuration, with `messages_per_minute = 1000000`."""

    def strangers(self) -> str:
        """Return the same tables for a channel on which nobody is known yet, and everybody may ask to be paired."""
        return PEOPLE.sub("", self.configuration())

    def environment(self) -> dict[str, str]:
        """Return further environment variables of the gateway."""
        return {}

    async def ready(self, chat: str) -> None:
        """Wait until a message in a chat would reach the gateway; at once if the service keeps messages."""
        await asyncio.sleep(0)

    @abstractmethod
    async def say(self, chat: str, text: str) -> None:
        """Have somebody say a text in a chat; return once the service has accepted it. In a group, mention the assistant."""

    async def attack(self, name: str, text: str) -> None:
        """Have the person of the first chat, which is private, take a hostile name and say a hostile text there, with a file
        that has the text as its name, and as HTML, as far as the service has these."""
        raise NotImplementedError

    async def react(self, emoji: str) -> None:
        """Have the person of the first chat react to the assistant's last post there."""
        raise NotImplementedError

    @abstractmethod
    async def posts(self, chat: str) -> Sequence[str]:
        """Return the texts of everything that the assistant has posted in a chat and not deleted, oldest first."""

    async def notices(self, chat: str) -> Sequence[str]:
        """Return the posts of a chat, and what the assistant has told the person of it in another way."""
        return await self.posts(chat)

    async def code(self, chat: str) -> Sequence[str]:
        """Return the contents of the code blocks in the posts of a chat, oldest first."""
        raise NotImplementedError

    async def source(self, chat: str) -> str:
        """Return the posts of a chat with their links, in any form."""
        return "\n".join(await self.posts(chat))

    async def sever(self, dice: random.Random) -> None:
        """Cut the connections to the gateway, now or after some bytes."""
        for link in self.links:
            link.sever(dice.choice(("in", "out")), dice.choice((0, 0, 1, 20, 200, 2000)))

    def compress(self, factor: float) -> None:
        """Divide the service's own intervals, before it is started."""
        del factor

    @contextlib.asynccontextmanager
    async def refusing(self, status: int) -> AsyncIterator[None]:
        """Have the service refuse posts for good, with this status or the like of it, as long as the block lasts."""
        del status
        raise NotImplementedError
        yield

    async def limit(self, seconds: int) -> Callable[[], bool]:
        """Have the service refuse the next post and ask to wait so long. Return a function that says whether it has."""
        raise NotImplementedError

    @contextlib.asynccontextmanager
    async def limited(self) -> AsyncIterator[None]:
        """Have the service refuse posts for now, as long as the block lasts, if it ever does that."""
        yield

    async def slow(self, seconds: float) -> None:
        """Delay everything between the gateway and the service; 0 ends it."""
        for link in self.links:
            link.delay = seconds


class Report(msgspec.Struct, kw_only=True):
    """What happened in a run, and what was wrong."""

    seed: int
    messages: int
    chats: int
    seconds: float = 0.0
    disturbances: Counter[str] = msgspec.field(default_factory=Counter)
    posts: int = 0
    unseen: int = 0
    repeated: int = 0
    gateway_megabytes: float = 0.0
    findings: list[str] = []

    def __str__(self) -> str:
        happened = ", ".join(f"{count} {kind}" for kind, count in sorted(self.disturbances.items()))
        lines = [
            f"seed {self.seed}: {self.messages} messages in {self.chats} chats, {self.posts} posts, {self.seconds:.0f} s",
            f"disturbed by: {happened or 'nothing'}",
            f"not received because a connection ended: {self.unseen}; repeated, outcome unknown: {self.repeated}",
            f"the gateway's memory at the end: {self.gateway_megabytes:.0f} MB",
            *(f"WRONG {finding}" for finding in self.findings),
        ]
        return "\n".join(lines)


class StoryRun:
    """One run in `folder`."""

    def __init__(self, service: StoryService, folder: Path, *, messages: int, seed: int, calm: bool = False) -> None:
        self.report = Report(seed=seed, messages=messages, chats=len(service.chats))
        self._service = service
        self._folder = folder
        self._home = folder / "home"
        self._calm = calm
        self._dice = random.Random(f"{seed} story")
        self._port = service.gateway_port = free_port()
        self._said: dict[int, Said] = {}
        self._lengths = dict.fromkeys(range(1, messages + 1), 1)
        self._lengths |= {number: self._dice.choice((6, 14)) for number in self._lengths if number % 9 == 0}
        self._given_up: set[int] = set()
        self._delay = 0.0
        self._gateway: GatewayProcess
        self._preload: Preload | None = None

    async def run(self) -> Report:
        """Return the report of the run."""
        began = time.monotonic()
        self._home.mkdir(parents=True)
        model = OpenAIServer(respond=self._answer)
        async with contextlib.AsyncExitStack() as stack:
            await stack.enter_async_context(model.serving())
            service = await stack.enter_async_context(self._service)
            text = CONFIGURATION.format(url=model.url, key=KEY, channel=service.configuration())
            (self._home / "config.toml").write_text(text)
            if compiler():
                disk = random.Random(f"{self.report.seed} disk")
                self._preload = stack.enter_context(Preload(self._folder, self._home, disk))
            http = await stack.enter_async_context(aiohttp.ClientSession())
            await stack.enter_async_context(self._running(http))
            try:
                await self._talk(http, model)
                await self._settle()
            except TimeoutError as error:
                self.report.findings.append(f"stuck: {error}\n{self._gateway.log.read_text()[-LOG_CHARS:]}")
            if (code := self._gateway.process.returncode) is not None:
                log = self._gateway.log.read_text()[-LOG_CHARS:]
                self.report.findings.append(f"ended: the gateway ended by itself with {code}: {log}")
                return self.report
            self.report.gateway_megabytes = resident_megabytes(self._gateway.process.pid)
            if await self._gateway.stop() != 0:
                self.report.findings.append("ended: the gateway did not stop with the exit code 0")
            await self._check(service)
        self.report.seconds = time.monotonic() - began
        return self.report

    @contextlib.asynccontextmanager
    async def _running(self, http: aiohttp.ClientSession) -> AsyncIterator[None]:
        """Start the first gateway, and have the last one ended."""
        await self._start(http)
        try:
            yield
        finally:
            await self._gateway.kill()

    async def _start(self, http: aiohttp.ClientSession) -> None:
        settings = self._preload.environment() if self._preload is not None else {}
        settings |= {**self._service.environment(), "EXUVIA__AGENT__MODEL": '"openai:gpt-test"'}
        self._gateway = await start_process(self._home, settings=settings, port=self._port)
        await self._gateway.ready(http, START_SECONDS)

    # --- people and the model -----------------------------------------------------------------------------------------

    async def _talk(self, http: aiohttp.ClientSession, model: OpenAIServer) -> None:
        """Say all messages, each after a random pause, and disturb what happens meanwhile."""
        patience = STUCK_SECONDS if self._service.acknowledges else IMPATIENT_SECONDS
        for number in tuple(self._lengths):
            await self._say(number, self._dice.choice(self._service.chats))
            model.requests.clear()
            if not self._calm and self._dice.random() < 0.2:
                await self._disturb(http)
            await asyncio.sleep(self._dice.choice((0, 0, 0.02, 0.1)))
            await self._until_answered(WAITING, patience)

    async def _say(self, number: int, chat: str) -> None:
        await self._service.ready(chat)
        self._said[number] = Said(chat=chat, at=asyncio.get_running_loop().time())
        await self._service.say(chat, f"n{number} {self._dice.choice(WORDS)}")

    def _answer(self, body: dict[str, Any]) -> ScriptedResponse:
        texts = [message["content"] for message in body["messages"] if message["role"] == "user"]
        number = int(ASKED.findall(texts[-1])[-1])
        paragraphs = [f"n{number}.{part} {PARAGRAPH}" for part in range(2, self._lengths[number] + 1)]
        return ScriptedResponse("\n\n".join([f"n{number}.1 There is **tea**.", *paragraphs]), delay=self._delay)

    # --- disturbances -------------------------------------------------------------------------------------------------

    async def _disturb(self, http: aiohttp.ClientSession) -> None:
        (kind,) = self._dice.choices(("kill", "cut", "slow service", "slow disk", "slow model"), (3, 4, 2, 2, 1))
        seconds = self._dice.choice((0.05, 0.3, 1.0))
        match kind:
            case "kill":
                await asyncio.sleep(self._dice.choice((0, 0.01, 0.05, 0.2, 1)))
                await self._gateway.kill()
                await self._start(http)
            case "cut":
                await self._service.sever(self._dice)
            case "slow service":
                await self._service.slow(self._dice.choice((0.05, 0.3)))
                await asyncio.sleep(seconds)
                await self._service.slow(0)
            case "slow disk" if self._preload is not None:
                self._preload.set("delay", 500, delay=self._dice.choice((0.02, 0.2)))
                await asyncio.sleep(seconds)
                self._preload.clear()
            case "slow model":
                self._delay = 0.05
                await asyncio.sleep(seconds)
                self._delay = 0
            case _:
                return
        self.report.disturbances[kind] += 1

    async def _settle(self) -> None:
        """Wait until everything is answered and noted, in calm."""
        await self._service.slow(0)
        needed = set(self._said)
        if not self._service.acknowledges:  # what stands before the answer to a last message was received or is lost
            needed = set()
            for number, chat in enumerate(self._service.chats, len(self._lengths) + 1):
                self._lengths[number] = 1
                await self._say(number, chat)
                needed.add(number)
        known, since = -1, time.monotonic()
        while True:
            told = journals(self._home)
            if needed <= received(told) and all(map(is_delivered, told)):
                break
            if (size := sum(map(len, told))) != known:
                known, since = size, time.monotonic()
            if time.monotonic() - since > STUCK_SECONDS:
                raise TimeoutError(f"The journals lack {sorted(needed - received(told))} or deliveries, and grow no longer.")
            await asyncio.sleep(0.1)
        await self._until_answered(0, IMPATIENT_SECONDS)  # a service may show posts a moment after it accepted them

    async def _until_answered(self, owed: int, patience: float) -> None:
        """Wait until at most so many messages have no complete answer, or nothing was posted for `patience` seconds: then
        nobody waits for them any longer."""
        known, since = -1, time.monotonic()
        while True:
            posted = dict(sorted(await self._posted()))
            waiting = {number for number in self._said if posted.get(number, 0) < self._lengths[number]} - self._given_up
            if len(waiting) <= owed:
                return
            if sum(posted.values()) != known:
                known, since = sum(posted.values()), time.monotonic()
            if time.monotonic() - since > patience:
                self._given_up |= waiting
            await asyncio.sleep(0.05)

    async def _posted(self) -> list[tuple[int, int]]:
        return [place for chat in self._service.chats for place in places(await self._service.posts(chat))]

    # --- the end ------------------------------------------------------------------------------------------------------

    async def _check(self, service: StoryService) -> None:
        if await verify(self._home) != 0:
            self.report.findings.append("damaged: `exuvia sessions verify` finds problems")
        story = Told(
            said=self._said,
            lengths=self._lengths,
            posts={chat: places(await service.posts(chat)) for chat in service.chats},
            marked={chat: marked_places(await service.posts(chat), service.mark) for chat in service.chats},
            journals=journals(self._home),
            down=[interval for link in service.links for interval in link.down],
        )
        self.report.findings += check(story, acknowledges=service.acknowledges, repeats=service.repeats)
        self.report.posts = sum([len(await service.posts(chat)) for chat in service.chats])
        self.report.unseen = len(story.unseen())
        self.report.repeated = sum(len(posts) - len(set(posts)) for posts in story.posts.values())


def fenced(text: str) -> list[str]:
    """Return the contents of the code blocks of a Markdown text."""
    return [token.content for token in MarkdownIt("commonmark").parse(text) if token.type == "fence"]


def resident_megabytes(pid: int) -> float:
    """Return the resident memory of a process."""
    (line,) = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024


async def tell(
    service: Callable[[Path], StoryService], folder: Path, *, messages: int, seed: int, calm: bool = False
) -> Report:
    """Run a story in `folder`; return its report without findings.

    Raises:
        AssertionError: Something is wrong; the message is the report.
    """
    (folder / "service").mkdir(parents=True)
    report = await StoryRun(service(folder / "service"), folder, messages=messages, seed=seed, calm=calm).run()
    assert not report.findings, str(report)
    return report


def main(arguments: list[str]) -> int:
    """Run the story of a kind of channel; return 1 if something is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.channels.story")
    parser.add_argument("kind", help="the kind of channel, such as irc")
    parser.add_argument("--messages", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=random.randrange(10**6), help="by default a new one")
    options = parser.parse_args(arguments)
    folder = Path(tempfile.mkdtemp(prefix=f"exuvia-story-{options.kind}-"))
    print(f"seed {options.seed}, {options.messages} messages, in {folder}", flush=True)  # noqa: T201
    service = import_module(f"tests.channels.{options.kind}_story").Story
    try:
        print(asyncio.run(tell(service, folder, messages=options.messages, seed=options.seed)))  # noqa: T201
    except AssertionError as error:
        print(f"{error}\nKept: {folder}")  # noqa: T201
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
