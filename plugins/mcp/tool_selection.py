"""The tools of servers as they are offered: all, or, where their definitions would fill the window, those that a model found
with `find_tools`; and `mcp_resources`, which lists and reads what servers offer besides tools.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, ClassVar, cast

import msgspec

from plugins.api.tool import ApprovalRequest, Tool, ToolContext, ToolOutput
from plugins.mcp.definitions import one_visible_line
from plugins.mcp.mcp_servers import FIND_TOOLS, RESOURCES, McpServer, McpServers
from plugins.support.errors import ToolFailed
from plugins.support.text.words import word_set
from plugins.tools.file_changes import convert
from sessions.events.messages import ToolDefinition
from sessions.events.tokens import estimate

SHARE = 0.1
"""The share of the window that definitions may fill."""

USUAL_WINDOW = 32_768
"""The window that is assumed where it is unknown, in tokens."""

RESULTS = 8
"""Tools that a search returns."""

LISTED = 200
"""Resources of a server that are listed."""

_PARTS = re.compile(r"[a-z0-9]+|[A-Z]+(?![a-z])|[A-Z][a-z0-9]*")


class FindArguments(msgspec.Struct, frozen=True):
    """Arguments of `find_tools`."""

    query: Annotated[str, msgspec.Meta(min_length=1, max_length=2000)]


class ResourceArguments(msgspec.Struct, frozen=True):
    """Arguments of `mcp_resources`."""

    server: Annotated[str, msgspec.Meta(min_length=1, max_length=64)] | None = None
    uri: Annotated[str, msgspec.Meta(min_length=1, max_length=4096)] | None = None


class ToolSelection:
    """A `ToolSource` with the tools of all servers.

    Args:
        servers: The servers.
        window: Returns the window of the configured model in tokens; None if it is unknown.
    """

    def __init__(self, servers: McpServers, window: Callable[[], int | None]) -> None:
        self._servers = servers
        self._window = window
        self._found: dict[str, None] = {}
        self._tokens: tuple[int, dict[str, int]] = (-1, {})
        self._offered: tuple[object, Mapping[str, Tool]] = (None, {})
        self._own = {FIND_TOOLS: cast("Tool", FindTools(self)), RESOURCES: cast("Tool", Resources(servers))}

    def tools(self) -> Mapping[str, Tool]:
        """Return the tools that are offered now."""
        version, tokens = self._servers.version, self._sizes()
        if not tokens:
            return {}
        room = SHARE * (self._window() or USUAL_WINDOW)
        key = version, room, tuple(self._found)
        if self._offered[0] != key:
            self._offered = key, self._selected(tokens, room)
        return self._offered[1]

    def search(self, query: str) -> Sequence[Tool]:
        """Return the tools that fit a query best, and offer them from the next request on."""
        wanted = word_set(query)
        known = self._servers.tools()
        scores = {name: _score(wanted, tool.definition) for name, tool in known.items()}
        best = sorted((name for name in known if scores[name]), key=lambda name: (-scores[name], name))[:RESULTS]
        for name in reversed(best):
            self._found.pop(name, None)
            self._found[name] = None
        return [known[name] for name in best]

    def _sizes(self) -> dict[str, int]:
        """Return the estimated tokens of each definition."""
        if self._tokens[0] != self._servers.version:
            known = self._servers.tools()
            encode = msgspec.json.encode
            sizes = {name: estimate(encode(tool.definition).decode()) for name, tool in known.items()}
            self._tokens = self._servers.version, sizes
        return self._tokens[1]

    def _selected(self, tokens: Mapping[str, int], room: float) -> Mapping[str, Tool]:
        known = self._servers.tools()
        own = {RESOURCES: self._own[RESOURCES]} if self._servers.with_resources() else {}
        if sum(tokens.values()) <= room:
            return {**known, **own}
        self._found = {name: None for name in self._found if name in known}
        chosen: list[str] = []
        for name in reversed(self._found):
            room -= tokens[name]
            if room < 0 and chosen:
                break
            chosen.append(name)
        return {FIND_TOOLS: self._own[FIND_TOOLS], **{name: known[name] for name in sorted(chosen)}, **own}


class FindTools:
    """The `find_tools` tool."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name=FIND_TOOLS,
        description=(
            "Find tools of MCP servers by what they do; there are more of them than are listed here. The tools that are"
            " found can be called afterwards."
        ),
        parameters={
            "type": "object",
            "properties": {"query": {"type": "string", "description": "What the tool must do, in a few words."}},
            "required": ["query"],
            "additionalProperties": False,
        },
    )
    repeatable: ClassVar[bool] = True

    def __init__(self, selection: ToolSelection) -> None:
        self._selection = selection

    async def approval(self, arguments: dict[str, Any], call: ToolContext) -> ApprovalRequest | None:
        """Return None: the search asks no server."""
        return None

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Return the tools that were found."""
        found = self._selection.search(convert(arguments, FindArguments).query)
        if not found:
            return ToolOutput(text="No tool of an MCP server fits these words; try others.")
        lines = [f"- {tool.definition.name}: {one_visible_line(tool.definition.description, 300)}" for tool in found]
        return ToolOutput(text="\n".join(["These tools can be called now:", *lines]))


class Resources:
    """The `mcp_resources` tool. Reading is approved: the address of a resource may carry data to the server."""

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name=RESOURCES,
        description="List the resources of MCP servers, such as files and pages, or read one of them.",
        parameters={
            "type": "object",
            "properties": {
                "server": {"type": "string", "description": "The name of the server; all are listed without it."},
                "uri": {"type": "string", "description": "The address of the resource to read, as it was listed."},
            },
            "additionalProperties": False,
        },
    )
    repeatable: ClassVar[bool] = True

    def __init__(self, servers: McpServers) -> None:
        self._servers = servers

    async def approval(self, arguments: dict[str, Any], call: ToolContext) -> ApprovalRequest | None:
        """Describe what would be read; None for a list."""
        wanted = convert(arguments, ResourceArguments)
        if wanted.uri is None:
            return None
        return ApprovalRequest(what=f"{self._server(wanted.server).name}: read {one_visible_line(wanted.uri, 4096)}")

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Return the list, or the content.

        Raises:
            ToolFailed: There is no such server, or it refuses.
        """
        from plugins.mcp.results import resource_output  # noqa: PLC0415 - needs the SDK, which is loaded now

        wanted = convert(arguments, ResourceArguments)
        if wanted.uri is not None:
            return resource_output(await self._server(wanted.server).connected().resource(wanted.uri))
        servers = self._servers.with_resources() if wanted.server is None else [self._server(wanted.server)]
        lines = []
        for server in servers:
            found = await server.connected().resources()
            lines += [f"{server.name}: {_about(each)}" for each in found[:LISTED]]
            lines += [f"{server.name}: … {len(found) - LISTED:,} more"] if len(found) > LISTED else []
        return ToolOutput(text="\n".join(lines) or "There are no resources.")

    def _server(self, name: str | None) -> McpServer:
        there = self._servers.with_resources()
        if name is None and len(there) == 1:
            return there[0]
        found = next((server for server in there if server.name == name), None)
        if found is None:
            known = ", ".join(server.name for server in there)
            raise ToolFailed(f"Name the server of the resource: {known or 'there is none with resources'}.")
        return found


def _about(resource: Any) -> str:
    title = one_visible_line(resource.title or resource.name or "", 200)
    return f"{one_visible_line(str(resource.uri), 2000)} {title}".rstrip()


def _score(wanted: frozenset[str], definition: ToolDefinition) -> int:
    """Return how well a tool fits: words of its name count three times."""
    name = word_set(" ".join(_PARTS.findall(definition.name)))
    return 3 * len(wanted & name) + len(wanted & word_set(definition.description))
