"""Channels: messaging services whose messages become conversations."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType
from typing import ClassVar, Protocol, Self, runtime_checkable

import msgspec

from plugins.api.context import PluginContext
from plugins.api.tool import OutputFile
from plugins.support.errors import PluginError


class InboundFile(msgspec.Struct, frozen=True, kw_only=True):
    """A file of a message: its content, and the name and media type that the sender gave it, if known."""

    content: bytes
    name: str = ""
    media: str = ""


class InboundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message received on a channel.

    Attributes:
        id: Unique on the channel. A second message with the same id is treated as a duplicate, and rejected if its content
            differs. An edited message therefore needs an id of its own, such as the message's id and the time of the edit.
        sender: The channel's name for the author.
        chat: The channel's name for the chat. Replies are sent there. "" if the sender is unknown and must not be answered.
        text: The text.
        group: Other people can read this chat.
        attachments: The files.
        reply: The text that the message quotes or replies to.
        mentioned: False if the message addresses somebody else. In a group it is then ignored.
        thread: The service's name for the thread, if the message belongs to one. A thread is a conversation of its own.
        choice: The `Choice.id` that the sender selected. It counts instead of the text.
        name: The sender's name as they chose it, for people to read.
        edits: The `id` of an earlier message that this one replaces; `text` is the new text. A message that waits for its
            turn is replaced, otherwise the text is received as a correction that says so.
        deletes: The `id` of an earlier message that was deleted; `text` is "". A message that waits for its turn is
            withdrawn.
        reaction: An emoji with which the sender reacted to a post of ours. 👍 and ✅ approve the call of an open question
            once, 👎 and ❌ deny it; others are ignored.
        reacts_to: The receipt that `Channel.deliver` returned for that post.
        at: The time at which it was sent, in seconds since the epoch, or 0. Messages that the service kept while the gateway
            was stopped count against the sender's limit for this time, and not for the one at which they arrive.
    """

    id: str
    sender: str
    chat: str
    text: str
    group: bool = False
    attachments: tuple[InboundFile, ...] = ()
    reply: str = ""
    mentioned: bool = True
    thread: str = ""
    choice: str = ""
    name: str = ""
    edits: str = ""
    deletes: str = ""
    reaction: str = ""
    reacts_to: str = ""
    at: float = 0.0


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that a message offers.

    Attributes:
        id: At most 64 ASCII characters. Return it as `InboundMessage.choice` when the choice is selected.
        label: The text of a button.
    """

    id: str
    label: str


class OutboundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One post for a chat: a reply, or a part of one.

    A reply to a channel with the method `fits` (`SplitsReplies`) comes in parts, one post each: first the pieces of its
    text, then one file at a time without a text. Other channels receive each reply whole, in one message. After a crash the
    same part may be delivered again with the same `id`. Pass the id on to services that deduplicate by it.

    Attributes:
        id: Unique, and the same at each attempt: "SESSION/SEQ", and "SESSION/SEQ/PART" from the second part on.
        chat: The chat.
        text: The text, in Markdown. It also says how to answer without buttons if there are `choices`.
        thread: The thread of the chat; "" outside of threads.
        choices: The answers to offer as buttons, if the service has buttons. Do not remove them when one is selected: the
            first answer counts, and a later one is told so.
        attachments: The files that tools returned, to be sent after the text.
        part: The number of this part, from 1.
        parts: The number of parts of the reply.
        again: An earlier attempt to send this part may have reached the service: it raised `DeliveryUnknown`, or the gateway
            ended meanwhile and the channel has `attempts_noted`.
        reply_to: In a group, the `InboundMessage.id` of the message that is answered.
    """

    id: str
    chat: str
    text: str
    thread: str = ""
    choices: tuple[Choice, ...] = ()
    attachments: tuple[OutputFile, ...] = ()
    part: int = 1
    parts: int = 1
    again: bool = False
    reply_to: str = ""


class ChannelActivity(msgspec.Struct, frozen=True, kw_only=True):
    """A turn that is running for a chat.

    Attributes:
        chat: The chat.
        thread: The thread of the chat; "" outside of threads.
        text: The answer so far, in Markdown; "" before its first word.
    """

    chat: str
    thread: str = ""
    text: str = ""


class MessageRejected(PluginError):
    """An inbound message was rejected; the error message says why.

    Attributes:
        later: Try again later, and do not acknowledge the message to the service before that.
        tell: Send the error message to the sender. Unknown senders are told nothing.
        full: Too many messages wait in the conversation, perhaps for a command or a choice: do not hold back those that
            follow. If the sender is a program that can try again later, ask it to.
    """

    def __init__(self, sentence: str, *, later: bool = False, tell: bool = False, full: bool = False) -> None:
        super().__init__(sentence)
        self.later = later
        self.tell = tell
        self.full = full


class Undeliverable(PluginError):
    """A reply can never be delivered: the chat is gone or the service rejects the text.

    The gateway drops the reply and continues with the next one for the chat.
    """


class TryLater(PluginError):
    """The service asked to wait.

    The gateway retries after `after` seconds, for up to a day. Later replies in the same chat wait.
    """

    after: float = 0.0

    def __init__(self, after: float, sentence: str = "The service asks to wait.") -> None:
        super().__init__(sentence)
        self.after = after


class DeliveryUnknown(PluginError):
    """The service may or may not have accepted the message, such as after a time-out of a request that was sent.

    The gateway tries again with `OutboundMessage.again`.
    """


