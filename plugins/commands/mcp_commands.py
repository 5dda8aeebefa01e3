"""The `/mcp` command, which lists MCP servers, shows and accepts changed tools, and sends prompts."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView, McpServerEntry
from plugins.commands.markdown import block_text, code, one_line

TOOLS_LISTED = 40
"""Tools of a server that are listed."""


class McpCommand:
    """The `/mcp` command. Changed definitions are accepted by the digest that was shown with them."""

    name: ClassVar[str] = "mcp"
    usage: ClassVar[str] = (
        "/mcp [show NAME | accept NAME DIGEST | login NAME [ADDRESS] | prompt NAME PROMPT [ARGUMENT=VALUE …]]"
    )
    summary: ClassVar[str] = "List the MCP servers, show and accept changes of their tools, log in, and use their prompts."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the list, or with what was done; raise CommandFailed if it cannot be done."""
        try:
            words = shlex.split(argument)
        except ValueError as error:
            raise CommandFailed("A quotation mark has no end.") from error
        match words:
            case []:
                return _listing(conversation.mcp.listed())
            case ["show", server]:
                shown = await conversation.mcp.changes(server)
                accept = code(f"/mcp accept {server} {shown.digest}")
                return f"```diff\n{block_text(shown.text)}\n```\n\nTo accept exactly this: {accept}"
            case ["accept", server, digest]:
                tools = await conversation.mcp.accept(server, digest)
                return f"Offered again from the next turn on: {', '.join(map(code, tools))}."
            case ["login", server]:
                return _login(server, await conversation.mcp.log_in(server))
            case ["login", server, address]:
                await conversation.mcp.log_in(server, address)
                return f"You are logged in to {code(server)}."
            case ["prompt", server, prompt, *given]:
                await conversation.mcp.run_prompt(server, prompt, _arguments(given))
                return f"The prompt {code(prompt)} was sent."
        raise CommandFailed(f"Write {self.usage}.")


def _login(server: str, address: str) -> str:
    if not address:
        return f"The MCP server {code(server)} asks for no login."
    return (
        f"Open this address and log in:\n\n{code(address)}\n\nA browser on another machine ends at an address that does not"
        f" open: copy that and send {code(f'/mcp login {server} ADDRESS')}."
    )


def _arguments(given: Sequence[str]) -> Mapping[str, str]:
    pairs = [each.partition("=") for each in given]
    if not all(name and equals for name, equals, _ in pairs):
        raise CommandFailed(
            'Write the arguments of a prompt as NAME=VALUE, with quotation marks if needed: path="my notes.md".'
        )
    return {name: value for name, _, value in pairs}


def _listing(servers: Sequence[McpServerEntry]) -> str:
    if not servers:
        return "There are no MCP servers. `[mcp.NAME]` in the configuration is one."
    lines = ["**MCP servers**", ""]
    for server in servers:
        state = one_line(server.about, 200) if server.ready else f"**not available** {one_line(server.problem, 300)}"
        lines.append(f"- {code(server.name)} {state}".rstrip())
        if server.tools:
            more = f" and {len(server.tools) - TOOLS_LISTED} more" if len(server.tools) > TOOLS_LISTED else ""
            lines.append(f"  - tools: {', '.join(map(code, server.tools[:TOOLS_LISTED]))}{more}")
        if server.changed:
            shown = code(f"/mcp show {server.name}")
            lines.append(f"  - **changed, not offered**: {', '.join(map(code, server.changed))}; {shown}")
        if server.prompts:
            lines.append(f"  - prompts: {', '.join(code(prompt) for prompt in server.prompts)}")
    return "\n".join(lines)
