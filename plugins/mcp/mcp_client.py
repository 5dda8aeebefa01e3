"""The client as the gateway holds it: nothing is imported, and nothing runs, until a server is configured."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from plugins.api.command import CommandFailed, McpServerEntry, McpView, ShownChanges
from plugins.api.plugin_services import PluginLog
from plugins.api.tool import Tool
from plugins.mcp.mcp_settings import ServerKeys
from plugins.sandbox.policy import AcceptedLevel

if TYPE_CHECKING:
    from plugins.mcp.mcp_servers import McpServers
    from plugins.mcp.tool_selection import ToolSelection

Send = Callable[[str], Awaitable[None]]


class McpClient:
    """A `ToolSource` with the tools of all configured servers.

    Args:
        log: Keeps the digests of definitions.
        workspace: The folder in which programs run.
        folder: The folder for logins.
        environment: The gateway's environment.
        reserved: Returns the names of all other tools.
        sandbox_level: Returns the setting `sandbox.level`.
        window: Returns the window of the configured model in tokens; None if it is unknown.
    """

    def __init__(
        self,
        *,
        log: PluginLog,
        workspace: Path,
        folder: Path,
        environment: Mapping[str, str],
        reserved: Callable[[], Collection[str]] = tuple,
        sandbox_level: Callable[[], AcceptedLevel] = lambda: "auto",
        window: Callable[[], int | None] = lambda: None,
    ) -> None:
        self._log = log
        self._workspace = workspace
        self._folder = folder
        self._environment = environment
        self._reserved = reserved
        self._sandbox_level = sandbox_level
        self._window = window
        self._opening = asyncio.Lock()
        self._opened: tuple[McpServers, ToolSelection] | None = None

    def tools(self) -> Mapping[str, Tool]:
        """Return the tools that are offered now."""
        return {} if self._opened is None else self._opened[1].tools()

    def tools_of(self, servers: Collection[str]) -> Mapping[str, Tool]:
        """Return the tools of some servers that are offered now, without those that search and read resources."""
        if self._opened is None or not servers:
            return {}
        found = [self._opened[0].server(name) for name in servers]
        return {name: tool for server in found if server is not None for name, tool in server.tools.items()}

    def problems(self) -> list[str]:
        """Return the present problems as sentences."""
        return [] if self._opened is None else self._opened[0].problems()

    def view(self, person: str, send: Send, *, group: bool) -> McpView:
        """Return the servers as a person may see them; `send` sends a text as their message."""
        if self._opened is None:
            return NoServers()
        from plugins.mcp.persons_servers import PersonsServers  # noqa: PLC0415 - for configured servers only

        return PersonsServers(self._opened[0], person, send, group=group)

    async def reconfigure(self, servers: Mapping[str, ServerKeys]) -> None:
        """Start the servers that are new or changed, and stop those that are changed or gone."""
        async with self._opening:
            if self._opened is None and servers:
                self._opened = await asyncio.to_thread(self._open)
        if self._opened is not None:
            await self._opened[0].reconfigure(servers)

    async def settled(self) -> None:
        """Wait until every server is ready, or cannot be reached."""
        if self._opened is not None:
            await self._opened[0].settled()

    async def close(self) -> None:
        """Stop all servers."""
        if self._opened is not None:
            await self._opened[0].close()

    def _open(self) -> tuple[McpServers, ToolSelection]:
        """Import the client's modules. Runs in a thread."""
        from plugins.mcp.mcp_servers import McpServers  # noqa: PLC0415 - for configured servers only
        from plugins.mcp.tool_selection import ToolSelection  # noqa: PLC0415 - as above

        servers = McpServers(
            log=self._log,
            workspace=self._workspace,
            folder=self._folder,
            environment=self._environment,
            reserved=self._reserved,
            sandbox_level=self._sandbox_level,
        )
        return servers, ToolSelection(servers, self._window)


class NoServers:
    """An `McpView` where no server is configured."""

    def listed(self) -> Sequence[McpServerEntry]:
        """Return no servers."""
        return ()

    async def changes(self, server: str) -> ShownChanges:
        """Find no server."""
        raise _no_server(server)

    async def accept(self, server: str, digest: str) -> Sequence[str]:
        """Find no server."""
        raise _no_server(server)

    async def log_in(self, server: str, address: str = "") -> str:
        """Find no server."""
        raise _no_server(server)

    async def run_prompt(self, server: str, prompt: str, arguments: Mapping[str, str]) -> None:
        """Find no server."""
        raise _no_server(server)


def _no_server(name: str) -> CommandFailed:
    return CommandFailed(f"There is no MCP server {name!r}; none is configured.")
