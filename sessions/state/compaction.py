"""When a conversation must be shortened, and where it is cut. Pure: sizes in, a plan out.

The figures are those of the field's reference (`reserve_tokens_floor` 20,000 and so on), each bounded by the window, so
that one of 4,000 tokens works as one of a million.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from sessions.events.events import Trigger
from sessions.events.messages import Message, ToolMessage
from sessions.state.view import View

SMALLEST_SUMMARY = 160
"""Tokens that a summary must have room for, or nothing is gained by it."""

LARGEST_SUMMARY = 6000
"""Tokens that a summary may have in the largest window."""

FRAME = 70
"""Tokens of the message that holds a summary, without it."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """`[compaction]`: tokens and shares as configured; `threshold`, `ratio` and `messages` are off at 0."""

    floor: int = 20_000
    soft: int = 4_000
    recent: int = 20_000
    recent_messages: int = 3
    threshold: int = 0
    ratio: float = 0.0
    messages: int = 0

    @property
    def looks_at_messages(self) -> bool:
        """Whether anything but the size of the whole request counts."""
        return bool(self.threshold or self.ratio or self.messages)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """What one window allows, in tokens: compact at `compact_at`, flush at `flush_at`, keep `recent` as it is. `summary` is
    the most that a summary may have."""

    window: int
    compact_at: int
    flush_at: int
    recent: int
    summary: int


def budget(window: int, rules: Rules) -> Budget:
    """The budget of a window: the reserve is at most a quarter of it, the soft threshold an eighth, and what is kept 40 % of
    what is usable."""
    reserve = min(rules.floor, window // 4)
    usable = window - reserve
    return Budget(
        window=window,
        compact_at=usable,
        flush_at=usable - min(rules.soft, window // 8),
        recent=min(rules.recent, usable * 2 // 5),
        summary=max(SMALLEST_SUMMARY, min(LARGEST_SUMMARY, window // 10)),
    )


class Sizes(msgspec.Struct, frozen=True, kw_only=True):
    """A view in tokens: what stands before it, and each message."""

    head: int
    messages: tuple[int, ...]

    @property
    def total(self) -> int:
        """The whole request."""
        return self.head + sum(self.messages)


class CompactionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """Where to cut. `keep_from` is the seq from which everything stays, `first` the index of the first message that does;
    `summary` the most tokens that a summary may have for the view to fit behind it."""

    keep_from: int
    first: int
    summary: int


def due(tokens: int, view: View, sizes: Sizes, window: Budget, rules: Rules) -> Trigger | None:
    """Why the conversation should be compacted before the next request of `tokens`, or None. What the operator configured
    counts only messages that a compaction could remove; the trigger that is met first decides."""
    if tokens >= window.compact_at:
        return "budget"
    removable = range(first_removable(view), len(view) if rules.looks_at_messages else 0)
    recent = _keeping(sizes, window.recent, rules.recent_messages)
    leaving = sum(sizes.messages[index] for index in removable if index < recent)
    if rules.threshold and leaving >= rules.threshold:
        return "threshold"
    if rules.ratio and leaving >= rules.ratio * window.window:
        return "ratio"
    if rules.messages and sum(index < recent for index in removable) >= rules.messages:
        return "messages"
    return None


def plan(
    view: View, sizes: Sizes, window: Budget, rules: Rules, *, below: int, least: bool = False
) -> CompactionPlan | None:
    """Where to cut so that the view has less than `below` tokens afterwards; None if no cut can do that.

    What is recent stays if it can; else the cut moves on, to the last place where no call is parted from its result. `least`
    keeps the last few messages only, for somebody who asks for it.
    """
    places = boundaries(view)
    if not places:
        return None
    wanted = _keeping(sizes, 0 if least else window.recent, rules.recent_messages)
    kept = list(accumulate(reversed(sizes.messages), initial=0))[::-1]
    later = [index for index in places if index >= wanted]
    # Nothing lies at or behind what is recent: the last place there is, so that something leaves.
    for index in later or places[-1:]:
        if (room := _room(sizes, kept[index], below)) >= SMALLEST_SUMMARY:
            return CompactionPlan(keep_from=view.placed[index], first=index, summary=min(room, window.summary))
    return None


def plan_at(view: View, sizes: Sizes, window: Budget, index: int, *, below: int) -> CompactionPlan | None:
    """The plan that cuts just there; None if it may not be cut there, or the view would not get below `below` tokens."""
    room = _room(sizes, sum(sizes.messages[index:]), below)
    if room < SMALLEST_SUMMARY or index not in boundaries(view):
        return None
    return CompactionPlan(keep_from=view.placed[index], first=index, summary=min(room, window.summary))


def fitting(view: View, sizes: Sizes, *, below: int) -> list[int]:
    """The seqs from which on everything may stay, so that the view has less than `below` tokens with a summary before it."""
    kept = list(accumulate(reversed(sizes.messages), initial=0))[::-1]
    return [view.placed[index] for index in boundaries(view) if _room(sizes, kept[index], below) >= SMALLEST_SUMMARY]


def boundaries(view: View) -> list[int]:
    """The indexes at which a view may be cut: a person's message or a model's, the first of those that came together, with
    something before it that can leave."""
    first = first_removable(view)
    return [
        index
        for index in range(first + 1, len(view))
        if view.placed[index] != view.placed[index - 1] and not isinstance(view.messages[index], ToolMessage)
    ]


def first_removable(view: View) -> int:
    """The index of the first message that is no summary."""
    return 1 if view.summarised else 0


def leaving(view: View, cut: CompactionPlan) -> Sequence[Message]:
    """The messages that leave, without an earlier summary."""
    return view.messages[first_removable(view) : cut.first]


def _room(sizes: Sizes, kept: int, below: int) -> int:
    """Tokens that a summary may have before `kept` tokens of messages."""
    return below - 1 - sizes.head - FRAME - kept


def _keeping(sizes: Sizes, recent: int, messages: int) -> int:
    """The index from which at most `recent` tokens, but at least some messages, are kept."""
    index, tokens = len(sizes.messages), 0
    while index > 0 and (tokens + sizes.messages[index - 1] <= recent or len(sizes.messages) - index < messages):
        index -= 1
        tokens += sizes.messages[index]
    return index
