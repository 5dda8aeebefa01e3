"""Servers and calls for the tests of the MCP client."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from plugins.api.plugin_services import LogEntry
from plugins.api.tool import ApprovalRequest, ToolContext, ToolOutput
from plugins.mcp.mcp_servers import McpServers, ServerReport
from plugins.mcp.mcp_settings import ServerKeys
from plugins.mcp.oauth import OAuthFlow

SERVER = str(Path(__file__).with_name("stdio_server.py"))


class MemoryLog:
    """A plugin's log in memory."""

    def __init__(self) -> None:
        self.kept: list[Any] = []

    async def append(self, entry: Any) -> int:
        self.kept.append(entry)
        return len(self.kept)

    async def entries(self, after: int = 0, limit: int = 1000) -> Sequence[LogEntry]:
        return [LogEntry(seq=seq, at="", entry=entry) for seq, entry in enumerate(self.kept, 1)][after : after + limit]


def misbehaving(folder: Path | None = None, **keys: Any) -> ServerKeys:
    """The keys of `stdio_server.py`."""
    return ServerKeys(command=(sys.executable, "-S", SERVER, *([str(folder)] if folder else [])), **keys)


def call_context(
    *, progress: Callable[[str], None] = lambda _: None, ask: Callable[[ApprovalRequest], Awaitable[bool]] | None = None
) -> ToolContext:
    """A call of a tool. Without `ask` there is nobody to ask."""
    call = ToolContext(session="s", person="owner", turn=1, call="s/1/0", progress=progress)
    return call if ask is None else msgspec.structs.replace(call, ask=ask)


@asynccontextmanager
async def opened(
    tmp_path: Path,
    log: MemoryLog | None = None,
    reserved: Sequence[str] = (),
    prepare_login: Callable[[OAuthFlow], None] | None = None,
    **servers: ServerKeys,
) -> AsyncIterator[McpServers]:
    """Provide the servers, connected or failed, in a `with` block."""
    workspace = tmp_path / "workspace"
    workspace.mkdir(exist_ok=True)
    source = McpServers(
        log=log or MemoryLog(),
        workspace=workspace,
        folder=tmp_path / "logins",
        environment=os.environ,
        reserved=lambda: reserved,
        prepare_login=prepare_login,
    )
    try:
        await source.reconfigure(servers)
        await source.settled()
        yield source
    finally:
        await source.close()


def report(source: McpServers, name: str) -> ServerReport:
    """The report on one server."""
    return next(each for each in source.reports() if each.name == name)


async def run(source: McpServers, tool: str, call: ToolContext | None = None, **arguments: Any) -> ToolOutput:
    """Call a tool by its offered name."""
    return await source.tools()[tool].run(arguments, call or call_context())


def alive(process: int) -> bool:
    """Return True if a process runs; a zombie does not."""
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in ("Z", "X")
