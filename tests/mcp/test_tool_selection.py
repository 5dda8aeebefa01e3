"""Many tools of servers: which are offered, and how the others are found; and resources."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from plugins.api.tool import DescribesCalls
from plugins.mcp.tool_selection import ToolSelection
from plugins.support.errors import ToolFailed
from tests.gateway.gateways import gateway
from tests.mcp.mcp_stage import call_context, misbehaving, opened
from tests.mcp.test_gateway_with_servers import calls, listed, server

SUBJECTS = ("invoice", "customer", "repository", "weather", "calendar", "mailbox", "translation", "database")
ACTIONS = ("create", "delete", "list", "update", "search", "export", "archive", "share")


def many(folder: Path) -> None:
    """Let the server list 64 tools."""
    tools = [
        {"name": f"{action}_{subject}", "description": f"{action} one {subject}. " * 5, "inputSchema": {"type": "object"}}
        for subject in SUBJECTS
        for action in ACTIONS
    ]
    (folder / "tools.json").write_text(json.dumps(tools))


async def find(selection: ToolSelection, query: str) -> Sequence[str]:
    output = await selection.tools()["find_tools"].run({"query": query}, call_context())
    return [line.split(":")[0][2:] for line in output.text.splitlines()[1:]]


async def test_tools_that_would_fill_the_window_are_found_and_then_offered(tmp_path: Path) -> None:
    many(tmp_path)
    window: list[int | None] = [200_000]
    async with opened(tmp_path, odd=misbehaving(tmp_path)) as source:
        selection = ToolSelection(source, lambda: window[0])
        assert len(selection.tools()) == 65
        window[0] = 16_000
        assert list(selection.tools()) == ["find_tools", "mcp_resources"]
        assert (await find(selection, "delete an invoice"))[0] == "odd_delete_invoice"
        assert "odd_delete_invoice" in selection.tools()
        for subject in SUBJECTS:
            assert len(await find(selection, subject)) == 8
        assert 8 < len(selection.tools()) < 40  # as many of those found last as there is room for
        assert "odd_share_database" in selection.tools()
        assert await find(selection, "quarks") == []
        window[0] = None
        assert len(selection.tools()) == 65


async def test_a_selection_costs_next_to_nothing_while_nothing_changes(tmp_path: Path) -> None:
    many(tmp_path)
    async with opened(tmp_path, odd=misbehaving(tmp_path)) as source:
        selection = ToolSelection(source, lambda: 200_000)
        selection.tools()
        began = time.process_time()
        for _ in range(1000):
            selection.tools()
        assert time.process_time() - began < 0.5


async def test_without_servers_nothing_is_offered(tmp_path: Path) -> None:
    async with opened(tmp_path) as source:
        assert ToolSelection(source, lambda: None).tools() == {}


async def test_resources_are_listed_without_and_read_with_approval(tmp_path: Path) -> None:
    async with opened(tmp_path, odd=misbehaving(), other=misbehaving()) as source:
        resources = ToolSelection(source, lambda: None).tools()["mcp_resources"]
        assert isinstance(resources, DescribesCalls)
        call = call_context()
        assert await resources.approval({}, call) is None
        assert (await resources.run({}, call)).text == "odd: memo:one one\nother: memo:one one"
        asked = await resources.approval({"server": "odd", "uri": "memo:one"}, call)
        assert asked is not None
        assert asked.what == "odd: read memo:one"
        assert (await resources.run({"server": "odd", "uri": "memo:one"}, call)).text == "the first memo"
        with pytest.raises(ToolFailed, match="Name the server of the resource: odd, other"):
            await resources.run({"uri": "memo:one"}, call)


async def test_a_model_calls_a_tool_in_the_turn_in_which_it_found_it(tmp_path: Path) -> None:
    many(tmp_path)
    file = '[agent]\nmodel = "scripted:script"\ncontext_window = 16000\n' + server("odd", "[]").replace(
        '"]\ntools', f'", "{tmp_path}"]\ntools'
    )
    script = [calls("find_tools", query="share weather"), calls("odd_share_weather"), {"text": "Done."}]
    async with gateway(tmp_path / "home", file=file, script=script) as running:
        client = await running.connect()
        await listed(client, "tools:")
        await client.send("share it")
        found = await client.until_event("tool_returned")
        assert "odd_share_weather" in found["output"]
        assert "odd_share_weather" in [tool["name"] for tool in (await client.until_event("instructions_set"))["tools"]]
        called = await client.until_event("tool_returned")
        assert called["output"] == "no tool share_weather"
        await client.until_event("turn_ended")
