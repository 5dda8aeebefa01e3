"""The token limits of models: those that servers reported, else the table `limits.toml` beside this module."""

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
"""The version suffixes in lists of models that people leave out."""

T = TypeVar("T")


def known_limits(vendor: str | None, model: str, reported: Mapping[str, ReportedLimits] | None = None) -> ModelLimits:
    """Return the known limits of a model in tokens, None where a figure is unknown.

    Args:
        vendor: The name of the provider in the table; None for another vendor's server.
        model: The name of the model.
        reported: The limits that the model's server reported, which take precedence.
    """
    server = reported_limits(reported or {}, model)
    table = _table_limits(model, vendor or "")
    window, window_from = _first(server.window, table.window)
    output, output_from = _first(server.output, table.output)
    return ModelLimits(window=window, window_from=window_from, output=output, output_from=output_from)


def reported_limits(reported: Mapping[str, ReportedLimits], model: str) -> ReportedLimits:
    """Return the limits that a server reported for a model, under its name or that of its newest version."""
    versions = [name for name in reported if name.startswith(model) and _VERSION.fullmatch(name[len(model) :])]
    name = model if model in reported else max(versions, default=None)
    return ReportedLimits() if name is None else reported[name]


def reported_at(url: str, models: ModelList | None) -> Mapping[str, ReportedLimits]:
    """Return the limits in a list of models if it is from the server at this address."""
    return models.models if models is not None and models.address == bare_address(url) else {}


def bare_address(url: str) -> str:
    """Return a URL without user name, password and query; empty if it is invalid."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return ""
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def capped(limits: ModelLimits, max_output: int | None) -> ModelLimits:
    """Return the limits with the configured limit of a reply in tokens; None is no limit."""
    if max_output is None or (limits.output is not None and limits.output <= max_output):
        return limits
    return msgspec.structs.replace(limits, output=max_output, output_from="configuration")


def longest_prefix(known: Mapping[str, T], name: str) -> T | None:
    """Return the value of the longest key that the name begins with; None if there is none."""
    prefixes = [prefix for prefix in known if name.startswith(prefix)]
    return known[max(prefixes, key=len)] if prefixes else None


def _first(server: int | None, table: int | None) -> tuple[int | None, LimitSource | None]:
    if server is not None:
        return server, "vendor"
    return table, None if table is None else "table"


@bounded_cache(256)
def _table_limits(model: str, vendor: str) -> ReportedLimits:
    return longest_prefix(_table().get(vendor, {}), model) or ReportedLimits()


@cache
def _table() -> dict[str, dict[str, ReportedLimits]]:
    return msgspec.convert(tomllib.loads(TABLE.read_text("utf-8")), dict[str, dict[str, ReportedLimits]])
