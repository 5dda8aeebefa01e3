"""A channel for Slack between the fake of its service and an inbox."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from plugins.api.channel import InboundMessage, MessageRejected, OutboundMessage
from plugins.channels.slack.slack_channel import Settings, SlackChannel
from plugins.support.secrets import Secret
from plugins.testing.contexts import make_context
from tests.servers.slack_server import APP_TOKEN, BOT_TOKEN, SlackServer
from tests.waiting import deadline


class RealClock:
    """The time, as Slack's time stamps have it."""

    def now(self) -> datetime:
        return datetime.now(UTC)

    def monotonic(self) -> float:
        return time.monotonic()


class Inbox:
    """An inbox that keeps messages in `arrived`, and refuses as told."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[InboundMessage] = asyncio.Queue()
        self.ids: list[str] = []
        self.refusals: list[MessageRejected] = []
        self.strangers: set[str] = set()
        self.reports: asyncio.Queue[str] = asyncio.Queue()
        self.open = asyncio.Event()
        self.open.set()

    async def receive(self, message: InboundMessage) -> bool:
        await self.open.wait()
        if self.refusals:
            raise self.refusals.pop(0)
        new = message.id not in self.ids
        self.ids.append(message.id)
        self.arrived.put_nowait(message)
        return new

    async def knows(self, sender: str, *, mentioned: bool = True) -> bool:
        return mentioned and sender not in self.strangers

    def bounced(self, chat: str, reason: str) -> None:
        raise AssertionError(f"Slack reports no bounces: {chat}, {reason}")

    def report(self, problem: str = "") -> None:
        self.reports.put_nowait(problem)

    async def next(self) -> InboundMessage:
        async with deadline():
            return await self.arrived.get()


class Stage:
    """A channel that runs."""

    def __init__(self, slack: SlackServer, channel: SlackChannel, inbox: Inbox) -> None:
        self.slack = slack
        self.channel = channel
        self.inbox = inbox

    async def texts(self, count: int) -> list[str]:
        """Return the texts of the next messages."""
        return [(await self.inbox.next()).text for _ in range(count)]

    async def post(self, text: str = "There is tea.", chat: str = "D1", *, key: str = "s/1", **more: Any) -> str:
        """Deliver a reply."""
        return await self.channel.deliver(OutboundMessage(id=key, chat=chat, text=text, **more))


def settings_for(slack: SlackServer, **more: Any) -> Settings:
    """Return the settings of a channel for the fake."""
    settings = Settings(token=Secret(BOT_TOKEN), app_token=Secret(APP_TOKEN), base_url=slack.api)
    return msgspec.structs.replace(settings, **more)


@asynccontextmanager
async def staged(slack: SlackServer, folder: Path, inbox: Inbox | None = None, **more: Any) -> AsyncIterator[Stage]:
    """Run a channel, whose home is `folder`, until the block ends."""
    inbox = inbox or Inbox()
    async with (
        make_context(folder, settings_for(slack, **more)) as context,
        SlackChannel(msgspec.structs.replace(context, clock=RealClock())) as channel,
    ):
        running = asyncio.create_task(channel.run(inbox))
        try:
            async with deadline():
                opened = asyncio.create_task(slack.connected.wait())
                await asyncio.wait([opened, running], return_when=asyncio.FIRST_COMPLETED)
                if running.done():
                    running.result()
            yield Stage(slack, channel, inbox)
        finally:
            running.cancel()
            await asyncio.wait([running])
            if not running.cancelled() and running.exception() is not None:
                raise AssertionError("run failed") from running.exception()
