"""How facts are kept: the form of `[memory.facts]` in the configuration."""

from __future__ import annotations

from typing import Annotated

import msgspec

from plugins.facts.scoring import Formula

_Hours = Annotated[float, msgspec.Meta(ge=0)]


class FactKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[memory.facts]`: whether turns are looked through for facts, by which model (the session's own where none is named),
    how many each may leave; how many days the daily log keeps them, how many facts stay for long; when what the daily log
    holds is distilled (0 of either: never for that reason); how recall ranks them and what share of the window all recall
    may take."""

    auto_extract: bool = True
    model: Annotated[str, msgspec.Meta(min_length=1)] | None = None
    max_facts: Annotated[int, msgspec.Meta(ge=1, le=10)] = 3
    retention_days: Annotated[int, msgspec.Meta(ge=1)] = 30
    cap: Annotated[int, msgspec.Meta(ge=1, le=10_000)] = 100
    stale_after_days: Annotated[float, msgspec.Meta(gt=0)] = 14.0
    distill_threshold: Annotated[int, msgspec.Meta(ge=0)] = 20
    distill_interval_hours: _Hours = 24.0
    formula: Formula = "measured"
    share: Annotated[float, msgspec.Meta(ge=0, le=0.5)] = 0.2
