"""The channel for Slack: direct messages, channels and threads of one workspace."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, ClassVar, Self

import msgspec
import structlog

from plugins.api.channel import (
    Channel,
    ChannelActivity,
    ChannelInbox,
    InboundFile,
    InboundMessage,
    MessageRejected,
    OutboundMessage,
)
from plugins.api.context import PluginContext
from plugins.api.hookspecs import hookimpl
from plugins.channels.slack import slack_blocks
from plugins.channels.slack.slack_api import CREDENTIALS, SlackApi, SlackError
from plugins.channels.slack.slack_catch_up import CatchUp, Progress
from plugins.channels.slack.slack_delivery import SlackDelivery
from plugins.channels.slack.slack_events import (
    Identity,
    SlackMessage,
    mentioned_users,
    message_id,
    read_command,
    read_event,
    read_message,
    read_press,
    readable,
)
from plugins.channels.slack.socket_mode import SocketMode, connection_url
from plugins.support.errors import PluginError, SettingsRefused
from plugins.support.secrets import Secret
from plugins.support.state_file import StateFile

MOST_RECENT = 5_000
"""Messages that are recognised when they arrive again, without asking the gateway."""

MOST_NAMES = 1_000
FILE_BYTES = 50 * 1024 * 1024
"""Bytes of the largest file that is read from Slack; the gateway's own limit is lower by default."""

DOWNLOADS = 2
LATER_PAUSES = (0.5, 1.0, 2.0, 5.0, 10.0)
"""Seconds until a message is handed over again that the gateway could not take."""

CATCH_UP_SECONDS = 30.0
"""Seconds that a message waits until those before it were read from the history."""

URL_SECONDS = 20.0
"""Seconds for which the address of a connection is used."""

STATUS = "is thinking…"

