"""Channels: messaging services whose messages become conversations."""

from __future__ import annotations

from types import TracebackType
from typing import ClassVar, Protocol, Self, runtime_checkable

import msgspec

from plugins.api.context import PluginContext
from plugins.support.errors import PluginError


class InboundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message received on a channel.

    Attributes:
        id: Unique on the channel. A second message with the same id is treated as a duplicate.
        sender: The channel's name for the author.
        chat: The channel's name for the chat. Replies are sent there.
        text: The text.
        group: Other people can read this chat.
    """

    id: str
    sender: str
    chat: str
    text: str
    group: bool = False


class OutboundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A reply for a chat.

    After a crash the same reply may be delivered again with the same `id`. Pass the id on to services that deduplicate by
    it.
    """

    id: str
    chat: str
    text: str


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
            True for a new message, False for a duplicate. Either way the message is durable.

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
