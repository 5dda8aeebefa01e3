"""The prices of models: those of the configuration, else those of the table `prices.toml` beside this module."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from datetime import date
from functools import cache
from pathlib import Path
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec

from gateway.config.keys import PriceKeys
from plugins.api.chat import ChatProvider, HasAddress
from plugins.api.embedding import EmbeddingProvider
from sessions.events.messages import Usage

TABLE = Path(__file__).with_name("prices.toml")

CURRENCY = "USD"

_VERSION = re.compile(r"-(?:\d{4}|\d{8}|\d{4}-\d{2}-\d{2}|latest|preview(?:-[\d-]+)?)|@\d{8}")
"""What a name may have after that of a row: a version of the same price."""

T = TypeVar("T")


class Price(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a million tokens of a model cost, and the day of which the price is; `at` is empty for a configured one."""

    input: float
    cached: float
    output: float
    currency: str
    at: str = ""


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """A price in integers: what a million tokens cost, in millionths of the currency. `at` is the day of which a price of
    the table is, empty for a configured one."""

    input: int
    cached: int
    output: int
    at: str = ""


class _Host(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    at: date
    source: str
    models: dict[str, PriceKeys]


def price_of(
    provider: ChatProvider | EmbeddingProvider, model: str, configured: Mapping[str, PriceKeys], currency: str = CURRENCY
) -> Price | None:
    """Return the price of a provider's model; None if it is unknown.

    The table counts only for requests to the vendor's own host: another server with the same API has other prices.

    Args:
        provider: The open provider.
        model: Its model.
        configured: `[prices]`, by `provider:model`.
        currency: The currency of `configured`; that of the table is the dollar.
    """
    if (own := _row(configured, f"{provider.name}:{model}")) is not None:
        return _price(own, "", currency)
    address = provider.address(model) if isinstance(provider, HasAddress) else None
    host = _table().get(urlsplit(address).hostname or "") if address else None
    row = None if host is None else _row(host.models, model.removeprefix("models/"))
    return None if host is None or row is None else _price(row, host.at.isoformat(), CURRENCY)


def cost_of(price: Price | None, usage: Usage | None) -> float | None:
    """Return what a request cost, in the price's currency; None if the price or the usage is unknown."""
    return None if price is None or usage is None else micros_of(rate_of(price), usage) / 1_000_000


def rate_of(price: Price, factor: float = 1.0) -> Rate:
    """Return a price in integers, multiplied by `factor`, the value of one unit of its currency in another."""
    amounts = {name: round(getattr(price, name) * factor * 1_000_000) for name in ("input", "cached", "output")}
    return Rate(**amounts, at=price.at)


def micros_of(rate: Rate, usage: Usage) -> int:
    """Return what a request cost in millionths of the currency, rounded half up."""
    cached = min(usage.cached, usage.input)
    spent = (usage.input - cached) * rate.input + cached * rate.cached + usage.output * rate.output
    return (spent + 500_000) // 1_000_000


def _price(keys: PriceKeys, at: str, currency: str) -> Price:
    cached = keys.input if keys.cached is None else keys.cached
    return Price(input=keys.input, cached=cached, output=keys.output, currency=currency, at=at)


def _row(rows: Mapping[str, T], name: str) -> T | None:
    """Return the row of this name, or of the model that it is a version of."""
    if name in rows:
        return rows[name]
    bare = [known for known in rows if name.startswith(known) and _VERSION.fullmatch(name[len(known) :])]
    return rows[max(bare, key=len)] if bare else None


@cache
def _table() -> dict[str, _Host]:
    return msgspec.convert(tomllib.loads(TABLE.read_text("utf-8")), dict[str, _Host])
