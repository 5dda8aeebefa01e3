"""How much each vendor's models take in and say, from the table `limits.toml` beside this module."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar

import msgspec

from plugins.contracts import ModelLimits

TABLE = Path(__file__).with_name("limits.toml")

T = TypeVar("T")


def known_limits(vendor: str, model: str) -> ModelLimits:
    """What the table has for a model of a vendor (its provider's name), in tokens; None where it has nothing."""
    return longest(_table().get(vendor, {}), model) or ModelLimits()


def longest(known: Mapping[str, T], name: str) -> T | None:
    """What stands under the longest beginning of the name; None if none fits."""
    fitting = [beginning for beginning in known if name.startswith(beginning)]
    return known[max(fitting, key=len)] if fitting else None


@cache
def _table() -> dict[str, dict[str, ModelLimits]]:
    return msgspec.convert(tomllib.loads(TABLE.read_text("utf-8")), dict[str, dict[str, ModelLimits]])
