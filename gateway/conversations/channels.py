"""The channels of plugins: one that fails or ends is opened again after a pause, and the others are not affected.

The gateway, not the channel, decides who the sender of a message is and which conversation it belongs to.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b

import structlog

from gateway.config.settings import Settings
from gateway.conversations.routing.switchboard import Switchboard
from gateway.protocol.frames import ATTACHMENTS
from gateway.protocol.slash_commands import parse_command
from gateway.support.errors import Busy, GatewayError, sentence_of
from gateway.support.printable import sanitized_name
from plugins.api.channel import Channel, ChannelInbox, InboundFile, InboundMessage, MessageRejected
from plugins.api.context import PluginContext
from plugins.support.untrusted import call_failure, reraise_cancellation
from plugins.support.workspace import OWNER
from sessions.events.codec import replace_surrogates
from sessions.events.errors import SessionsError
from sessions.events.events import MessageReceived
from sessions.events.messages import Attachment
from sessions.store.protocols import Blobs

log = structlog.get_logger("exuvia.channels")

TEXT_BYTES = 256 * 1024
"""Bytes of the longest message that is accepted."""

UNKNOWN_SENDERS = 100
"""Unknown senders that are logged; further ones are not."""

QUOTED_CHARS = 1000
"""Maximum characters of the message that another one replies to."""

_KEY, _ID = re.compile(r"[A-Za-z0-9._:-]{1,64}"), re.compile(r"[\x21-\x7e]{1,128}")

PAUSES = (1.0, 5.0, 30.0, 60.0)
"""Seconds until a channel is opened again, by its consecutive failures; the last for all later ones."""

STABLE_SECONDS = 60.0
"""Seconds of normal operation after which earlier failures no longer count."""

CLOSE_SECONDS = 5.0
"""Seconds that the channels have to close at shutdown."""


class ChannelRunner:
    """Runs all channels. `context` returns the context of a channel by its name."""

    def __init__(self, kinds: Mapping[str, type[Channel]], context: Callable[[str], PluginContext]) -> None:
        self._kinds = kinds
        self._context = context
        self._open: dict[str, Channel] = {}
        self._problems: dict[str, str] = {}

    def opened(self, name: str) -> Channel | None:
        """Return an open channel; None while it is closed."""
        return self._open.get(name)

    def problems(self) -> list[str]:
        """Return a sentence for each closed channel."""
        return [f"The channel {name!r} is closed and will be opened again: {why}." for name, why in self._problems.items()]

    async def run(self, inbox: Callable[[str], ChannelInbox]) -> None:
        """Keep all channels open until cancelled, then close them.

        Args:
            inbox: Returns the inbox to which a channel hands its messages, by the channel's name.
        """
        tasks = [asyncio.create_task(self._keep_open(name, kind, inbox(name))) for name, kind in self._kinds.items()]
        if not tasks:
            return
        try:
            await asyncio.wait(tasks)
        finally:
            for task in tasks:
                task.cancel()
            _, late = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
            if late:
                log.error("channels_not_closed", channels=list(self._open))

    async def _keep_open(self, name: str, kind: type[Channel], inbox: ChannelInbox) -> None:
        loop, failures = asyncio.get_running_loop(), 0
        while True:
            began = loop.time()
            try:
                await self._listen(name, kind, inbox)
                why = "it stopped listening"
            except BaseException as error:
                reraise_cancellation(error)
                why = str(call_failure(error))
            failures = 0 if loop.time() - began > STABLE_SECONDS else failures
            self._problems[name] = why
            log.error("channel_closed", channel=name, reason=why)
            await asyncio.sleep(PAUSES[min(failures, len(PAUSES) - 1)])
            failures += 1

    async def _listen(self, name: str, kind: type[Channel], inbox: ChannelInbox) -> None:
        async with kind(self._context(name)) as channel:
            self._open[name] = channel
            self._problems.pop(name, None)
            log.info("channel_open", channel=name)
            try:
                await channel.run(inbox)
            finally:
                del self._open[name]


class GatewayChannelInbox:
    """The inbox of one channel."""

    def __init__(self, channel: str, switchboard: Switchboard, settings: Settings, attachments: Blobs) -> None:
        self._channel = channel
        self._switchboard = switchboard
        self._settings = settings
        self._attachments = attachments
        self._reported: set[str] = set()

    async def receive(self, message: InboundMessage) -> bool:
        """Accept a message, see `ChannelInbox.receive`."""
        if message.group and not message.mentioned and not message.choice:
            return False
        person = self._person(message.sender)
        text = _text_of(message)
        typed = parse_command(text)
        self._check_size(message, text, is_command=typed is not None)
        try:
            chat = await self._switchboard.chat(person, self._key(message), create=True)
            assert chat is not None
            event = MessageReceived(
                id=_valid_or_hash(f"{self._channel}:{message.id}", _ID),
                client=replace_surrogates(message.sender)[:128],
                sender=person,
                channel=self._channel,
                chat="group" if message.group else "private",
                text=text,
                attachments=await self._stored(person, message.attachments),
                reply_to=replace_surrogates(message.chat),
                thread=replace_surrogates(message.thread),
            )
            received = await chat.receive(event, typed)
            await chat.until_durable(received)
            if event.attachments:
                await self._attachments.settle(person, event.attachments)
        except (GatewayError, SessionsError) as error:
            raise MessageRejected(sentence_of(error), later=isinstance(error, Busy | SessionsError)) from error
        return not received.duplicate

    def _check_size(self, message: InboundMessage, text: str, *, is_command: bool) -> None:
        """Raise MessageRejected if the message is too long, its files are too many or too large, or it is a command with
        files."""
        limit = self._settings.current.gateway.attachment_bytes
        if len(text.encode()) > TEXT_BYTES:
            raise MessageRejected(f"A message may have at most {TEXT_BYTES // 1024} KiB.")
        if message.attachments and is_command:
            raise MessageRejected("A command takes no attachments.")
        if len(message.attachments) > ATTACHMENTS:
            raise MessageRejected(f"A message may have at most {ATTACHMENTS} attachments.")
        if any(len(file.content) > limit for file in message.attachments):
            raise MessageRejected(f"The limit for an attachment is {limit} bytes.")

    async def _stored(self, person: str, files: Sequence[InboundFile]) -> tuple[Attachment, ...]:
        return tuple(
            [
                await self._attachments.store(file.content, person, claimed=file.media, name=sanitized_name(file.name))
                for file in files
            ]
        )

    def _person(self, sender: str) -> str:
        """Return the person of a sender. Raises MessageRejected for an unknown one."""
        config, name = self._settings.current, f"{self._channel}:{sender}"
        senders = config.plugins.senders
        person = senders.get(name) or senders.get(f"{self._channel}:*", "")
        if person == OWNER or person in config.people:
            return person
        if name not in self._reported and len(self._reported) < UNKNOWN_SENDERS:
            self._reported.add(name)
            reason = "there is no such person" if person else "plugins.senders does not name them"
            log.warning("sender_not_heard", channel=self._channel, sender=sender, reason=reason)
        raise MessageRejected("You are not known to this gateway; its operator can add you to plugins.senders.")

    def _key(self, message: InboundMessage) -> str:
        prefix = f"{self._channel}:"
        if message.thread:  # a hash, because names of chats and threads may contain any separator
            return prefix + _hash(repr((message.chat, message.thread)), b"thread")
        return _valid_or_hash(f"{prefix}{message.chat}", _KEY, prefix=prefix)


def _text_of(message: InboundMessage) -> str:
    """Return the selected choice, or else the text below the beginning of what it replies to. A command stays alone."""
    text = replace_surrogates(message.choice or message.text)
    if not message.reply or message.choice or parse_command(text) is not None:
        return text
    quoted = replace_surrogates(message.reply)
    quoted = quoted[:QUOTED_CHARS] + "…" if len(quoted) > QUOTED_CHARS else quoted
    return "\n".join([*(f"> {line}" for line in quoted.splitlines()), "", text])


def _valid_or_hash(text: str, form: re.Pattern[str], *, prefix: str = "") -> str:
    """Return the text if it matches the pattern, else a hash of it."""
    if form.fullmatch(text):
        return text
    return prefix + _hash(text)


def _hash(text: str, purpose: bytes = b"") -> str:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=12, person=purpose).hexdigest()
