"""Channels: messaging services whose messages become conversations."""

from __future__ import annotations

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
        chat: The channel's name for the chat. Replies are sent there.
        text: The text.
        group: Other people can read this chat.
        attachments: The files.
        reply: The text that the message quotes or replies to.
        mentioned: False if the message addresses somebody else. In a group it is then ignored.
        thread: The service's name for the thread, if the message belongs to one. A thread is a conversation of its own.
        choice: The `Choice.id` that the sender selected. It counts instead of the text.
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


class Choice(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that a message offers.

    Attributes:
        id: At most 64 ASCII characters. Return it as `InboundMessage.choice` when the choice is selected.
        label: The text of a button.
    """

    id: str
    label: str


class OutboundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A reply for a chat.

    After a crash the same reply may be delivered again with the same `id`. Pass the id on to services that deduplicate by
    it.

    Attributes:
        id: Unique.
        chat: The chat.
        text: The text, in Markdown. It also says how to answer without buttons if there are `choices`.
        thread: The thread of the chat; "" outside of threads.
        choices: The answers to offer as buttons, if the service has buttons. Do not remove them when one is selected: the
            first answer counts, and a later one is told so.
        attachments: The files that tools returned, to be sent after the text.
    """

    id: str
    chat: str
    text: str
    thread: str = ""
    choices: tuple[Choice, ...] = ()
    attachments: tuple[OutputFile, ...] = ()


class MessageRejected(PluginError):
    """An inbound message was rejected; the error message says why. If `later` is true, try again later."""

    def __init__(self, sentence: str, *, later: bool = False) -> None:
        super().__init__(sentence)
        self.later = later


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


class ChannelInbox(Protocol):
    """Accepts the messages that a channel receives."""

    async def receive(self, message: InboundMessage) -> bool:
        """Store a message. Acknowledge it to the service only after this returns.

        Returns:
            True for a new message; False for a duplicate, or a message of a group that addresses somebody else. Either way
            there is nothing left to do for the channel: a message that counts is durable.

        Raises:
            MessageRejected: The message was not accepted, for example because `plugins.senders` does not list the sender.
        """
        ...


@runtime_checkable
class Channel(Protocol):
    """A connection to a messaging service. One instance serves the whole gateway."""

    name: ClassVar[str]
    """The channel's name in the log and in `plugins.senders`."""

    def __init__(self, context: PluginContext) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def run(self, inbox: ChannelInbox) -> None:
        """Receive messages until cancelled.

        If this returns or raises, the gateway closes the channel and reopens it after a pause.
        """
        ...

    async def deliver(self, message: OutboundMessage) -> str:
        """Send a reply. Must finish within a minute.

        Replies for one chat are delivered one at a time, those for different chats concurrently. After an error other than
        the two below the gateway retries with increasing delays: for up to a day, or until a later reply in the same chat is
        delivered.

        Returns:
            The id that the service assigned to the message, or "".

        Raises:
            Undeliverable: The reply can never be delivered.
            TryLater: The service asked to wait.
        """
        ...
