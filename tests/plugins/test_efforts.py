"""The levels of effort that models have, and how each service is told about one."""

from __future__ import annotations

import json
import tomllib
from typing import Any

import pytest

from plugins.commands.builtin import register_chat_providers
from plugins.providers.anthropic.chat import Anthropic
from plugins.providers.gemini.chat import Gemini
from plugins.providers.gemini.request import BUDGETS
from plugins.providers.hosted.known_models import COMPATIBLE, EFFORTS, known_efforts
from plugins.providers.openai.chat import OpenAI
from plugins.support.secrets import Secret
from tests.plugins.provider_harness import opened, question
from tests.plugins.vendors import ANTHROPIC, GEMINI, OLLAMA, OPENAI, RESPONSES, Vendor


async def sent(vendor: Vendor, model: str, *names: str, **parameters: Any) -> dict[str, Any]:
    """What the service is sent under these names for a request to the model."""
    request = question(model=model, **parameters)
    async with vendor.serving(vendor.says("done")) as (client, server):
        if vendor is OLLAMA:  # its fake has one model
            body = json.loads(client.provider._body(request, reduced=False))
        else:
            assert (await client.ask(request)).text == "done"
            (body,) = server.requests
    assert "effort" not in {*body, *body.get("options", {}), *body.get("generationConfig", {})}
    return {name: body[name] for name in names if name in body}


def _thinking(**config: Any) -> dict[str, Any]:
    return {"generationConfig": {"thinkingConfig": config}}


@pytest.mark.parametrize(
    ("vendor", "model", "effort", "expected"),
    [
        (OPENAI, "gpt-oss-120b", "high", {"reasoning_effort": "high"}),
        (OPENAI, "openai/gpt-oss-20b", "low", {"reasoning_effort": "low"}),
        (OPENAI, "mistral-small-latest", "none", {"reasoning_effort": "none"}),
        (OPENAI, "some-model", "high", {}),
        (RESPONSES, "gpt-oss", "low", {"reasoning": {"effort": "low", "summary": "auto"}}),
        (ANTHROPIC, "claude-opus-4-7", "xhigh", {"output_config": {"effort": "xhigh"}}),
        (ANTHROPIC, "claude-opus-4-5", "xhigh", {}),
        (ANTHROPIC, "claude-haiku-4-5", "high", {}),
        (GEMINI, "gemini-3-pro-preview", "low", _thinking(includeThoughts=True, thinkingLevel="low")),
        (GEMINI, "gemini-2.5-flash", "none", _thinking(thinkingBudget=0)),
        (GEMINI, "gemini-2.5-pro", "high", _thinking(includeThoughts=True, thinkingBudget=24_576)),
        (GEMINI, "gemini-2.5-pro", "none", _thinking(includeThoughts=True)),
        (OLLAMA, "gpt-oss:20b", "high", {"think": "high"}),
        (OLLAMA, "qwen3:8b", "off", {"think": False}),
        (OLLAMA, "llama3.2", "on", {}),
    ],
    ids=lambda each: getattr(each, "name", str(each)),
)
async def test_each_service_is_told_the_effort_in_its_own_form(
    vendor: Vendor, model: str, effort: str, expected: dict[str, Any]
) -> None:
    names = ("reasoning_effort", "reasoning", "output_config", "think", "generationConfig")
    assert await sent(vendor, model, *names, effort=effort) == expected


async def test_the_effort_of_a_request_is_stronger_than_the_configured_one() -> None:
    async with ANTHROPIC.serving(*[ANTHROPIC.says("ok")] * 3, effort="low") as (client, server):
        for effort in (None, "max", "minimal"):
            await client.ask(question(model="claude-opus-4-8", effort=effort))
        assert [body["output_config"] for body in server.requests] == [
            {"effort": "low"},
            {"effort": "max"},
            {"effort": "low"},
        ]


async def test_openais_reasoning_models_are_sent_no_temperature_over_chat_either() -> None:
    async with opened(OpenAI, model="", api="chat", api_key=(Secret("a-key"),)) as asked:
        body = asked.provider._body
        assert b"temperature" not in body(question(model="gpt-5.1", temperature=0.5, top_p=0.5), reduced=False)
        assert b'"temperature":0.5' in body(question(model="gpt-4.1", temperature=0.5), reduced=False)


async def test_models_without_a_temperature_say_so() -> None:
    async with opened(OpenAI, model="", api_key=(Secret("a-key"),)) as openai:
        limits = openai.provider.limits
        assert [limits(name).temperature for name in ("gpt-5.4", "gpt-4.1")] == [None, (0.0, 2.0)]
    async with opened(OpenAI, model="", base_url="http://127.0.0.1:9/v1") as compatible:
        assert compatible.provider.limits("gpt-5.4").temperature == (0.0, 2.0)
    async with opened(Anthropic, model="", api_key=(Secret("a-key"),)) as claude:
        limits = claude.provider.limits
        assert [limits(name).temperature for name in ("claude-opus-5", "claude-haiku-4-5")] == [None, (0.0, 1.0)]
    async with opened(Gemini, model="", api_key=(Secret("a-key"),)) as gemini:
        assert gemini.provider.limits("gemini-3-pro").temperature == (0.0, 2.0)


def test_a_row_is_for_a_model_and_its_variants_but_not_for_later_versions() -> None:
    assert known_efforts("openai", "gpt-5-mini-2025-08-07") == ("minimal", "low", "medium", "high")
    assert known_efforts("openai", "gpt-5.9") == ()
    assert known_efforts("openai", "gpt-5.1-codex-max") == ("low", "medium", "high", "xhigh")
    assert known_efforts("ollama", "qwen3-coder:30b") == known_efforts("nobody", "gpt-5") == ()


def test_the_table_is_sorted_by_model_and_names_providers() -> None:
    table = tomllib.loads(EFFORTS.read_text())
    assert set(table) <= {provider.name for provider in register_chat_providers()} | {COMPATIBLE}
    for models in table.values():
        assert all(len(set(levels)) == len(levels) for levels in models.values())


def test_every_budget_of_a_level_is_known() -> None:
    table = tomllib.loads(EFFORTS.read_text())["gemini"]
    assert {level for model, levels in table.items() if model.startswith("gemini-2.") for level in levels} == set(BUDGETS)
