"""The channel `discord`."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from types import TracebackType
from typing import ClassVar, Self

import msgspec

from plugins.api.channel import Channel, ChannelActivity, ChannelInbox, OutboundMessage
from plugins.api.context import PluginContext
from plugins.api.hookspecs import hookimpl
from plugins.channels.discord.discord_api import DiscordApi
from plugins.channels.discord.discord_events import User
from plugins.channels.discord.discord_gateway import INTENTS, MESSAGE_CONTENT, PORTAL, DiscordGateway
from plugins.channels.discord.discord_markdown import MAX_LENGTH, length, render
from plugins.channels.discord.discord_posts import Posts
from plugins.channels.discord.discord_progress import Progress
from plugins.channels.discord.discord_reception import Reception
from plugins.support.errors import SettingsRefused
from plugins.support.secrets import Secret
from plugins.support.state_file import StateFile

CONTENT_FLAGS = (1 << 18) | (1 << 19)
"""The flags of an application that may read messages (verified, or in fewer than 100 servers)."""


class DiscordSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The settings of a table `[channels.NAME]` with `kind = "discord"`.

    Attributes:
        token: The bot's token.
        message_content: Ask for the texts of all messages in servers. Without it Discord shows those that mention the bot.
        base_url: The REST API.
    """

    token: Secret
    message_content: bool = True
    base_url: str = "https://discord.com/api/v10"


class Discord:
    """A bot on Discord."""

    name: ClassVar[str] = "discord"
    Settings: ClassVar[type[msgspec.Struct]] = DiscordSettings
    attempts_noted: ClassVar[bool] = True  # Discord remembers a nonce for minutes, and a gateway may be down for longer
    activity_seconds: ClassVar[float] = 8.0

    def __init__(self, context: PluginContext) -> None:
        settings: DiscordSettings = context.settings
        self._wants_content = settings.message_content
        self._api = DiscordApi(settings.base_url, settings.token.reveal())
        self._progress = Progress(StateFile(context.folder / "state.json"), context.clock)
        self._posts = Posts(self._api, self._progress)
        self._me = User(id="")
        self._open = AsyncExitStack()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as stack:
            await stack.enter_async_context(self._api)
            await self._progress.load()
            self._me = msgspec.convert(await self._api.get("/users/@me"), User)
            application = await self._api.get("/applications/@me")
            if self._wants_content and not int(application.get("flags", 0)) & CONTENT_FLAGS:
                raise SettingsRefused(
                    f"The bot may not read messages in servers: {PORTAL}, switch on Message Content Intent under Privileged"
                    " Gateway Intents and save, or set message_content = false"
                )
            self._open = stack.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._open.aclose()

    async def check(self) -> str:
        """Return as which bot the channel is logged in."""
        return f"Logged in to Discord as {self._me.shown} (id {self._me.id})."

    async def run(self, inbox: ChannelInbox) -> None:
        """Receive messages until cancelled."""
        try:
            async with asyncio.TaskGroup() as tasks:
                reception = Reception(self._api, self._progress, inbox, tasks, self._me.id)
                gateway = DiscordGateway(
                    self._api,
                    self._progress,
                    intents=INTENTS | (MESSAGE_CONTENT if self._wants_content else 0),
                    on_start=reception.on_start,
                    on_event=reception.on_event,
                    report=inbox.report,
                )
                tasks.create_task(self._progress.keep_saving())
                await gateway.run()
        except* Exception as failed:
            raise failed.exceptions[0] from None  # the sentence is in it, not in the group
        finally:
            await self._progress.save()

    def fits(self, text: str) -> bool:
        """Return True if a text fits into one post."""
        return len(text) <= 2 * MAX_LENGTH and length(render(text)) <= MAX_LENGTH

    async def show_activity(self, activity: ChannelActivity) -> None:
        """Show the bot as typing, which Discord does for ten seconds."""
        await self._api.post(f"/channels/{activity.thread or activity.chat}/typing", {})

    async def deliver(self, message: OutboundMessage) -> str:
        """Post a part of a reply."""
        return await self._posts.deliver(message, self._me.id)


@hookimpl
def register_channels() -> list[type[Channel]]:
    """Register the channel."""
    return [Discord]
