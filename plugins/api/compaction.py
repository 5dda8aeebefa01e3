"""Values passed to compaction hooks. All are immutable."""

from __future__ import annotations

import msgspec

from sessions.events.events import Trigger
from sessions.events.messages import Message


class CompactionBudget(msgspec.Struct, frozen=True, kw_only=True):
    """The space available to a compaction, in tokens.

    Attributes:
        window: The model's context window.
        below: The size that the next request must not exceed, including the summary.
        recent: The amount of recent conversation that the operator wants to keep (`compaction.keep_recent_tokens`).
        recent_messages: The number of recent messages that the operator wants to keep.
    """

    window: int
    below: int
    recent: int
    recent_messages: int


class CompactionContext(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the next request.

    Attributes:
        messages: The messages.
        places: For each message the seq of its event; 0 for the summary of earlier compactions.
        sizes: The size of each message in tokens.
        head: The size in tokens of everything before the messages.
        cuts: The valid results of `plan_compaction`, oldest first. A valid cut separates no tool call from its result,
            removes at least one message, and leaves a request that fits the budget.
    """

    messages: tuple[Message, ...]
    places: tuple[int, ...]
    sizes: tuple[int, ...]
    head: int
    cuts: tuple[int, ...]


class BeforeCompaction(msgspec.Struct, frozen=True, kw_only=True):
    """A compaction that is starting.

    Attributes:
        session: The session's id.
        person: The id of the person.
        key: The key of the conversation.
        compaction: The number of the compaction in its session.
        trigger: The reason for the compaction.
        focus: What the person asked to focus on, or "".
        keep_from: The seq from which on all messages are kept.
        tokens_before: The size of the next request in tokens.
    """

    session: str
    person: str
    key: str
    compaction: int
    trigger: Trigger
    focus: str
    keep_from: int
    tokens_before: int


class AfterCompaction(BeforeCompaction, frozen=True, kw_only=True):
    """A completed compaction.

    Attributes:
        tokens_after: The size of the next request in tokens.
        messages: The number of messages that were removed.
        summary: The summary that replaces them.
        by: The name of the summarizer that wrote it.
    """

    tokens_after: int
    messages: int
    summary: str
    by: str
