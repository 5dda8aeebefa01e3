"""What a plugin may provide for compactions: who writes down what must last, and who summarises what leaves.

Both are given values and one way to ask a model; neither sees the log. Whatever they raise, the conversation goes on.
"""

from __future__ import annotations

from typing import ClassVar, Literal, Protocol, TypeAlias

import msgspec

from plugins.api.services import AskModel
from sessions.events.messages import Message, Usage

IdentifierPolicy: TypeAlias = Literal["strict", "off", "custom"]


class CompactionInput(msgspec.Struct, frozen=True, kw_only=True):
    """What leaves the view. `summary` is the one in force ("" if none), which the new one replaces; `kept` are the messages
    that stay, for what they refer to; `began` says that the first of `kept` goes on a turn whose beginning leaves.
    `focus` is what the person asked to keep in mind. `window` is the asked model's in tokens, `limit` the most tokens that
    the summary may have. `day` is today as YYYY-MM-DD where the person is."""

    messages: tuple[Message, ...]
    kept: tuple[Message, ...]
    summary: str
    focus: str
    window: int
    limit: int
    language: str
    day: str
    began: bool = False
    identifier_policy: IdentifierPolicy = "strict"
    identifier_instructions: str = ""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """A summary. `by` names who wrote it, `checks` says as sentences what was found wrong with it or with an earlier try;
    `failed` why the model's own was not taken, "" if it was. `kept` and `lost` are the identifiers of what left that the
    summary names or does not. `model` and `usage` tell who was asked and what that cost."""

    text: str
    by: str
    checks: tuple[str, ...] = ()
    failed: str = ""
    kept: tuple[str, ...] = ()
    lost: tuple[str, ...] = ()
    model: str = ""
    usage: Usage | None = None


class Summarizer(Protocol):
    """Writes the summary that stands in place of what leaves."""

    name: ClassVar[str]

    async def summarize(self, leaving: CompactionInput, ask: AskModel) -> Summary:
        """The summary. A ProviderError says that the model could not be asked at all; then another try may do."""
        ...


class FlushRules(msgspec.Struct, frozen=True, kw_only=True):
    """`[compaction.memory_flush]`: the prompts, "" where the flush's own are wanted."""

    system_prompt: str
    prompt: str


class FlushResult(msgspec.Struct, frozen=True, kw_only=True):
    """What must last of what leaves: Markdown in `text` where the outcome is `written`; `reason` is a sentence where it
    failed or was skipped."""

    outcome: Literal["written", "nothing", "skipped", "failed"]
    text: str = ""
    reason: str = ""
    model: str = ""
    usage: Usage | None = None


class MemoryFlush(Protocol):
    """Asks what must last of what is about to leave."""

    name: ClassVar[str]

    async def flush(self, leaving: CompactionInput, ask: AskModel, rules: FlushRules) -> FlushResult:
        """What to write into the day's note."""
        ...
