"""Answers that are still to be delivered on the channels of plugins: pure functions over the events of one session."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sessions.events.events import MessageReceived, TurnEnded


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """The destination of an answer: a channel, and the channel's own name of a chat."""

    channel: str
    chat: str


class PendingDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """An answer to be delivered: the seq of the event that holds it, and the destination."""

    of: int
    to: Address


def reply_address(messages: Iterable[MessageReceived]) -> Address | None:
    """Return the destination of the answer to these messages: the sender of the last one that came over a channel."""
    outside = [message for message in messages if message.reply_to]
    return Address(channel=outside[-1].channel, chat=outside[-1].reply_to) if outside else None


def due_deliveries(ended: TurnEnded, seq: int, said: int, to: Address | None) -> tuple[PendingDelivery, ...]:
    """Return the deliveries due after a turn.

    Args:
        ended: The end of the turn; a cancelled or silent turn has no deliveries, a failed one delivers its error.
        seq: The seq of that event.
        said: The seq of the turn's last text, 0 for none.
        to: The destination, if any.
    """
    if to is None:
        return ()
    if ended.outcome == "replied" and said:
        return (PendingDelivery(of=said, to=to),)
    return (PendingDelivery(of=seq, to=to),) if ended.error is not None else ()
