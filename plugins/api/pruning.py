"""Values passed to pruning hooks. All are immutable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from types import MappingProxyType
from typing import Annotated, Literal, TypeAlias

import msgspec

from sessions.events.messages import Message
from sessions.events.pruning import Edited
from sessions.state.edit_validation import NOTE

_Share = Annotated[float, msgspec.Meta(ge=0, le=1)]
_Characters = Annotated[int, msgspec.Meta(ge=0)]

PruningMode: TypeAlias = Literal["cache-ttl", "always", "off"]


class SoftTrim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[pruning.soft_trim]` section: results longer than `max_chars` are shortened to their head and tail."""

    max_chars: _Characters = 4000
    head_chars: _Characters = 1500
    tail_chars: _Characters = 1500


class HardClear(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[pruning.hard_clear]` section: whether old results may be removed completely, and the text that replaces them."""

    enabled: bool = True
    placeholder: Annotated[str, msgspec.Meta(max_length=NOTE)] = "[Old tool result content cleared]"


class PrunedTools(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[pruning.tools]` section: tools whose results may be pruned, by name; `*` matches any text.

    An empty `allow` means every tool. `deny` takes precedence.
    """

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class PruningRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[pruning]` section.

    Attributes:
        mode: The mode.
        ttl: The lifetime of the provider's prompt cache in seconds.
        keep_last_assistants: Results after this many of the newest replies are not pruned.
        soft_trim_ratio: Results are trimmed above this ratio of characters to four times the context window in tokens.
        hard_clear_ratio: Results are cleared above this ratio.
        min_prunable_chars: Results are cleared only if together they have at least this many characters.
        soft_trim: Parameters for trimming.
        hard_clear: Parameters for clearing.
        tools: The tools whose results may be pruned.
    """

    mode: PruningMode = "cache-ttl"
    ttl: float = 300.0
    keep_last_assistants: Annotated[int, msgspec.Meta(ge=0)] = 3
    soft_trim_ratio: _Share = 0.3
    hard_clear_ratio: _Share = 0.5
    min_prunable_chars: _Characters = 50_000
    soft_trim: SoftTrim = SoftTrim()
    hard_clear: HardClear = HardClear()
    tools: PrunedTools = PrunedTools()


class PruningBudget(msgspec.Struct, frozen=True, kw_only=True):
    """The space available to the next request.

    Attributes:
        window: The model's context window in tokens; None if unknown.
        reserve: The tokens reserved for the reply.
        rules: The operator's settings.
    """

    window: int | None
    reserve: int
    rules: PruningRules


class PruningContext(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the next request.

    Attributes:
        messages: The messages.
        sources: For each message the seq of its event, which identifies it in an edit; 0 for a compaction summary.
        sizes: The size of each message in characters, as currently shown.
        characters: The sum of `sizes`.
        edited: The edits already in force, by source.
        asked_at: The time of the last model request.
    """

    messages: Sequence[Message]
    sources: Sequence[int]
    sizes: Sequence[int]
    characters: int
    edited: Mapping[int, Edited] = MappingProxyType({})
    asked_at: datetime | None = None
