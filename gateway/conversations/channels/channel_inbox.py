"""The messages that a channel receives. The gateway, not the channel, decides who the sender of a message is and which
conversation it belongs to.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Sequence
from functools import partial
from hashlib import blake2b
from typing import Literal, TypeAlias

import msgspec
import structlog

from gateway.config.settings import Settings
from gateway.conversations.approvals.open_questions import OpenQuestions
from gateway.conversations.channels.pairings import PairingsUnusable
from gateway.conversations.channels.reply_delivery import TEXT_CHARS as RECEIPT_CHARS
from gateway.conversations.channels.reply_delivery import ReplyDelivery
from gateway.conversations.channels.senders import Senders, UnknownSender, channel_keys
from gateway.conversations.routing.switchboard import Switchboard
from gateway.protocol.frames import ATTACHMENTS
from gateway.protocol.slash_commands import parse_command
from gateway.support.errors import Busy, GatewayError, QueueFull, sentence_of
from gateway.support.printable import one_line, sanitized_name
from plugins.api.channel import InboundFile, InboundMessage, MessageRejected
from sessions.events.codec import replace_surrogates
from sessions.events.errors import SessionsError
from sessions.events.events import MessageReceived
from sessions.events.handed_messages import client_name
from sessions.events.messages import Attachment
from sessions.store.protocols import Blobs

TEXT_BYTES = 256 * 1024
"""Bytes of the longest message that is accepted."""

QUOTED_CHARS = 1000
"""Maximum characters of the message that another one replies to."""

FULL = "This one was not accepted, and neither are others until there is room; /stop ends the running turn."
"""What a sender is told of a full queue, after the number of messages that wait."""

FULL_SECONDS, MOST_TOLD = 60.0, 1000
"""Seconds until a sender is told again that the queue of a chat is full, and senders for whom this is remembered."""

YES, NO = ("👍", "✅"), ("👎", "❌")
"""The reactions to a question that approve a call once, and those that deny it."""

_SKIN = re.compile("[\ufe0f\U0001f3fb-\U0001f3ff]")
_KEY, _ID = re.compile(r"[A-Za-z0-9._:-]{1,64}"), re.compile(r"[\x21-\x7e]{1,128}")

log = structlog.get_logger("exuvia.channels")

Outcome: TypeAlias = Literal["accepted", "ignored", "rejected", "later", "unknown"]
"""What became of a message: `ignored` are duplicates and those of groups that address somebody else, `later` those that the
channel keeps, `unknown` those of unknown senders."""


class GatewayChannelInbox:
    """The inbox of one channel. `count` is called with the outcome of each message, `report` with the problems of the
    connection, and `bounced` with what did not arrive and why."""

    def __init__(
        self,
        channel: str,
        switchboard: Switchboard,
        settings: Settings,
        attachments: Blobs,
        *,
        senders: Senders,
        count: Callable[[Outcome], None] = lambda _: None,
        questions: OpenQuestions,
        delivery: ReplyDelivery,
        report: Callable[[str], None] = lambda _: None,
        bounced: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._channel = channel
        self._switchboard = switchboard
        self._settings = settings
        self._attachments = attachments
        self._senders = senders
        self._count = count
        self._questions = questions
        self._delivery = delivery
        self._report = report
        self._bounced = bounced
        self._told_full: dict[tuple[str, str], tuple[str, float]] = {}
        """The message about which a sender in a conversation was told that its queue is full, and when."""

    def report(self, problem: str = "") -> None:
        """Note the state of the connection, see `ChannelInbox.report`."""
        self._report(problem)

    def bounced(self, chat: str, reason: str) -> None:
        """Count a post that did not arrive, see `ChannelInbox.bounced`."""
        self._bounced(one_line(f"{chat}: {reason}", RECEIPT_CHARS))

    async def knows(self, sender: str, *, mentioned: bool = True) -> bool:
        """Return True for a person, see `ChannelInbox.knows`."""
        if not mentioned and self._needs_mention:
            return False
        try:
            return await self._senders.find(self._channel, sender) is not None
        except PairingsUnusable:  # `receive` has the message kept
            return True

    async def receive(self, message: InboundMessage) -> bool:
        """Accept a message, see `ChannelInbox.receive`."""
        try:
            new = await self._accept(message)
        except MessageRejected as error:
            unknown = isinstance(error, UnknownSender)
            self._count("unknown" if unknown else "later" if error.later else "rejected")
            raise
        self._count("accepted" if new else "ignored")
        return new

    async def _accept(self, message: InboundMessage) -> bool:
        if message.reaction and await self.knows(message.sender):
            message = await self._as_answer(message)
        unheard = message.group and not message.mentioned and not message.deletes and self._needs_mention
        if not message.choice and (message.reaction or unheard):
            return False
        try:
            if message.deletes:
                return await self._withdraw(message)
            person = await self._senders.person_of(self._channel, message)
        except PairingsUnusable as error:
            raise MessageRejected(sentence_of(error), later=True) from error
        text = _text_of(message)
        typed = parse_command(text)
        self._check_size(message, text, is_command=typed is not None)
        try:
            chat = await self._switchboard.chat_here(
                person,
                self._key(message),
                channel=self._channel,
                chat_id=replace_surrogates(message.chat),
                sender=replace_surrogates(message.sender)[:128],
            )
            event = MessageReceived(
                id=self._id(message.id),
                client=client_name(replace_surrogates(message.sender)),
                sender=person,
                channel=self._channel,
                chat="group" if message.group else "private",
                text=text,
                attachments=await self._stored(person, message.attachments),
                reply_to=replace_surrogates(message.chat),
                thread=replace_surrogates(message.thread),
                edits=self._id(message.edits) if message.edits else "",
            )
            received = await chat.receive(event, typed)
            await chat.until_durable(received)
            if event.attachments:
                await self._attachments.settle(person, event.attachments)
        except QueueFull as error:  # what answers the question for which they wait comes after this message
            self._senders.not_received(self._channel, message.sender)
            sentence = f"{sentence_of(error)} {FULL}" if typed is None else sentence_of(error)
            raise MessageRejected(sentence, tell=self._tells_full(message), full=True) from error
        except (GatewayError, SessionsError) as error:
            if later := isinstance(error, Busy | SessionsError):
                self._senders.not_received(self._channel, message.sender)
            raise MessageRejected(sentence_of(error), later=later, tell=not later) from error
        if received.duplicate:
            self._senders.not_received(self._channel, message.sender)
        elif typed is None:
            self._told_full.pop((self._key(message), message.sender), None)
        return not received.duplicate

    def _tells_full(self, message: InboundMessage) -> bool:
        """Return True if the sender is to be told that the queue is full: once, until a message of theirs is accepted or
        some time has passed. Many that come at once would be more notices than a service takes."""
        sender, now = (self._key(message), message.sender), asyncio.get_running_loop().time()
        id_, at = self._told_full.get(sender, (message.id, now))
        if id_ != message.id and now - at < FULL_SECONDS:
            return False
        self._told_full.pop(sender, None)
        self._told_full[sender] = message.id, now
        if len(self._told_full) > MOST_TOLD:
            del self._told_full[next(iter(self._told_full))]
        return True

    @property
    def _needs_mention(self) -> bool:
        return channel_keys(self._settings.current, self._channel).mention

    async def _as_answer(self, message: InboundMessage) -> InboundMessage:
        """Return a reaction to a post with an open question as the answer that it means."""
        emoji, receipt = _SKIN.sub("", message.reaction), message.reacts_to[:RECEIPT_CHARS]
        if not receipt or emoji not in (*YES, *NO):
            return message
        chat = replace_surrogates(message.chat)
        if (asked := await self._questions.posted(self._channel, chat, receipt)) is None:
            reaction = msgspec.structs.replace(message, text="", reply="", attachments=())
            self._delivery.keep_reaction(self._channel, chat, receipt, partial(self._receive_early, reaction))
            return message
        answer = f"/approve {asked.approval} once" if emoji in YES else f"/deny {asked.approval}"
        return msgspec.structs.replace(message, choice=answer, text="", reply="", attachments=())

    async def _receive_early(self, reaction: InboundMessage) -> None:
        """Receive a reaction that came before its post was known."""
        try:
            await self.receive(reaction)
        except MessageRejected as error:
            log.warning("reaction_not_accepted", channel=self._channel, reason=sentence_of(error))

    async def _withdraw(self, message: InboundMessage) -> bool:
        """Withdraw a deleted message if it still waits for its turn."""
        sender = await self._senders.find(self._channel, message.sender)
        try:
            chat = sender and await self._switchboard.chat(sender.person, self._key(message), create=False)
            return bool(chat and await chat.withdraw(self._id(message.deletes), replace_surrogates(message.sender)[:128]))
        except (GatewayError, SessionsError) as error:
            raise MessageRejected(sentence_of(error), later=isinstance(error, Busy | SessionsError)) from error

    def _id(self, id_: str) -> str:
        return _valid_or_hash(f"{self._channel}:{id_}", _ID)

    def _check_size(self, message: InboundMessage, text: str, *, is_command: bool) -> None:
        """Raise MessageRejected if the message is too long, its files are too many or too large, or it is a command with
        files."""
        limit = self._settings.current.gateway.attachment_bytes
        if len(text.encode()) > TEXT_BYTES:
            raise MessageRejected(f"A message may have at most {TEXT_BYTES // 1024} KiB.", tell=True)
        if message.attachments and is_command:
            raise MessageRejected("A command takes no attachments.", tell=True)
        if len(message.attachments) > ATTACHMENTS:
            raise MessageRejected(f"A message may have at most {ATTACHMENTS} attachments.", tell=True)
        if any(len(file.content) > limit for file in message.attachments):
            raise MessageRejected(f"The limit for an attachment is {limit} bytes.", tell=True)

    async def _stored(self, person: str, files: Sequence[InboundFile]) -> tuple[Attachment, ...]:
        return tuple(
            [
                await self._attachments.store(file.content, person, claimed=file.media, name=sanitized_name(file.name))
                for file in files
            ]
        )

    def _key(self, message: InboundMessage) -> str:
        return conversation_key(self._channel, message.chat, message.thread)


def conversation_key(channel: str, chat: str, thread: str = "") -> str:
    """Return the name of the conversation with a chat of a channel."""
    prefix = f"{channel}:"
    if thread:  # a hash, because names of chats and threads may contain any separator
        return prefix + _hash(repr((chat, thread)), b"thread")
    return _valid_or_hash(f"{prefix}{chat}", _KEY, prefix=prefix)


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
