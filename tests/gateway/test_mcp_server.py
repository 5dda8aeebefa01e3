"""The gateway as an MCP server, used by the official SDK's client and by requests written from the specification."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from gateway.cli.mcp_serve import StdioServer
from gateway.conversations.routing.switchboard import Switchboard
from gateway.http.mcp import mcp_server
from gateway.http.mcp.gateway_tools import GatewayTools
from gateway.support.errors import OwnedElsewhere
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.waiting import DEADLINE, deadline

SEARCHER, SENDER = "a-searching-program-of-the-tests", "a-sending-program-of-these-tests"

FILE = f"""
[agent]
model = "scripted:echo"
[memory.embedding]
provider = "none"
[mcp_access.searcher]
token = "{SEARCHER}"
allow = ["search"]
[mcp_access.sender]
token = "{SENDER}"
allow = ["read", "send"]
"""

HEADERS = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}


async def post(running: Gateway, token: str, method: str, params: dict[str, Any] | None = None) -> Any:
    """Send one request without a handshake, as protocols before 2026 allow on stateless servers."""
    body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params or {}}
    headers = {**HEADERS, "Authorization": f"Bearer {token}"}
    async with running.http.post(f"{running.url}/mcp", data=json.dumps(body), headers=headers) as response:
        return response.status, await response.json()


async def call(running: Gateway, token: str, tool: str, **arguments: Any) -> dict[str, Any]:
    status, answer = await post(running, token, "tools/call", {"name": tool, "arguments": arguments})
    assert status == 200
    result: dict[str, Any] = answer["result"]
    return result


def text_of(result: dict[str, Any]) -> str:
    (content,) = result["content"]
    text: str = content["text"]
    return text


@asynccontextmanager
async def serving(home: Path) -> AsyncIterator[Gateway]:
    async with gateway(home, file=FILE) as running:
        yield running


async def test_the_official_client_lists_and_calls_tools_in_both_eras(tmp_path: Path) -> None:
    note = tmp_path / "workspace" / "MEMORY.md"
    note.parent.mkdir(parents=True)
    note.write_text("The bicycle is locked with the code 4711.\n")
    async with serving(tmp_path) as running:
        for mode in ("auto", "legacy"):
            http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {SEARCHER}"})
            transport = streamable_http_client(f"{running.url}/mcp", http_client=http)
            async with http, Client(transport, mode=mode) as client:
                listed = await client.list_tools()
                assert [tool.name for tool in listed.tools] == ["memory_search"]
                result = await client.call_tool("memory_search", {"query": "bicycle code"})
                assert "4711" in result.content[0].text  # type: ignore[union-attr]


async def test_a_token_permits_what_it_names_and_nothing_else(tmp_path: Path) -> None:
    async with serving(tmp_path) as running:
        _, answer = await post(running, SENDER, "tools/list")
        assert [tool["name"] for tool in answer["result"]["tools"]] == [
            "memory_get",
            "list_sessions",
            "read_session",
            "send_message",
        ]
        _, answer = await post(running, SEARCHER, "tools/call", {"name": "send_message", "arguments": {"text": "hi"}})
        assert "There is no tool" in answer["error"]["message"]
        for path in ("/v1/models", "/metrics", "/api/notes"):
            async with running.http.get(running.url + path, headers={"Authorization": f"Bearer {SENDER}"}) as response:
                assert response.status == 401
        status, _ = await post(running, "not-a-token-at-all-but-long-enough", "tools/list")
        assert status == 401
        _, answer = await post(running, TOKEN, "tools/list")
        assert len(answer["result"]["tools"]) == 5


async def test_a_conversation_that_another_gateway_has_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def elsewhere(*_: object, **__: object) -> None:
        raise OwnedElsewhere("gw2", "")

    async with serving(tmp_path) as running:
        await call(running, SENDER, "send_message", text="hello from the editor", session="work")
        monkeypatch.setattr(Switchboard, "chat", elsewhere)
        read = json.loads(text_of(await call(running, SENDER, "read_session", session="work")))
        assert [each["text"] for each in read["messages"]] == ["hello from the editor"] * 2


async def test_a_server_that_does_not_start_is_an_error_and_is_started_by_the_next_request(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(_: GatewayTools) -> None:
        raise TypeError("Another version of the SDK.")

    async with serving(tmp_path) as running:
        with monkeypatch.context() as patched:
            patched.setattr(mcp_server, "_manager", fails)
            async with deadline():
                status, answer = await post(running, SEARCHER, "tools/list")
        assert (status, answer["code"]) == (500, "internal")
        async with deadline():
            status, answer = await post(running, SEARCHER, "tools/list")
        assert (status, [tool["name"] for tool in answer["result"]["tools"]]) == (200, ["memory_search"])


async def test_a_message_is_answered_in_the_persons_conversation_and_can_be_read(tmp_path: Path) -> None:
    async with serving(tmp_path) as running:
        result = await call(running, SENDER, "send_message", text="hello from the editor", session="work")
        assert text_of(result) == "hello from the editor"
        read = json.loads(text_of(await call(running, SENDER, "read_session", session="work")))
        assert [(each["by"], each["text"]) for each in read["messages"]] == [
            ("person", "hello from the editor"),
            ("assistant", "hello from the editor"),
        ]
        listed = json.loads(text_of(await call(running, SENDER, "list_sessions")))
        assert [each["session"] for each in listed["sessions"]] == ["work"]
        result = await call(running, SENDER, "send_message", text="later", session="work", wait_seconds=0)
        assert "accepted" in text_of(result)


@pytest.mark.parametrize("text", ["/approve abc always", "/new", " /forget x"])
async def test_a_program_cannot_give_commands(tmp_path: Path, text: str) -> None:
    async with serving(tmp_path) as running:
        result = await call(running, SENDER, "send_message", text=text)
        assert result["isError"]
        assert "commands" in text_of(result)


async def test_bad_arguments_are_told_in_a_sentence(tmp_path: Path) -> None:
    async with serving(tmp_path) as running:
        for arguments in ({}, {"text": "", "session": "main"}, {"text": "x", "session": "no such name!"}, {"text": 5}):
            result = await call(running, SENDER, "send_message", **arguments)
            assert result["isError"], arguments
        assert (await call(running, SENDER, "read_session", session="nowhere"))["isError"]
        async with running.http.get(f"{running.url}/mcp", headers={"Authorization": f"Bearer {SENDER}"}) as response:
            assert response.status == 405


def test_nothing_of_the_sdk_is_imported_before_the_first_request() -> None:
    code = "import gateway.wiring.daemon, sys; sys.exit('mcp' in sys.modules or 'pydantic' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, timeout=DEADLINE).returncode == 0


async def test_the_official_client_talks_to_a_program_that_passes_its_messages_on(tmp_path: Path) -> None:
    async with serving(tmp_path) as running:
        program = StdioServerParameters(
            command=sys.executable,
            args=[
                "-m",
                "exuvia",
                "mcp",
                "serve",
                "--home",
                str(tmp_path),
                "--url",
                running.url.replace("http", "ws") + "/ws",
            ],
            env={**os.environ, "EXUVIA_TOKEN": SENDER},
        )
        for mode in ("auto", "legacy"):
            async with Client(stdio_client(program), mode=mode) as client:
                assert [tool.name for tool in (await client.list_tools()).tools][-1] == "send_message"
                result = await client.call_tool("send_message", {"text": f"hello in {mode} mode"})
                assert result.content[0].text == f"hello in {mode} mode"  # type: ignore[union-attr]


async def test_a_program_without_a_gateway_is_answered_with_a_sentence(tmp_path: Path) -> None:
    told: list[bytes] = []

    async def unreachable(_: bytes, __: dict[str, str]) -> tuple[int, bytes]:
        raise ConnectionRefusedError("Connection refused")

    lines = asyncio.StreamReader()
    lines.feed_data(
        b'{"jsonrpc":"2.0","id":7,"method":"tools/list"}\nnonsense\n{"jsonrpc":"2.0","method":"notifications/x"}\n'
    )
    lines.feed_eof()
    await StdioServer(unreachable, told.append).run(lines)
    (answer,) = [json.loads(line) for line in told]
    assert answer["id"] == 7
    assert "cannot be reached" in answer["error"]["message"]
