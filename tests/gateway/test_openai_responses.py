"""OpenAI's Responses API through a running gateway: the reasoning is restored from the journal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.gateway.gateways import gateway
from tests.plugins.responses_harness import FIRST
from tests.servers.openai_responses_server import ResponsesServer, Says


async def test_a_conversation_with_reasoning_and_tools_continues_after_a_restart(tmp_path: Path) -> None:
    settings = {"agent.model": "openai:gpt-test", "providers.openai.api_key": FIRST, "providers.openai.api": "responses"}
    look = Says("I look.", ("read", '{"path": "a.md"}'), ("read", '{"path": "none.md"}'), thoughts=True)
    async with ResponsesServer(look, Says("It is so.", thoughts=True), Says("As I said.")).serving() as server:
        settings["providers.openai.base_url"] = server.url
        async with gateway(tmp_path, settings=settings) as first:
            (tmp_path / "workspace").mkdir(exist_ok=True)
            (tmp_path / "workspace" / "a.md").write_text("A note.")
            client = await first.connect()
            await client.send("go")
            await client.until_event("turn_ended")
        async with gateway(tmp_path, settings=settings) as second:
            assert await (await second.connect()).chat("really?") == "As I said."
        assert server.refusals == []
        kinds = [item.get("type", item.get("role")) for item in server.requests[-1]["input"]]
        calls = ["function_call", "function_call", "function_call_output", "function_call_output"]
        assert kinds == ["user", "reasoning", "assistant", *calls, "reasoning", "assistant", "user"]


async def test_a_service_that_is_allowed_to_compacts_by_itself_and_the_journal_keeps_everything(tmp_path: Path) -> None:
    settings: dict[str, Any] = {
        "agent.model": "openai:gpt-test",
        "agent.context_window": 16_000,
        "providers.openai.api_key": FIRST,
        "providers.openai.api": "responses",
        "compaction.provider_side": True,
    }
    async with ResponsesServer().serving() as server:
        settings["providers.openai.base_url"] = server.url
        for start in range(2):
            async with gateway(tmp_path, settings=settings) as running:
                client = await running.connect()
                for number in range(10):
                    await client.chat(f"{start}.{number} " + "words and words " * 150)
        (journal,) = running.journals().values()
        sizes = [len(json.dumps(body["input"])) // 4 for body in server.requests]
        threshold = server.requests[-1]["context_management"][0]["compact_threshold"]
        assert server.refusals == []
        kept = [event for event in journal if event["kind"] == "model_replied" and "compaction" in event.get("opaque", "")]
        assert kept
        assert max(sizes) < threshold + 2000
        assert server.requests[-1]["input"][0]["type"] == "compaction"
        assert sum(event["kind"] == "message_received" for event in journal) == 20
        assert not any(event["kind"] == "context_compacted" for event in journal)
        # Another model is shown what is in the journal.
        settings["agent.model"], settings["agent.context_window"] = "openai:gpt-other", 60_000
        async with gateway(tmp_path, settings=settings) as running:
            await (await running.connect()).chat("and you?")
        assert len(server.requests[-1]["input"]) == 41
        assert server.refusals == []