class ChannelInbox(Protocol):
    """Accepts the messages that a channel receives, and reports of its connection."""

    async def receive(self, message: InboundMessage) -> bool:
        """Store a message. Acknowledge it to the service only after this returns.

        Returns:
            True for a new message; False for a duplicate, or a message of a group that addresses somebody else. Either way
            there is nothing left to do for the channel: a message that counts is durable.

        Raises:
            MessageRejected: The message was not accepted, for example because `plugins.senders` does not list the sender.
        """
        ...

    async def knows(self, sender: str, *, mentioned: bool = True) -> bool:
        """Return True if the sender is a person, whose messages are accepted.

        Ask before doing work for a message, such as downloading its files or joining a chat: a stranger should cost nothing.

        Args:
            sender: The channel's name for the author.
            mentioned: False for a message of a group that addresses somebody else: then return True only if the channel is
                configured to accept such messages, too.
        """
        ...

    def report(self, problem: str = "") -> None:
        """Report that the connection to the service was lost, or is there again. An open channel counts as connected.

        Args:
            problem: What is wrong and how to fix it, as a sentence; "" if the connection is there again.
        """
        ...

    def bounced(self, chat: str, reason: str) -> None:
        """Report that a post which the service had accepted did not reach its chat, for the operator to see.

        Args:
            chat: The chat.
            reason: Why, in the words of the service.
        """
        ...


@runtime_checkable
class Channel(Protocol):
    """A connection to a messaging service.

    A class with an attribute `Settings`, a `msgspec.Struct`, is a kind of channel: it is opened once for each table
    `[channels.NAME]` with its name as `kind`, and `context.settings` is that table without the keys that the gateway reads
    itself (`kind`, `mention`, `pairing`, `people`, `messages_per_minute`). A class without it is opened once, under its own
    name, with the settings of its plugin.

    Optional members are described by `SplitsReplies`, `ShowsActivity`, `ChecksConnection` and `HandlesHooks`.
    A class with `attempts_noted = True` is for a service that does not recognise a message that is sent twice: the gateway
    makes a durable note before each attempt, so that `OutboundMessage.again` is true after a crash during one.
    """

    name: ClassVar[str]
    """The kind of a class with `Settings`; otherwise the channel's name in the log and in `plugins.senders`."""

    def __init__(self, context: PluginContext) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def run(self, inbox: ChannelInbox) -> None:
        """Receive messages until cancelled.

        If this returns or raises, the gateway closes the channel and reopens it after a pause. Reconnect without returning
        where the service resumes connections, and `report` it.
        """
        ...

    async def deliver(self, message: OutboundMessage) -> str:
        """Send a reply. Must finish within a minute.

        Replies for one chat are delivered one at a time, those for different chats concurrently. After an error other than
        `Undeliverable` and `TryLater` the gateway retries with increasing delays: for up to a day, or until a later reply in
        the same chat is delivered.

        Returns:
            The id that the service assigned to the message, or "".

        Raises:
            Undeliverable: The reply can never be delivered.
            TryLater: The service asked to wait.
            DeliveryUnknown: The service may have accepted it.
        """
        ...


@runtime_checkable
class SplitsReplies(Protocol):
    """A channel whose service limits the size of a post."""

    def fits(self, text: str) -> bool:
        """Return True if a Markdown text fits into one post of the service, after its conversion.

        The gateway splits longer texts outside of code blocks; a code block that does not fit alone is closed and opened
        again. Called several times for each part, so it should be quick.
        """
        ...


@runtime_checkable
class ShowsActivity(Protocol):
    """A channel that shows that a turn is running: as typing, or as a draft where the service has drafts that vanish.

    An attribute `activity_seconds` sets the seconds between two calls for a chat; 4 by default.
    """

    async def show_activity(self, activity: ChannelActivity) -> None:
        """Show that a turn is running. Called at its beginning and at intervals until it ends; errors are ignored."""
        ...


@runtime_checkable
class ChecksConnection(Protocol):
    """A channel that can describe its connection."""

    async def check(self) -> str:
        """Return a sentence that says as whom the channel is logged in. Called after `__aenter__`; must not consume
        messages."""
        ...


class HookRequest(Protocol):
    """A request to `POST /hooks/NAME`. Nobody has checked who sends it: do nothing before its signature is verified.

    Attributes:
        headers: The headers by their names in lower case; the values of a repeated one are joined by commas.
    """

    headers: Mapping[str, str]

    async def read(self, most: int) -> bytes:
        """Return the body as it was sent, within the gateway's limits of time and memory.

        A body of more than `most` bytes is refused by the gateway; let its exception pass.
        """
        ...


class HookResponse(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a `HookRequest`.

    Attributes:
        status: The status. Below 400 the sender counts as authenticated.
        body: The body.
        media: Its media type.
        retry_after: Seconds after which the sender should try again, for the header `Retry-After`; 0 for none.
    """

    status: int = 200
    body: bytes = b""
    media: str = "application/json"
    retry_after: float = 0.0


@runtime_checkable
class HandlesHooks(Protocol):
    """A channel whose service sends requests to `POST /hooks/NAME`, with the name of the channel."""

    async def handle(self, request: HookRequest, inbox: ChannelInbox) -> HookResponse:
        """Verify a request, and pass on what it contains. Respond with a status below 300 only after `inbox.receive`
        returned, since the service then forgets the message."""
        ...


GATEWAY_KEYS = frozenset({"agent", "kind", "mention", "pairing", "people", "messages_per_minute"})
"""The keys of `[channels.NAME]` that the gateway reads itself."""
