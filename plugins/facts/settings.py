"""How facts are kept: the form of `[memory.facts]` in the configuration."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

Formula: TypeAlias = Literal["measured", "coclaw"]
"""How the facts that answer a message are ranked; see `recalling`."""


class FactKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memory.facts]`: how many days the daily log keeps facts, how many stay for long; after how many days without use one
    counts half, and how recall ranks them."""

    retention_days: Annotated[int, msgspec.Meta(ge=1)] = 30
    cap: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    stale_after_days: Annotated[float, msgspec.Meta(gt=0)] = 14.0
    formula: Formula = "measured"
