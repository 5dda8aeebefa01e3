"""How much models take in and say: what their servers told, else the table `limits.toml` beside this module."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from plugins.api.models import LimitSource, ModelLimits, ModelList, ReportedLimits
from plugins.support.bounded_cache import bounded_cache

TABLE = Path(__file__).with_name("limits.toml")

_VERSION = re.compile(r"-\d{8}|-\d{4}-\d{2}-\d{2}|:latest")
"""What lists write behind a name that people leave it out of."""

T = TypeVar("T")


def known_limits(vendor: str | None, model: str, told: Mapping[str, ReportedLimits] | None = None) -> ModelLimits:
    """What is known of a model, in tokens: what its server `told`, else what the table has under its vendor (the name of its
    provider; None where it is another's); None where neither has anything."""
    said = told_limits(told or {}, model)
    kept = _kept(model, vendor or "")
    window, window_from = _first(said.window, kept.window)
    output, output_from = _first(said.output, kept.output)
    return ModelLimits(window=window, window_from=window_from, output=output, output_from=output_from)


def told_limits(told: Mapping[str, ReportedLimits], model: str) -> ReportedLimits:
    """What a server told of a model: under its name, or under that of its newest version."""
    versions = [name for name in told if name.startswith(model) and _VERSION.fullmatch(name[len(model) :])]
    name = model if model in told else max(versions, default=None)
    return ReportedLimits() if name is None else told[name]


def told_at(url: str, told: ModelList | None) -> Mapping[str, ReportedLimits]:
    """What was told, if it was the server at this address that did."""
    return told.models if told is not None and told.address == bare_address(url) else {}


def bare_address(url: str) -> str:
    """An address without a person's name and password; empty for one that is none."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def capped(limits: ModelLimits, most: int | None) -> ModelLimits:
    """The limits where the configuration lets answers have so many tokens at most; None is as many as they like."""
    if most is None or (limits.output is not None and limits.output <= most):
        return limits
    return msgspec.structs.replace(limits, output=most, output_from="configuration")


def longest(known: Mapping[str, T], name: str) -> T | None:
    """What stands under the longest beginning of the name; None if none fits."""
    fitting = [beginning for beginning in known if name.startswith(beginning)]
    return known[max(fitting, key=len)] if fitting else None


def _first(told: int | None, kept: int | None) -> tuple[int | None, LimitSource | None]:
    if told is not None:
        return told, "vendor"
    return kept, None if kept is None else "table"


@bounded_cache(256)
def _kept(model: str, vendor: str) -> ReportedLimits:
    """What the table has; every turn asks."""
    return longest(_table().get(vendor, {}), model) or ReportedLimits()


@cache
def _table() -> dict[str, dict[str, ReportedLimits]]:
    return msgspec.convert(tomllib.loads(TABLE.read_text("utf-8")), dict[str, dict[str, ReportedLimits]])
