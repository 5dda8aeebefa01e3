"""A whole gateway with MCP servers: calls in turns, approvals, a changed configuration, and the end."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

from tests.gateway.gateways import TOKEN, Client, gateway
from tests.mcp.mcp_stage import SERVER, alive
from tests.waiting import deadline, until

AGENT = '[agent]\nmodel = "scripted:script"\n'


def server(name: str, tools: str = '["echo", "pid", "picture"]') -> str:
    return f'[mcp.{name}]\ncommand = ["{sys.executable}", "-S", "{SERVER}"]\ntools.allow = {tools}\n'


def calls(tool: str, **arguments: str) -> dict[str, Any]:
    return {"text": "", "calls": [{"tool": tool, "arguments": arguments}]}


async def listed(client: Client, text: str) -> str:
    """Ask for the servers until the answer contains a text; return it."""
    async with deadline():
        while text not in (answer := await client.command("/mcp")):
            await asyncio.sleep(0.02)
    return answer


async def test_a_model_calls_tools_of_servers_as_far_as_they_are_approved(tmp_path: Path) -> None:
    rules = '[approvals]\nrules = [{ tool = "odd_echo", decision = "allow" }]\n'
    script = [calls("odd_echo", text="from the server"), {"text": "It said so."}, calls("odd_picture", size="small")]
    async with gateway(tmp_path, file=AGENT + rules + server("odd"), script=script) as running:
        client = await running.connect()
        assert await listed(client, "tools:") == (
            "**MCP servers**\n\n- `odd` misbehaving 1, protocol 2025-11-25\n"
            "  - tools: `odd_echo`, `odd_pid`, `odd_picture`\n"
            "  - prompts: `greet [WHO]`"
        )
        await client.send("call it")
        returned = await client.until_event("tool_returned")
        assert (returned["outcome"], returned["output"]) == ("returned", "from the server")
        await client.until_event("turn_ended")
        await client.send("a picture")
        asked = await client.until_event("approval_asked")
        assert (asked["tool"], asked["what"], asked["detail"]) == ("odd_picture", "odd: picture", '{\n  "size": "small"\n}')
        await client.until_event("turn_parked")


async def test_a_picture_of_a_server_is_kept_as_an_attachment(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=AGENT + server("odd"), script=[calls("odd_picture"), {"text": "Here."}]) as running:
        client = await running.connect()
        await listed(client, "tools:")
        await client.send("a picture")
        returned = await client.until_event("tool_returned")
        assert [each["media"] for each in returned["attachments"]] == ["image/png"]


async def test_an_agent_has_the_tools_of_its_servers_only_and_keeps_their_files(tmp_path: Path) -> None:
    agents = '[agents.with]\nmcp = ["odd"]\n[agents.without]\n'
    script = [calls("odd_picture"), {"text": "Here."}]
    async with gateway(tmp_path, file=AGENT + agents + server("odd"), script=script) as running:
        client = await running.connect()
        await listed(client, "tools:")
        outcomes = []
        for agent in ("without", "with"):
            await client.command(f"/agent {agent}")
            await client.send("a picture")
            outcomes.append(await client.until_event("tool_returned"))
            await client.until_event("turn_ended")
        refused, returned = outcomes
        assert (refused["outcome"], refused["output"].split(";")[0]) == ("refused", "There is no tool 'odd_picture'")
        (kept,) = returned["attachments"]
        async with running.http.get(
            f"{running.url}/attachments/{kept['sha256']}", headers={"Authorization": f"Bearer {TOKEN}"}
        ) as response:
            assert (response.status, response.content_type) == (200, "image/png")


async def test_a_saved_configuration_starts_and_stops_servers(tmp_path: Path) -> None:
    script = [calls("one_pid"), {"text": "So."}, calls("two_pid"), {"text": "So."}]
    async with gateway(tmp_path, file=AGENT, script=script) as running:
        client = await running.connect()
        assert "There are no MCP servers" in await client.command("/mcp")
        configuration = tmp_path / "config.toml"
        configuration.write_text(AGENT + server("one"))
        await listed(client, "`one_pid`")
        await client.send("which process?")
        first = int((await client.until_event("tool_returned"))["output"])
        await client.until_event("turn_ended")
        configuration.write_text(AGENT + server("two"))
        await listed(client, "`two_pid`")
        await until(lambda: not alive(first))
        await client.send("which process now?")
        second = int((await client.until_event("tool_returned"))["output"])
        assert alive(second)
        configuration.write_text(AGENT + server("two") + "[mcp.three]\n")
        assert "mcp.three needs either a command or a url" in await said(client, "needs either")
        assert alive(second)
    assert not alive(second)


async def said(client: Client, text: str) -> str:
    """Ask for the status until the answer contains a text; return it."""
    async with deadline():
        while text not in (answer := await client.command("/status")):
            await asyncio.sleep(0.02)
    return answer


async def test_a_server_that_does_not_start_is_a_problem_in_the_status_and_nothing_else(tmp_path: Path) -> None:
    gone = '[mcp.gone]\ncommand = ["no-such-program"]\n'
    async with gateway(tmp_path, file=AGENT + gone, script=[{"text": "Hello."}]) as running:
        client = await running.connect()
        assert "The MCP server gone is not available: its process ended with code 127" in await said(client, "gone is not")
        assert await client.chat("hi") == "Hello."


async def test_a_prompt_of_a_server_is_a_message_of_the_person(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=AGENT + server("odd"), script=[{"text": "Hello, team."}]) as running:
        client = await running.connect()
        await listed(client, "prompts:")
        await client.send("/mcp prompt odd greet who=team")
        assert (await client.until_event("model_replied"))["text"] == "Hello, team."
        (journal,) = running.journals().values()
        messages = [event for event in journal if event["kind"] == "message_received"]
        assert messages[-1]["text"] == "The prompt greet of the MCP server odd:\n\nGreet team."
        assert messages[-1]["id"].startswith("command:")
