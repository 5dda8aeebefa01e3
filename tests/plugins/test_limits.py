"""The table of windows and output limits."""

from __future__ import annotations

import tomllib

import msgspec
import pytest

from plugins.api.chat import ChatProvider
from plugins.api.models import ModelLimits, ReportedLimits
from plugins.commands.builtin import register_chat_providers
from plugins.providers.anthropic.chat import Anthropic
from plugins.providers.gemini.chat import Gemini
from plugins.providers.hosted.known_models import LIMITS, bare_address, known_limits, reported_limits
from plugins.providers.ollama.chat import Ollama
from plugins.providers.openai.chat import OpenAI
from plugins.support.secrets import Secret
from tests.plugins.provider_harness import opened, question
from tests.servers.ollama_server import MODEL, OllamaServer

CLAUDE_EFFORTS = ("low", "medium", "high", "xhigh", "max")


def test_the_longest_matching_prefix_counts() -> None:
    assert known_limits("openai", "gpt-4.1-mini").window == 1_047_576
    assert known_limits("openai", "gpt-4-0613").window == 8_192
    assert known_limits("anthropic", "claude-opus-4-7-20260101") == ModelLimits(
        window=1_000_000, window_from="table", output=128_000, output_from="table", efforts=CLAUDE_EFFORTS
    )


@pytest.mark.parametrize(
    ("vendor", "model", "window"),
    [
        ("anthropic", "claude-sonnet-4-6", 200_000),
        ("anthropic", "claude-opus-4-6-20260101", 200_000),
        ("anthropic", "claude-haiku-4-5-20251001", 200_000),
        ("openai", "gpt-4.1", 1_047_576),
    ],
)
def test_the_windows_of_the_seeds_are_in_the_table(vendor: str, model: str, window: int) -> None:
    assert known_limits(vendor, model).window == window
    # The vendor's own answer is stronger; so is the operator's word, see `agent.context_windows`.
    told = {model: ReportedLimits(window=1_000_000)}
    assert known_limits(vendor, model, told).window == 1_000_000


def test_limits_that_are_not_in_the_table_are_unknown() -> None:
    assert known_limits("openai", "some-model") == known_limits("nobody", "gpt-5") == ModelLimits()


def test_every_vendor_in_the_table_is_a_provider_and_every_answer_fits_its_window() -> None:
    table = tomllib.loads(LIMITS.read_text())
    assert set(table) <= {provider.name for provider in register_chat_providers()}
    for models in table.values():
        assert list(models) == sorted(models)
        assert all(256 <= each.get("output", 256) <= each["window"] for each in models.values())


@pytest.mark.parametrize("kind", [OpenAI, Anthropic, Gemini])
async def test_a_vendors_usual_model_is_in_the_table(kind: type[ChatProvider]) -> None:
    async with opened(kind, model="", api_key=(Secret("a-key"),)) as asked:
        limits = asked.provider.limits(asked.provider.default_model())
    assert limits.window is not None
    assert limits.output is not None


def test_each_reported_limit_takes_precedence_over_the_table() -> None:
    told = {"claude-opus-4-6": ReportedLimits(window=500_000), "claude-new-20270101": ReportedLimits(window=300_000)}
    assert known_limits("anthropic", "claude-opus-4-6", told) == ModelLimits(
        window=500_000, window_from="vendor", output=128_000, output_from="table", efforts=("low", "medium", "high", "max")
    )
    assert known_limits("anthropic", "claude-new", told).window == 300_000
    assert known_limits("anthropic", "claude-ne", told).window is None


def test_a_name_without_a_version_means_the_newest_version() -> None:
    told = {
        "claude-opus-4-5-20251101": ReportedLimits(window=200_000),
        "m-2026-01-01": ReportedLimits(window=1_000),
        "m-2026-02-01": ReportedLimits(window=2_000),
        "qwen3:latest": ReportedLimits(window=40_960),
        "qwen3:4b": ReportedLimits(window=262_144),
    }
    assert reported_limits(told, "claude-opus-4") == ReportedLimits()
    assert reported_limits(told, "m").window == 2_000
    assert reported_limits(told, "m-2026-01-01").window == 1_000
    assert reported_limits(told, "qwen3").window == 40_960


@pytest.mark.parametrize(
    ("url", "bare"),
    [
        ("https://ana:secret@host:8000/v1", "https://host:8000/v1"),
        ("http://[::1]:11434", "http://[::1]:11434"),
        ("http://[", ""),
    ],
)
def test_an_address_is_stored_without_its_secrets(url: str, bare: str) -> None:
    assert bare_address(url) == bare


async def test_the_configured_limit_of_a_reply_applies() -> None:
    async with opened(Anthropic, model="m", max_output_tokens=1_000) as asked:
        limits = asked.provider.limits("claude-sonnet-5-5")
    assert (limits.output, limits.output_from, limits.window_from) == (1_000, "configuration", "table")
    async with opened(Anthropic, model="m", max_output_tokens=1_000_000) as asked:
        assert asked.provider.limits("claude-sonnet-5-5").output == 128_000


async def test_the_window_that_is_wanted_reaches_the_server_that_asks_for_it() -> None:
    async with OllamaServer().serving() as server, opened(Ollama, model="m", base_url=server.url) as asked:
        await asked.ask(msgspec.structs.replace(question(model=MODEL), window=9_000))
        await asked.ask(question(model=MODEL))
    assert [request["options"]["num_ctx"] for request in server.requests] == [9_000, 16_384]
