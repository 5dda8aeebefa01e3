"""Which answers are still to be delivered on the channels of plugins: pure, over the events of one session."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from sessions.events.events import MessageReceived, TurnEnded


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where an answer goes: a channel, and a chat there by its own name."""

    channel: str
    chat: str


class PendingDelivery(msgspec.Struct, frozen=True, kw_only=True):
    """An answer that is to be delivered: the seq of the event that holds it, and where to."""

    of: int
    to: Address


def address_of(messages: Iterable[MessageReceived]) -> Address | None:
    """Where the answer to these messages goes: where the last that came over a channel is from."""
    outside = [message for message in messages if message.reply_to]
    return Address(channel=outside[-1].channel, chat=outside[-1].reply_to) if outside else None


def owed_by(ended: TurnEnded, seq: int, said: int, to: Address | None) -> tuple[PendingDelivery, ...]:
    """What a turn that `ended` at `seq` owes: its last text, at the seq `said` (0 for none), or why it failed. A turn that
    was stopped, or had nothing to say, owes nothing."""
    if to is None:
        return ()
    if ended.outcome == "replied" and said:
        return (PendingDelivery(of=said, to=to),)
    return (PendingDelivery(of=seq, to=to),) if ended.error is not None else ()
