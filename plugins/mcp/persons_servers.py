"""The servers as one person may see them in one chat: all see them and use their prompts, only the owner accepts changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from plugins.api.command import CommandFailed, McpServerEntry, ShownChanges
from plugins.api.plugin_services import LogUnusable
from plugins.mcp.definitions import one_visible_line
from plugins.mcp.mcp_servers import McpServer, McpServers
from plugins.support.errors import ToolFailed
from plugins.support.workspace import OWNER
from plugins.tools.web.provenance import SERVERS_PROMPT

SHORT_DIGEST = 12
"""The digits of a digest that a person types."""


class PersonsServers:
    """An `McpView`, which documents the methods. `send` sends a text as a message of the person."""

    def __init__(self, servers: McpServers, person: str, send: Callable[[str], Awaitable[None]], *, group: bool) -> None:
        self._servers = servers
        self._send = send
        self._owner = person == OWNER and not group

    def listed(self) -> Sequence[McpServerEntry]:
        """Return the configured servers; the reason of a failure to the owner only."""
        return [
            McpServerEntry(
                name=report.name,
                ready=report.ready,
                about=", ".join(filter(None, (report.server, report.protocol and f"protocol {report.protocol}"))),
                problem=report.problem if self._owner else "",
                tools=report.tools,
                changed=report.changed,
                prompts=tuple(map(_usage, self._server(report.name).prompts)),
            )
            for report in self._servers.reports()
        ]

    async def changes(self, server: str) -> ShownChanges:
        """Return the changed definitions that are withheld."""
        self._check_owner()
        try:
            text, digest = await self._server(server).changes()
        except LogUnusable as error:
            raise CommandFailed(str(error)) from error
        if not text:
            raise CommandFailed(f"The MCP server {server} has no changed definitions.")
        return ShownChanges(text=text, digest=digest[:SHORT_DIGEST])

    async def accept(self, server: str, digest: str) -> Sequence[str]:
        """Offer changed tools if they are those that were shown."""
        self._check_owner()
        try:
            accepted = await self._server(server).accept(digest.lower()) if len(digest) >= SHORT_DIGEST else []
        except LogUnusable as error:
            raise CommandFailed(str(error)) from error
        if not accepted:
            raise CommandFailed(f"The definitions have another digest; look at them with `/mcp show {server}`.")
        return accepted

    async def log_in(self, server: str, address: str = "") -> str:
        """Begin a login, or end it with the address that the browser was sent back to."""
        self._check_owner()
        self._server(server)
        try:
            if not address:
                return await self._servers.begin_login(server)
            await self._servers.finish_login(server, address)
        except ToolFailed as error:
            raise CommandFailed(str(error)) from error
        return ""

    async def run_prompt(self, server: str, prompt: str, arguments: Mapping[str, str]) -> None:
        """Send a prompt as a message that says where it is from."""
        from plugins.mcp.results import prompt_text  # noqa: PLC0415 - needs the SDK, which is loaded if there is a server

        try:
            result = await self._server(server).connected().prompt(prompt, dict(arguments))
        except ToolFailed as error:
            raise CommandFailed(str(error)) from error
        await self._send(SERVERS_PROMPT.format(one_visible_line(prompt, 100), server) + prompt_text(result))

    def _server(self, name: str) -> McpServer:
        server = self._servers.server(name)
        if server is None:
            known = ", ".join(report.name for report in self._servers.reports())
            raise CommandFailed(f"There is no MCP server {name!r}; the servers are {known or 'not configured'}.")
        return server

    def _check_owner(self) -> None:
        if not self._owner:
            raise CommandFailed("Only the owner can do this, and only in a private chat.")


def _usage(prompt: Mapping[str, Any]) -> str:
    """Return a prompt with its arguments, those that may be missing in brackets."""
    words = [one_visible_line(str(prompt.get("name")), 100)]
    for argument in prompt.get("arguments") or ():
        name = one_visible_line(str(argument.get("name")), 50).upper()
        words.append(name if argument.get("required") else f"[{name}]")
    return " ".join(words)
