"""What the console asks for to write a message: the models."""

from __future__ import annotations

from pathlib import Path

from tests.console.asked import ask
from tests.gateway.gateways import gateway
from tests.servers.ollama_server import MODEL, OllamaServer

FILE = """
[agent]
model = "openai:gpt-4.1"
fallback_models = ["anthropic:claude-opus-4-8"]
[providers.openai]
api_key = "a-key-for-tests"
base_url = "http://127.0.0.1:9/v1"
[providers.ollama]
base_url = "{ollama}"
[prices."openai:gpt-4.1"]
input = 1.5
output = 6.0
"""


async def test_the_models_are_listed_with_what_is_known_about_them(tmp_path: Path) -> None:
    async with (
        OllamaServer().serving() as server,
        gateway(tmp_path, file=FILE.format(ollama=server.url)) as running,
    ):
        told = (await ask(running, "/api/models")).json
    assert told["default"] == "openai:gpt-4.1"
    assert told["failures"] == [{"provider": "openai", "reason": "unreachable"}]
    models = {each["id"]: each for each in told["models"]}
    assert models["openai:gpt-4.1"]["price"] == {"input": 1.5, "cached": 1.5, "output": 6.0, "currency": "USD"}
    opus = models["anthropic:claude-opus-4-8"]
    assert (opus["window"], opus["output"], opus["vision"]) == (1_000_000, 128_000, True)
    assert opus["efforts"] == ["low", "medium", "high", "xhigh", "max"]
    assert opus["price"] == {"input": 5.0, "cached": 0.5, "output": 25.0, "currency": "USD", "at": "2026-10-24"}
    assert "temperature" not in opus
    assert {"price", "efforts"}.isdisjoint(models[f"ollama:{MODEL}"])
    assert models[f"ollama:{MODEL}"]["temperature"] == [0.0, 2.0]


async def test_people_see_the_models_and_strangers_do_not(tmp_path: Path) -> None:
    bob = "a-token-for-bob-that-is-long-enough"
    async with gateway(tmp_path, settings={"people.bob.token": bob}) as running:
        told = (await ask(running, "/api/models", token=bob)).json
        assert (await ask(running, "/api/models", token="wrong")).status == 401
    assert told["default"] == "scripted:echo"
    assert {"id": "scripted:echo", "provider": "scripted", "vision": False, "temperature": [0.0, 2.0]} in told["models"]
