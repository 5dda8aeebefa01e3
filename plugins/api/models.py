"""Model limits, and the model lists that servers report."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, TypeAlias

import msgspec

from sessions.events.vision import VisionSupport

Tokens: TypeAlias = Annotated[int, msgspec.Meta(ge=256, le=1_000_000_000)]
"""A context window or output limit in tokens. Values outside this range are rejected as invalid."""

Effort: TypeAlias = Annotated[str, msgspec.Meta(min_length=1, max_length=32)]
"""A level of reasoning effort in its service's own word, such as `high`."""

Temperature: TypeAlias = Annotated[float, msgspec.Meta(ge=0, le=2)]
"""A sampling temperature."""


class ReportedLimits(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The limits of a model in tokens (`window`: context window, `output`: maximum output); None if not reported."""

    window: Tokens | None = None
    output: Tokens | None = None


class ModelList(msgspec.Struct, frozen=True, kw_only=True):
    """The models that a server reported.

    Attributes:
        address: The server's address, without secrets.
        models: The reported limits by model name.
    """

    address: str
    models: Mapping[str, ReportedLimits]


LimitSource: TypeAlias = Literal["configuration", "vendor", "table", "default"]
"""The source of a limit: the configuration, the model's server, the bundled table, or a default."""


class ModelLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits and abilities of a model, as far as they are known.

    Attributes:
        window: The context window in tokens; None if unknown.
        output: The maximum output in tokens; None if unknown.
        vision: The pictures that the model accepts; None if it accepts none.
        small: A small model. It gets no tools and a short prompt, and is not used for summaries.
        efforts: The levels of reasoning effort that the model has, lowest first, in its service's own words; empty if it has
            none or they are unknown. A request names one as the parameter `effort`.
        temperature: The lowest and the highest `temperature`; None if the model accepts none.
        window_from: The source of `window`, if known.
        output_from: The source of `output`, if known.
    """

    window: Tokens | None = None
    output: Tokens | None = None
    vision: VisionSupport | None = None
    small: bool = False
    efforts: Annotated[tuple[Effort, ...], msgspec.Meta(max_length=16)] = ()
    temperature: tuple[Temperature, Temperature] | None = (0.0, 2.0)
    window_from: LimitSource | None = None
    output_from: LimitSource | None = None
