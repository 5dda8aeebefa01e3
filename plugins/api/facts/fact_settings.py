"""How facts are kept: the form of `[memory.facts]` in the configuration."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

Formula: TypeAlias = Literal["measured", "coclaw"]
"""How the facts that answer a message are ranked; see `recalling`."""


class FactKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memory.facts]`: whether turns are looked through for facts, by which model (the session's own where none is named),
    for how many seconds a session is quiet before, and how many facts each turn may leave; how many days the daily log keeps
    them, and how many stay for long; when what the daily log holds is distilled (0 of either: never for that reason); after
    how many days without use one counts half, and how recall ranks them."""

    auto_extract: bool = True
    model: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    quiet_seconds: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    max_facts: Annotated[int, msgspec.Meta(ge=1, le=10)] = 3
    distill_threshold: Annotated[int, msgspec.Meta(ge=0)] = 20
    distill_interval_hours: Annotated[float, msgspec.Meta(ge=0)] = 24.0
    retention_days: Annotated[int, msgspec.Meta(ge=1)] = 30
    cap: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    stale_after_days: Annotated[float, msgspec.Meta(gt=0)] = 14.0
    formula: Formula = "measured"
