"""Compaction: the values passed to its hooks, and the summarizers and memory flushes that plugins can replace.

Summarizers and flushes receive values and a function that asks a model; neither sees the log. If one fails, the conversation
continues.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol, TypeAlias

import msgspec

from plugins.api.plugin_services import AskModel
from sessions.events.events import Trigger
from sessions.events.messages import Message, Usage

IdentifierPolicy: TypeAlias = Literal["strict", "off", "custom"]


class CompactionBudget(msgspec.Struct, frozen=True, kw_only=True):
    """The space available to a compaction, in tokens.

    Attributes:
        window: The model's context window.
        target: The size below which the next request must be, including the summary.
        keep_tokens: The amount of recent conversation that the operator wants to keep (`compaction.keep_recent_tokens`).
        keep_messages: The number of recent messages that the operator wants to keep.
    """

    window: int
    target: int
    keep_tokens: int
    keep_messages: int


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


class CompactionInput(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that a compaction removes, with the parameters of the compaction.

    Attributes:
        messages: The messages to be removed.
        kept: The messages that stay, as context.
        summary: The current summary, which the new one replaces; "" if there is none.
        focus: What the person asked to focus on, or "".
        window: The context window in tokens of the model that is asked.
        limit: The maximum length of the new summary in tokens.
        language: The language code, such as `en`.
        day: The current date in the person's time zone, as YYYY-MM-DD.
        splits_turn: The cut is inside a turn: the first of `kept` continues a turn whose beginning is removed.
        identifier_policy: The setting `compaction.identifier_policy`.
        identifier_instructions: The setting `compaction.identifier_instructions`.
    """

    messages: tuple[Message, ...]
    kept: tuple[Message, ...]
    summary: str
    focus: str
    window: int
    limit: int
    language: str
    day: str
    splits_turn: bool = False
    identifier_policy: IdentifierPolicy = "strict"
    identifier_instructions: str = ""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A summary.

    Attributes:
        text: The summary.
        by: The name of the summarizer that wrote it.
        checks: Problems found in this summary or in an earlier attempt, as sentences.
        failed: The reason why the model's summary was not used, or "".
        kept: Identifiers of the removed messages that the summary contains.
        lost: Identifiers of the removed messages that the summary does not contain.
        model: The model that was asked, as `provider:model`.
        usage: The token usage.
    """

    text: str
    by: str
    checks: tuple[str, ...] = ()
    failed: str = ""
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    model: str = ""
    usage: Usage | None = None


class Summarizer(Protocol):
    """Writes the summary that replaces the removed messages. Created without arguments."""

    name: ClassVar[str]
    """The name in `compaction.summarizer`."""

    async def summarize(self, compaction: CompactionInput, ask: AskModel) -> Summary:
        """Return the summary.

        Raises:
            ProviderError: The model could not be asked. The compaction may be retried.
        """
        ...


class FlushRules(msgspec.Struct, frozen=True, kw_only=True):
    """The prompts of `[compaction.memory_flush]`; "" for the defaults."""

    system_prompt: str
    prompt: str


class FlushResult(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a memory flush.

    Attributes:
        outcome: `written` if there is something to store.
        text: The Markdown to add to the daily note.
        reason: Why the flush failed or was skipped, as a sentence.
        model: The model that was asked, as `provider:model`.
        usage: The token usage.
    """

    outcome: Literal["written", "nothing", "skipped", "failed"]
    text: str = ""
    reason: str = ""
    model: str = ""
    usage: Usage | None = None


class MemoryFlush(Protocol):
    """Extracts from the removed messages what should be kept in memory. Created without arguments."""

    name: ClassVar[str]
    """The name in `compaction.memory_flush.by`."""

    async def flush(self, compaction: CompactionInput, ask: AskModel, rules: FlushRules) -> FlushResult:
        """Return the text to add to the daily note."""
        ...
