"""Compaction planning: when a conversation must be shortened, and where it is cut. Pure functions of sizes.

The defaults follow the reference design (`reserve_tokens_floor` of 20,000 and so on), each limited relative to the window,
so that a window of 4,000 tokens works as well as one of a million.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import msgspec

from sessions.events.events import Trigger
from sessions.events.messages import Message, ToolMessage
from sessions.state.view import View

SMALLEST_SUMMARY = 160
"""Minimum tokens available for a summary; with fewer, a compaction gains nothing."""

LARGEST_SUMMARY = 6000
"""Maximum tokens of a summary in the largest window."""

FRAME = 70
"""Tokens of the message that holds a summary, without the summary itself."""


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The `[compaction]` settings: tokens and shares as configured; `threshold`, `ratio` and `messages`
    are disabled at 0."""

    floor: int = 20_000
    soft: int = 4_000
    recent: int = 20_000
    recent_messages: int = 3
    threshold: int = 0
    ratio: float = 0.0
    messages: int = 0

    @property
    def counts_messages(self) -> bool:
        """True if a trigger other than the size of the whole request is configured."""
        return bool(self.threshold or self.ratio or self.messages)


class Budget(msgspec.Struct, frozen=True, kw_only=True):
    """The limits for one context window, in tokens: compact at `compact_at`, flush at `flush_at`, keep the last `recent`
    tokens unchanged; a summary has at most `summary` tokens."""

    window: int
    compact_at: int
    flush_at: int
    recent: int
    summary: int


def budget(window: int, rules: Rules) -> Budget:
    """Return the budget of a window. The reserve is at most a quarter of the window, the soft threshold at most an eighth,
    and the recent part at most 40 % of the usable tokens."""
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
    """The size of a view in tokens: the part before the messages, and each message."""

    head: int
    messages: tuple[int, ...]

    @property
    def total(self) -> int:
        """The size of the whole request."""
        return self.head + sum(self.messages)


class CompactionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """A cut: everything from seq `keep_from` on stays, `first` is the index of the first message that stays, and `summary`
    is the maximum size of a summary in tokens for the view to fit."""

    keep_from: int
    first: int
    summary: int


def compaction_trigger(tokens: int, view: View, sizes: Sizes, window: Budget, rules: Rules) -> Trigger | None:
    """Return the trigger for a compaction before the next request of `tokens`, or None. The optional triggers count only
    messages that a compaction could remove; the first that applies is returned."""
    if tokens >= window.compact_at:
        return "budget"
    removable = range(first_removable(view), len(view) if rules.counts_messages else 0)
    recent = _first_kept(sizes, window.recent, rules.recent_messages)
    removed_messages = sum(sizes.messages[index] for index in removable if index < recent)
    if rules.threshold and removed_messages >= rules.threshold:
        return "threshold"
    if rules.ratio and removed_messages >= rules.ratio * window.window:
        return "ratio"
    if rules.messages and sum(index < recent for index in removable) >= rules.messages:
        return "messages"
    return None


def plan(
    view: View, sizes: Sizes, window: Budget, rules: Rules, *, below: int, least: bool = False
) -> CompactionPlan | None:
    """Return a cut that leaves fewer than `below` tokens in the view, or None if there is none.

    Recent messages stay if possible; otherwise the cut moves towards the end, to the last place that separates no call from
    its result. With `least` only the last few messages stay, as for a compaction on request.
    """
    places = cut_points(view)
    if not places:
        return None
    wanted = _first_kept(sizes, 0 if least else window.recent, rules.recent_messages)
    kept = list(accumulate(reversed(sizes.messages), initial=0))[::-1]
    later = [index for index in places if index >= wanted]
    # No cut point is at or after the recent part: use the last one, so that something is removed.
    for index in later or places[-1:]:
        if (room := _summary_room(sizes, kept[index], below)) >= SMALLEST_SUMMARY:
            return CompactionPlan(keep_from=view.placed[index], first=index, summary=min(room, window.summary))
    return None


def plan_at(view: View, sizes: Sizes, window: Budget, index: int, *, below: int) -> CompactionPlan | None:
    """Return the plan that cuts at `index`; None if that is not a cut point, or if `below` tokens would be reached or
    exceeded."""
    room = _summary_room(sizes, sum(sizes.messages[index:]), below)
    if room < SMALLEST_SUMMARY or index not in cut_points(view):
        return None
    return CompactionPlan(keep_from=view.placed[index], first=index, summary=min(room, window.summary))


def fitting_cuts(view: View, sizes: Sizes, *, below: int) -> list[int]:
    """Return the seqs at which a cut leaves fewer than `below` tokens in the view, including a summary."""
    kept = list(accumulate(reversed(sizes.messages), initial=0))[::-1]
    return [view.placed[index] for index in cut_points(view) if _summary_room(sizes, kept[index], below) >= SMALLEST_SUMMARY]


def cut_points(view: View) -> list[int]:
    """Return the indexes at which a view may be cut: at a message of a person or a model, the first of those placed
    together, with something removable before it."""
    first = first_removable(view)
    return [
        index
        for index in range(first + 1, len(view))
        if view.placed[index] != view.placed[index - 1] and not isinstance(view.messages[index], ToolMessage)
    ]


def first_removable(view: View) -> int:
    """Return the index of the first message that is not a summary."""
    return 1 if view.summarised else 0


def removed_messages(view: View, cut: CompactionPlan) -> Sequence[Message]:
    """Return the messages that a cut removes, without an earlier summary."""
    return view.messages[first_removable(view) : cut.first]


def _summary_room(sizes: Sizes, kept: int, below: int) -> int:
    """Return the tokens left for a summary before `kept` tokens of messages."""
    return below - 1 - sizes.head - FRAME - kept


def _first_kept(sizes: Sizes, recent: int, messages: int) -> int:
    """Return the index from which at most `recent` tokens, but at least some messages, are kept."""
    index, tokens = len(sizes.messages), 0
    while index > 0 and (tokens + sizes.messages[index - 1] <= recent or len(sizes.messages) - index < messages):
        index -= 1
        tokens += sizes.messages[index]
    return index
