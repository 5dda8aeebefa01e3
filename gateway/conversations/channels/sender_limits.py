"""The limit of messages that each sender of a channel may send."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

import msgspec

from gateway.support.session_status import count_of
from plugins.api.channel import MessageRejected

MOST_SENDERS = 1000
"""Senders that are remembered; those who wrote longest ago are forgotten first."""

WINDOW_SECONDS = 60.0

LONGEST_KEPT = 86_400.0
"""Seconds that a message may be old, at most, to count for the time at which it was sent. Older ones count for this one."""


class _Bucket(msgspec.Struct):
    """The messages that a sender may still send, as of a time; `told` is True once they know that they sent too many."""

    left: float
    at: float
    told: bool = False


class SenderLimits:
    """A token bucket for each sender: it holds the messages of a minute, and fills as fast as they may be sent.

    `monotonic` returns the seconds of a clock.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._buckets: OrderedDict[tuple[str, str], _Bucket] = OrderedDict()

    def take(self, channel: str, sender: str, per_minute: int, *, age: float = 0.0) -> None:
        """Count a message of a sender, for the time at which it was sent: those that a service kept while the gateway was
        stopped come all at once.

        Args:
            channel: The channel.
            sender: The channel's name for the sender.
            per_minute: The limit.
            age: Seconds since the message was sent.

        Raises:
            MessageRejected: They have sent more than `per_minute`. They are told once, until they are heard again.
        """
        now, key = self._monotonic() - min(max(age, 0.0), LONGEST_KEPT), (channel, sender)
        bucket = self._buckets.setdefault(key, _Bucket(per_minute, now))
        now = max(now, bucket.at)
        self._buckets.move_to_end(key)
        if len(self._buckets) > MOST_SENDERS:
            self._buckets.popitem(last=False)
        bucket.left = min(bucket.left + (now - bucket.at) * per_minute / WINDOW_SECONDS, per_minute)
        bucket.at = now
        if bucket.left >= 1:
            bucket.left -= 1
            bucket.told = False
            return
        told, bucket.told = bucket.told, True
        limit = count_of(per_minute, "message")
        raise MessageRejected(
            f"You may send {limit} a minute. This one was not accepted, and neither are others until you pause; then send"
            " again what is missing.",
            tell=not told,
        )

    def give_back(self, channel: str, sender: str) -> None:
        """Do not count the last message of a sender."""
        if (bucket := self._buckets.get((channel, sender))) is not None:
            bucket.left += 1
