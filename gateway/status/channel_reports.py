"""What the gateway reports about channels to its clients."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gateway.conversations.channels.channel_runner import ChannelRunner, Connection
from gateway.conversations.channels.reply_delivery import ReplyDelivery, WaitingReplies
from gateway.metrics.counters import Counters
from gateway.support.errors import SENTENCE_LIMIT
from gateway.support.printable import one_line
from sessions.store.log_writer import stamp


class ChannelReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a channel. Counts begin with the process.

    Attributes:
        name: Its name.
        kind: Its kind.
        connection: Its connection.
        since: The time of the last change of that (RFC 3339, UTC).
        problem: Why it is not connected.
        accepted: Messages that were accepted.
        rejected: Messages that were rejected, and messages of unknown senders.
        delivered: Posts that were delivered.
        abandoned: Posts that never will be.
        abandoned_at: The time of the last of them (RFC 3339, UTC).
        abandoned_because: The reason for it.
        waiting: Replies that wait.
        waiting_because: Why one of them was not delivered.
    """

    name: str
    kind: str
    connection: Connection
    since: str
    problem: str = ""
    accepted: int = 0
    rejected: int = 0
    delivered: int = 0
    abandoned: int = 0
    abandoned_at: str = ""
    abandoned_because: str = ""
    waiting: int = 0
    waiting_because: str = ""


def channel_reports(runner: ChannelRunner, delivery: ReplyDelivery, counters: Counters) -> Sequence[ChannelReport]:
    """Return the state of each channel."""
    messages, replies, waiting = counters.channel_messages.counts, counters.channel_replies.counts, delivery.waiting()
    reports = []
    for name, state in runner.states().items():
        at, because = counters.abandoned.get(name, ("", ""))
        here = waiting.get(name, WaitingReplies())
        reports.append(
            ChannelReport(
                name=name,
                kind=runner.kind(name),
                connection=state.connection,
                since=stamp(state.since),
                problem=one_line(state.problem, SENTENCE_LIMIT),
                accepted=messages.get((name, "accepted"), 0),
                rejected=messages.get((name, "rejected"), 0) + messages.get((name, "unknown"), 0),
                delivered=replies.get((name, "delivered"), 0),
                abandoned=replies.get((name, "abandoned"), 0),
                abandoned_at=at,
                abandoned_because=one_line(because, SENTENCE_LIMIT),
                waiting=here.count,
                waiting_because=one_line(here.reason, SENTENCE_LIMIT),
            )
        )
    return reports


def channel_in_short(channel: ChannelReport) -> str:
    """Return the state of a channel, such as `telegram connected since 2026-11-21 12:00 UTC, 2 replies waiting`."""
    state = f"{channel.name} {channel.connection} since {channel.since[:16].replace('T', ' ')} UTC"
    return f"{state}, {channel.waiting:,} waiting" if channel.waiting else state


class CodeEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An unknown sender who was told a code, which is valid for `seconds`."""

    address: str
    name: str
    code: str
    seconds: int


class AddressEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An address that speaks for a person since `at` (RFC 3339, UTC)."""

    address: str
    name: str
    person: str
    at: str


class PairingsReport(msgspec.Struct, frozen=True, kw_only=True):
    """The response to `GET /api/pairings`."""

    codes: tuple[CodeEntry, ...]
    linked: tuple[AddressEntry, ...]
    persons: tuple[str, ...]


class AdmittedAddress(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a change: an address and the person for whom it speaks, or spoke. `told` is False if the sender could
    not be told that they were admitted."""

    address: str
    person: str
    told: bool = True


class SentPost(msgspec.Struct, frozen=True, kw_only=True):
    """The response to a text and files that were sent: the id that the service gave the first post, or "", and the number of
    posts."""

    receipt: str
    posts: int = 1
