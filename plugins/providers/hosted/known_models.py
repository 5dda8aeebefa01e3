"""Known properties of models: the token limits of chat models, of which those that a server reports take precedence, and
their levels of effort, and the properties of embedding models. The tables `limits.toml`, `efforts.toml` and `models.toml`
are beside this module."""

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
from plugins.api.plugin_services import Purpose
from plugins.support.text.bounded_cache import bounded_cache

LIMITS = Path(__file__).with_name("limits.toml")
EFFORTS = Path(__file__).with_name("efforts.toml")
EMBEDDING_MODELS = Path(__file__).with_name("models.toml")

_VERSION = re.compile(r"-\d{8}|-\d{4}-\d{2}-\d{2}|:latest")
"""The version suffixes in lists of models that people leave out."""

OPEN = "open"
"""The table of open-weight models, under whatever name a server lists them."""

COMPATIBLE = "compatible"
"""The table of efforts on other servers with OpenAI's API."""

T = TypeVar("T")


def known_limits(vendor: str | None, model: str, reported: Mapping[str, ReportedLimits] | None = None) -> ModelLimits:
    """Return the known limits of a model in tokens, None where a figure is unknown. `vendor` is the provider's name in the
    table, None for another vendor's server; limits that the server `reported` take precedence."""
    server = reported_limits(reported or {}, model)
    table = _table_limits(model, vendor or "")
    window, window_from = _first(server.window, table.window)
    output, output_from = _first(server.output, table.output)
    efforts = known_efforts(vendor or COMPATIBLE, model)
    return ModelLimits(window=window, window_from=window_from, output=output, output_from=output_from, efforts=efforts)


@bounded_cache(256)
def known_efforts(vendor: str, model: str) -> tuple[str, ...]:
    """Return the levels of effort of a model, lowest first; empty if it has none or is unknown.

    A row is for the model of its name and its variants, which have a hyphen or a colon after it; a later version of a
    family may have other levels.
    """
    name = model.rpartition("/")[2] if vendor == COMPATIBLE else model  # as routers write it: `vendor/model`
    rows = _efforts().get(vendor, {})
    fitting = [known for known in rows if f"{name}-".startswith((f"{known}-", f"{known}:"))]
    return rows[max(fitting, key=len)] if fitting else ()


@cache
def _efforts() -> dict[str, dict[str, tuple[str, ...]]]:
    return msgspec.convert(tomllib.loads(EFFORTS.read_text("utf-8")), dict[str, dict[str, tuple[str, ...]]])


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
    return msgspec.convert(tomllib.loads(LIMITS.read_text("utf-8")), dict[str, dict[str, ReportedLimits]])


# --- embedding models -------------------------------------------------------------------------------------------------


class KnownModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A row of the table: the length of the vectors, the most tokens of a text (`tokens`) and of a request (`total`), and
    the prefixes of queries and notes. 0 is unknown."""

    dimensions: int = 0
    tokens: int = 0
    total: int = 0
    query: str = ""
    note: str = ""

    def prefix(self, purpose: Purpose) -> str:
        """Return the prefix of a text for this purpose."""
        return self.query if purpose == "query" else self.note


def known_model(vendor: str, model: str) -> KnownModel:
    """Return the row of a vendor's model or of an open-weight model; an empty one if there is none."""
    name, tables = model.lower(), _tables()
    own = {prefix: row for prefix, row in tables.get(vendor, {}).items() if name.startswith(prefix)}
    matches = own or {part: row for part, row in tables[OPEN].items() if part in name}
    return matches[max(matches, key=len)] if matches else KnownModel()


@cache
def _tables() -> dict[str, dict[str, KnownModel]]:
    return msgspec.convert(tomllib.loads(EMBEDDING_MODELS.read_text("utf-8")), dict[str, dict[str, KnownModel]])
