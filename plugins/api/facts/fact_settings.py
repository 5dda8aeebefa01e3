"""The `[memory.facts]` section of the configuration."""

from __future__ import annotations

from typing import Annotated, Literal, TypeAlias

import msgspec

Formula: TypeAlias = Literal["measured", "coclaw"]
"""How facts are ranked for recall; see `plugins.facts.recalling`."""


class FactKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The `[memory.facts]` section.

    Attributes:
        auto_extract: Extract facts from every turn.
        model: The model for extraction; None for the session's.
        quiet_seconds: Idle seconds of a session before extraction starts.
        max_facts: The maximum number of facts extracted from a turn.
        distill_threshold: Distill after this many daily facts; 0 to disable.
        distill_interval_hours: Distill after this many hours; 0 to disable.
        retention_days: Days that daily facts are kept.
        cap: The maximum number of long-term facts.
        stale_after_days: Days without use after which a fact's weight is halved.
        formula: How facts are ranked for recall.
    """

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