log = structlog.get_logger("exuvia.channels")


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The settings of a channel for Slack.

    Attributes:
        token: The bot token of the Slack app (xoxb-…).
        app_token: The app-level token with the scope connections:write (xapp-…).
        threads: In channels, answer in a thread of the message.
        base_url: The address of the Web API.
    """

    token: Secret
    app_token: Secret
    threads: bool = True
    base_url: str = "https://slack.com/api"


class SlackChannel:
    """A workspace, as the bot of a Slack app that uses Socket Mode."""

    name: ClassVar[str] = "slack"
    Settings: ClassVar[type[msgspec.Struct]] = Settings
    attempts_noted: ClassVar[bool] = True
    activity_seconds: ClassVar[float] = 30.0

    def __init__(self, context: PluginContext) -> None:
        settings: Settings = context.settings
        self._settings = settings
        self._context = context
        self._api = SlackApi(context.transport, settings.base_url, settings.token)
        self._app_api = SlackApi(context.transport, settings.base_url, settings.app_token)
        self._progress = Progress(StateFile(context.folder / "slack.json"))
        self._recent: dict[str, None] = {}
        self._names: dict[str, str] = {}
        self._last: dict[str, asyncio.Event] = {}
        self._downloads = asyncio.Semaphore(DOWNLOADS)
        self._shows_status = True
        self._refused = False
        self._inbox: ChannelInbox
        self._report: Callable[[str], None] = _unheard
        self._catching_up: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        _check_tokens(self._settings)
        try:
            answer = await self._api.call("auth.test")
            self._url = await connection_url(self._app_api)
        except SlackError as error:
            if error.code in CREDENTIALS:
                raise SettingsRefused(str(error)) from error
            raise
        self._url_until = asyncio.get_running_loop().time() + URL_SECONDS
        self._me = Identity(
            user=str(answer.get("user_id", "")),
            bot=str(answer.get("bot_id", "")),
            name=str(answer.get("user", "")),
            team=str(answer.get("team", "")),
        )
        await self._progress.load(self._context.clock.now())
        now = self._context.clock.now
        self._delivery = SlackDelivery(self._api, self._progress, self._me, now)
        self._catch_up = CatchUp(self._api, self._progress, self._me.user, now, self._on_missed)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress.changed:
            await self._progress.save()

    async def check(self) -> str:
        """Return as whom the channel is logged in."""
        return f"Logged in as @{self._me.name} in the Slack workspace {self._me.team!r}; Socket Mode can be used."

    def fits(self, text: str) -> bool:
        """Return True if Slack takes a Markdown text as one message."""
        return slack_blocks.fits(text)

    async def deliver(self, message: OutboundMessage) -> str:
        """Send a reply, see `Channel.deliver`. A token that Slack no longer accepts is reported until it does."""
        try:
            receipt = await self._delivery.deliver(message)
        except SlackError as error:
            if error.code in CREDENTIALS:
                self._report(str(error))
                self._refused = True
            raise
        if self._refused:
            self._report("")
            self._refused = False
        return receipt

    async def show_activity(self, activity: ChannelActivity) -> None:
        """Show a status below a thread. Slack removes it with the answer, or after two minutes; it has none elsewhere."""
        if activity.thread and self._shows_status:
            try:
                await self._api.call(
                    "assistant.threads.setStatus", channel_id=activity.chat, thread_ts=activity.thread, status=STATUS
                )
            except SlackError:
                self._shows_status = False
                raise

    # --- receiving ----------------------------------------------------------------------------------------------------

    async def run(self, inbox: ChannelInbox) -> None:
        """Receive messages until cancelled."""
        self._inbox, self._report = inbox, inbox.report
        url = self._url if asyncio.get_running_loop().time() < self._url_until else ""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._progress.keep_saved())
            connected = partial(self._connected, tasks)
            transport = self._context.transport
            await SocketMode(self._app_api, transport, self._on_envelope, connected, inbox.report, url=url).run()

    def _connected(self, tasks: asyncio.TaskGroup, missed: bool) -> None:
        """Catch up what was missed before a connection."""
        if not missed:
            return
        if self._catching_up is not None:
            self._catching_up.cancel()
        self._catching_up = tasks.create_task(self._catch_up.run(self._progress.open_gap(), self._in_order))

    async def _on_envelope(self, envelope: Mapping[str, Any]) -> None:
        """Handle an envelope; it is acknowledged when this returns."""
        payload = envelope.get("payload") or {}
        event: Mapping[str, Any] = payload.get("event") or {}
        match envelope.get("type"):
            case "events_api":
                message = read_event(event, self._me, threads=self._settings.threads)
            case "interactive":
                message = read_press(payload, self._me)
            case "slash_commands":
                message = read_command(payload)
            case _:
                return
        channel = message.channel if message else str(event.get("channel") or "")
        ts = str(event.get("ts", "")) if event.get("type") == "message" else ""
        if channel:
            kind = str(event.get("channel_type") or "channel") if ts else ""
            await self._in_order(channel, partial(self._receive_live, message, channel, kind, ts))

    async def _receive_live(self, message: SlackMessage | None, channel: str, kind: str, ts: str) -> None:
        """Handle what an envelope says, after what was missed before it in the conversation."""
        if kind:
            try:
                async with asyncio.timeout(CATCH_UP_SECONDS):
                    await self._catch_up.conversation(channel, kind)
            except TimeoutError:
                log.warning("slack_messages_out_of_order", chat=channel)
        await self._receive(message, channel, ts)

    async def _on_missed(self, channel: str, kind: str, raw: Mapping[str, Any], known: bool) -> None:
        """Handle a message of the history. `known`: it was probably received before.

        An edited one is always an edit: whether its first version was received, the gateway knows.
        """
        place = {"channel": channel, "channel_type": kind}
        message = read_message(raw, place, self._me, threads=self._settings.threads, edited=True)
        await self._receive(message, channel, str(raw["ts"]), silent=known)

    async def _in_order(self, channel: str, work: Callable[[], Awaitable[None]]) -> None:
        """Do the work on one conversation in the order in which it began."""
        previous, done = self._last.get(channel), asyncio.Event()
        self._last[channel] = done
        try:
            if previous is not None:
                await previous.wait()
            await work()
        finally:
            done.set()
            if self._last.get(channel) is done:
                del self._last[channel]

    async def _receive(self, message: SlackMessage | None, channel: str, ts: str, *, silent: bool = False) -> None:
        """Hand a message to the gateway, and note the position once it is durable there.

        Args:
            message: The message; None if there is nothing for the gateway in it.
            channel: The conversation.
            ts: Its time stamp.
            silent: Tell the sender nothing.
        """
        if message is not None and message.id not in self._recent:
            if await self._hand_over(await self._inbound(message), silent=silent) and message.thread and message.ts:
                self._progress.took_part(channel, message.thread, message.ts)
            self._recent |= dict.fromkeys((message.id, message.edits or message.id))
            while len(self._recent) > MOST_RECENT:
                del self._recent[next(iter(self._recent))]
        if ts:
            self._progress.handled(channel, ts)

    async def _hand_over(self, message: InboundMessage, *, silent: bool) -> bool:
        """Pass a message to the inbox until it is accepted or rejected for good. Return True if it is new."""
        attempt = 0
        while True:
            try:
                return await self._inbox.receive(message)
            except MessageRejected as error:
                if not error.later:
                    if error.tell and not silent:
                        await self._tell(message, str(error))
                    return False
            await asyncio.sleep(LATER_PAUSES[min(attempt, len(LATER_PAUSES) - 1)])
            attempt += 1

    async def _tell(self, message: InboundMessage, sentence: str) -> None:
        """Answer a message that was rejected."""
        text = slack_blocks.escaped(sentence)
        try:
            await self._api.call("chat.postMessage", channel=message.chat, thread_ts=message.thread or None, text=text)
        except PluginError as error:
            log.warning("slack_sender_not_told", chat=message.chat, reason=str(error))

    # --- one message --------------------------------------------------------------------------------------------------

    async def _inbound(self, message: SlackMessage) -> InboundMessage:
        """Return a message as the gateway takes it. Little is looked up for a stranger, or for what addresses others."""
        known = not message.deletes and await self._inbox.knows(message.user, mentioned=message.mentioned)
        others = mentioned_users(message.text)[:20] if known else []
        names = {user: await self._name(user) for user in others if user != self._me.user}
        files, notes = await self._read_files(message.files) if known else ([], [_named(file) for file in message.files])
        thread, reacts_to = message.thread, ""
        if message.reacts_to:
            reacts_to = message_id(message.channel, message.reacts_to)
            thread = await self._thread_of(message.channel, message.reacts_to)
        return InboundMessage(
            id=message.id,
            sender=message.user,
            chat=message.channel,
            text="\n".join([text for text in (readable(message.text, self._me, names), *notes) if text]),
            group=message.group,
            attachments=tuple(files),
            mentioned=message.mentioned,
            thread=thread,
            choice=message.choice,
            name=await self._name(message.user) if known or not message.group else "",
            edits=message.edits,
            deletes=message.deletes,
            reaction=message.reaction,
            reacts_to=reacts_to,
            at=message.at,
        )

    async def _name(self, user: str) -> str:
        """Return the name of a user; "" if Slack does not say it."""
        if user not in self._names:
            try:
                found = (await self._api.call("users.info", user=user)).get("user") or {}
            except PluginError:
                found = {}
            profile = found.get("profile") or {}
            self._names[user] = str(profile.get("display_name") or profile.get("real_name") or found.get("name") or "")
            if len(self._names) > MOST_NAMES:
                del self._names[next(iter(self._names))]
        return self._names[user]

    async def _thread_of(self, channel: str, ts: str) -> str:
        """Return the thread of a message of ours; "" if it is in none."""
        try:
            found = (await self._api.call("conversations.replies", channel=channel, ts=ts, limit=1)).get("messages") or [{}]
        except PluginError:
            return ""
        return str(found[0].get("thread_ts") or "")

    async def _read_files(self, files: Sequence[Mapping[str, Any]]) -> tuple[list[InboundFile], list[str]]:
        """Return the files of a message, and a line for each that cannot be read."""
        read, notes = list[InboundFile](), list[str]()
        for file in files:
            try:
                async with self._downloads:
                    content = await self._read_file(file)
            except PluginError as error:
                notes.append(f"{_named(file)[:-1]} could not be read: {error}]")
            else:
                read.append(
                    InboundFile(content=content, name=str(file.get("name", "")), media=str(file.get("mimetype", "")))
                )
        return read, notes

    async def _read_file(self, file: Mapping[str, Any]) -> bytes:
        if file.get("file_access") == "check_file_info":  # of another workspace, by Slack Connect
            file = (await self._api.call("files.info", file=file.get("id"))).get("file") or {}
        if file.get("mode") in ("tombstone", "hidden_by_limit"):
            raise PluginError("Slack does not have it any more.")
        if int(file.get("size") or 0) > FILE_BYTES:
            raise PluginError(f"it has more than {FILE_BYTES // 1024**2} MB.")
        content = await self._api.download(str(file.get("url_private_download") or file.get("url_private") or ""))
        if content[:64].lstrip().lower().startswith(b"<!doctype html") and file.get("mimetype") != "text/html":
            raise SlackError("file", "missing_scope", "files:read")
        return content


def _unheard(_: str) -> None:
    """Report nothing, as long as there is no inbox."""


def _named(file: Mapping[str, Any]) -> str:
    return f"[file: {file.get('name') or file.get('title') or file.get('id', '')}]"


def _check_tokens(settings: Settings) -> None:
    """Raise SettingsRefused if the tokens are of the wrong kind, before Slack sees them."""
    for key, secret, start, place in (
        ("token", settings.token, "xoxb-", "OAuth & Permissions"),
        ("app_token", settings.app_token, "xapp-", "Basic Information, “App-Level Tokens”"),
    ):
        if not secret.reveal().startswith(start):
            raise SettingsRefused(f"`{key}` does not begin with {start}: copy it from the Slack app's settings, {place}.")


@hookimpl
def register_channels() -> Sequence[type[Channel]]:
    """Return the channel."""
    return (SlackChannel,)
