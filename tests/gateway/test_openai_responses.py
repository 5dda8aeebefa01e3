"""OpenAI over its Responses API, through the whole gateway: the reasoning comes back out of the journal."""

from __future__ import annotations

from pathlib import Path

from tests.gateway.gateways import gateway
from tests.plugins.asking_responses import FIRST
from tests.servers.openai_responses_server import ResponsesServer, Says


async def test_a_conversation_with_reasoning_and_tools_goes_on_after_a_restart(tmp_path: Path) -> None:
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
