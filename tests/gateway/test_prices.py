"""The prices of models."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from datetime import date
from typing import Any

import pytest

from gateway.config.keys import PriceKeys
from gateway.models.spending.prices import TABLE, Price, price_of
from plugins.api.chat import ChatProvider
from plugins.commands.builtin import register_chat_providers
from plugins.support.secrets import Secret
from tests.plugins.provider_harness import opened

KINDS: dict[str, type[ChatProvider]] = {kind.name: kind for kind in register_chat_providers()}
GPT = Price(input=2.0, cached=0.5, output=8.0, currency="USD", at="2026-10-27")


async def price(
    provider: str, model: str, base_url: str = "", configured: Mapping[str, PriceKeys] | None = None
) -> Price | None:
    """The price of a model, at the vendor's own address or another one."""
    address: dict[str, Any] = {"base_url": base_url} if base_url else {}
    async with opened(KINDS[provider], model="", api_key=(Secret("a-key"),), **address) as asked:
        return price_of(asked.provider, model, configured or {})


@pytest.mark.parametrize("model", ["gpt-4.1", "gpt-4.1-2025-04-14"])
async def test_a_model_and_its_dated_versions_have_the_price_of_the_table(model: str) -> None:
    assert await price("openai", model) == GPT


@pytest.mark.parametrize("model", ["gpt-4.1-ultra", "gpt-4.10", "gpt", "", "ft:gpt-4.1:me"])
async def test_another_model_whose_name_begins_the_same_has_no_price(model: str) -> None:
    assert await price("openai", model) is None


async def test_a_price_is_that_of_the_server_that_is_asked() -> None:
    assert await price("openai", "gpt-4.1", "https://models.example.com/v1") is None
    mistral = await price("openai", "mistral-small-latest", "https://api.mistral.ai/v1")
    assert mistral == Price(input=0.15, cached=0.15, output=0.6, currency="USD", at="2026-07-02")
    gemini = await price("gemini", "models/gemini-3-pro-preview")
    assert gemini is not None
    assert gemini.output == 12.0


async def test_a_configured_price_is_stronger() -> None:
    keys = {"openai:gpt-4.1": PriceKeys(input=1.0, output=3.0), "openai:own": PriceKeys(input=0.0, output=0.0)}
    assert await price("openai", "gpt-4.1-2025-04-14", configured=keys) == Price(
        input=1.0, cached=1.0, output=3.0, currency="USD"
    )
    assert await price("openai", "own", "http://127.0.0.1:9/v1", keys) == Price(
        input=0.0, cached=0.0, output=0.0, currency="USD"
    )


def test_the_table_is_sorted_and_says_when_and_where_it_was_read() -> None:
    for host in tomllib.loads(TABLE.read_text()).values():
        assert date(2026, 1, 1) < date.fromisoformat(host["at"]) <= date(2026, 11, 29)
        assert "." in host["source"]
        assert list(host["models"]) == sorted(host["models"])
        for name, keys in host["models"].items():
            assert 0 < keys.get("cached", keys["input"]) <= keys["input"]
            embeds = "embed" in name or name.startswith("voyage-")
            assert keys["output"] == 0 if embeds else keys["output"] >= keys["input"]


async def test_the_usual_models_of_the_vendors_have_a_price() -> None:
    for provider in ("openai", "anthropic", "gemini"):
        async with opened(KINDS[provider], model="", api_key=(Secret("a-key"),)) as asked:
            assert price_of(asked.provider, asked.provider.default_model(), {}) is not None
