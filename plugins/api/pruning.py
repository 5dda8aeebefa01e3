"""What a decision about pruning is given: frozen values, and nothing that it could do something with."""

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

Mode: TypeAlias = Literal["cache-ttl", "always", "off"]


class SoftTrim(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[pruning.soft_trim]`: a result of more than `max_chars` characters is shown as its first and last ones."""

    max_chars: _Characters = 4000
    head_chars: _Characters = 1500
    tail_chars: _Characters = 1500


class HardClear(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[pruning.hard_clear]`: whether old results may go as a whole, and what stands in their place."""

    enabled: bool = True
    placeholder: Annotated[str, msgspec.Meta(max_length=NOTE)] = "[Old tool result content cleared]"


class PrunedTools(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[pruning.tools]`: whose results may be pruned, by name, `*` standing for anything. An empty `allow` is every tool;
    `deny` wins."""

    allow: tuple[str, ...] = ()
    deny: tuple[str, ...] = ()


class PruningRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[pruning]`: what the operator wants. `ttl` is in seconds; the ratios are of characters shown to four times the
    window's tokens."""

    mode: Mode = "cache-ttl"
    ttl: float = 300.0
    keep_last_assistants: Annotated[int, msgspec.Meta(ge=0)] = 3
    soft_trim_ratio: _Share = 0.3
    hard_clear_ratio: _Share = 0.5
    min_prunable_chars: _Characters = 50_000
    soft_trim: SoftTrim = SoftTrim()
    hard_clear: HardClear = HardClear()
    tools: PrunedTools = PrunedTools()


class PruningBudget(msgspec.Struct, frozen=True, kw_only=True):
    """How much there is room for: the model's `window` and the `reserve` kept for its answer, in tokens; `window` is None
    where it is not known. `rules` are the operator's."""

    window: int | None
    reserve: int
    rules: PruningRules


class PruningContext(msgspec.Struct, frozen=True, kw_only=True):
    """What the next request would show.

    Beside each of `messages` stands its source, the seq of the event that carries its text, by which an edit names it (0
    for the summary of what was compacted), and its size in characters as it is shown; `characters` is their sum. `edited`
    has the edit in force of each message that was pruned, by source. `asked_at` is when a model was last asked.
    """

    messages: Sequence[Message]
    sources: Sequence[int]
    sizes: Sequence[int]
    characters: int
    edited: Mapping[int, Edited] = MappingProxyType({})
    asked_at: datetime | None = None
