"""What plugins are told of a compaction, and what a decision about its cut is given: frozen values."""

from __future__ import annotations

import msgspec

from sessions.events.events import Trigger
from sessions.events.messages import Message


class CompactionBudget(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is room for, in tokens: the model's `window`, and how small the next request must become (`below`) with
    its summary. `recent` and `recent_messages` are what the operator wants to stay where it can."""

    window: int
    below: int
    recent: int
    recent_messages: int


class CompactionContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the next request would show.

    Beside each of `messages` stands its place, the seq of the event that put it into the view (0 for the summary of what was
    compacted before), and its size in tokens; `head` is the size of what stands before them. `cuts` are the places that may
    be answered, oldest first: there no call is parted from its result, something leaves, and what stays fits the budget.
    """

    messages: tuple[Message, ...]
    places: tuple[int, ...]
    sizes: tuple[int, ...]
    head: int
    cuts: tuple[int, ...]


class BeforeCompaction(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction that begins: whose and which session it is of, its number there, why it comes and what the person asked
    to keep in mind ("" if nothing), from which seq on everything stays, and the size of the next request in tokens."""

    session: str
    person: str
    key: str
    compaction: int
    trigger: Trigger
    focus: str
    keep_from: int
    tokens_before: int


class AfterCompaction(BeforeCompaction, frozen=True, kw_only=True):
    """A compaction that was made: the size of the next request now, how many messages left, and the summary that stands in
    their place, written `by` a summarizer."""

    tokens_after: int
    messages: int
    summary: str
    by: str
