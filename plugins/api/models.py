"""Values about models: their limits, and the lists that servers report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Literal, TypeAlias

import msgspec

from sessions.events.vision import VisionSupport

if TYPE_CHECKING:
    pass

Tokens: TypeAlias = Annotated[int, msgspec.Meta(ge=256, le=1_000_000_000)]
"""What may be a window or the limit of an answer; what is read from elsewhere and is less or more is an error there."""


class ReportedLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How many tokens a model takes in (`window`) and says at most (`output`), as far as somebody tells."""

    window: Tokens | None = None
    output: Tokens | None = None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """What a server said when it was asked for its models: each by its name, with what it tells of it. `address` is the
    server's, without what is secret in it."""

    address: str
    models: Mapping[str, ReportedLimits]


LimitSource: TypeAlias = Literal["configuration", "vendor", "table", "default"]
"""Where a limit is from: the configuration, what the model's server told, the shipped table, the program itself."""


class ModelLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a model: `window` and `output` in tokens, None where it is not; `sight` is which pictures it takes,
    None for none. A `small` model is offered no tools, told as little as can be and not asked to summarise. `window_from`
    and `output_from` tell where the two figures are from, if the provider does."""

    window: int | None = None
    output: int | None = None
    vision: VisionSupport | None = None
    small: bool = False
    window_from: LimitSource | None = None
    output_from: LimitSource | None = None
