"""What brings messages from elsewhere and answers back there: the contract of channels."""

from __future__ import annotations

from types import TracebackType
from typing import ClassVar, Protocol, Self, runtime_checkable

import msgspec

from plugins.api.context import PluginContext
from plugins.support.errors import PluginError


class InboundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """A message that came over a channel. `id` is unique on the channel: the same one again is the same message. `sender`
    and `chat` are the channel's own names for who wrote it and where; answers go to that chat. Others read along in a
    `group`."""

    id: str
    sender: str
    chat: str
    text: str
    group: bool = False


class OutboundMessage(msgspec.Struct, frozen=True, kw_only=True):
    """An answer for a chat. After a crash it may come a second time, with the same `id`: a service that takes ids is given
    this one, so that it shows the answer once."""

    id: str
    chat: str
    text: str


class MessageRejected(PluginError):
    """A message that arrived was not taken; the sentence says why. Where it is worth a try `later`, nothing is lost."""

    def __init__(self, sentence: str, *, later: bool = False) -> None:
        super().__init__(sentence)
        self.later = later


class Undeliverable(PluginError):
    """An answer will never be delivered, whenever it is tried: its chat is gone, or the service refuses its text for good.
    The sentence says why. It is given up at once, and the next answer of its chat goes on."""


class TryLater(PluginError):
    """The service wants no answer now. This one is tried again in `after` seconds, for a day at most, and the later answers
    of its chat wait for it. The sentence says why."""

    after: float = 0.0

    def __init__(self, after: float, sentence: str = "The service asks to wait.") -> None:
        super().__init__(sentence)
        self.after = after


class ChannelInbox(Protocol):
    """Where a channel hands in what arrives."""

    async def receive(self, arrival: InboundMessage) -> bool:
        """Take a message. It is on the disk when this returns, True for a new one and False for a repeated one: only then is
        it acknowledged to whoever sent it. Raises NotTaken, also for a sender that `plugins.senders` does not name."""
        ...


@runtime_checkable
class Channel(Protocol):
    """A way in and out. One instance serves the whole gateway."""

    name: ClassVar[str]
    """How it stands in the log and in `plugins.senders`."""

    def __init__(self, context: PluginContext) -> None: ...

    async def __aenter__(self) -> Self: ...

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    async def run(self, desk: ChannelInbox) -> None:
        """Listen, for as long as the gateway serves. Where it returns or raises, the channel is closed and opened anew after
        a while. It is cancelled at the end."""
        ...

    async def deliver(self, delivery: OutboundMessage) -> str:
        """Send an answer; returns what the service calls it, or "". It must be done within a minute. Answers of one chat
        come one after the other, those of several at once. Raises Undeliverable for an answer that is to be given up, and
        TryLater where the service says how long to wait. After anything else it is tried again with growing pauses: for a
        day at most, and no longer than until the channel has taken a later answer of the same chat."""
        ...
