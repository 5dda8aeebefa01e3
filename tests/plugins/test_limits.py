"""The table of windows and output limits."""

from __future__ import annotations

import tomllib

import msgspec
import pytest

from plugins.builtin import register_chat_providers
from plugins.chat.anthropic import Anthropic
from plugins.chat.gemini import Gemini
from plugins.chat.limits import TABLE, known_limits
from plugins.chat.ollama import Ollama
from plugins.chat.openai import OpenAI
from plugins.contracts import ChatProvider, ModelLimits
from tests.plugins.asking import opened, question
from tests.servers.ollama_server import MODEL, OllamaServer


def test_of_two_beginnings_that_fit_the_longer_one_counts() -> None:
    assert known_limits("openai", "gpt-4.1-mini").window == 1_047_576
    assert known_limits("openai", "gpt-4-0613").window == 8_192
    assert known_limits("anthropic", "claude-opus-4-6-20260101") == ModelLimits(window=1_000_000, output=128_000)


def test_what_the_table_does_not_have_is_unknown() -> None:
    assert known_limits("openai", "some-model") == known_limits("nobody", "gpt-5") == ModelLimits()


def test_every_vendor_in_the_table_is_a_provider_and_every_answer_fits_its_window() -> None:
    table = tomllib.loads(TABLE.read_text())
    assert set(table) <= {provider.name for provider in register_chat_providers()}
    for models in table.values():
        assert list(models) == sorted(models)
        assert all(256 <= each.get("output", 256) <= each["window"] for each in models.values())


@pytest.mark.parametrize("kind", [OpenAI, Anthropic, Gemini])
async def test_a_vendors_usual_model_is_in_the_table(kind: type[ChatProvider]) -> None:
    model = kind.Settings().default_model
    async with opened(kind, model=model) as asked:
        limits = asked.provider.limits(model)
    assert limits.window is not None
    assert limits.output is not None


async def test_the_window_that_is_wanted_reaches_the_server_that_asks_for_it() -> None:
    async with OllamaServer().serving() as server, opened(Ollama, model="m", base_url=server.url) as asked:
        await asked.ask(msgspec.structs.replace(question(model=MODEL), window=9_000))
        await asked.ask(question(model=MODEL))
    assert [request["options"]["num_ctx"] for request in server.requests] == [9_000, 16_384]
