"""The servers of `[mcp.NAME]`, as one source of tools: it starts and stops their connections as the configuration says.

The SDK is imported, in a thread, when the first server is configured. What a server says about a tool is pinned by its
digest when the tool is first offered; a tool whose definition changed is withheld until a person accepts it.
"""

from __future__ import annotations

import asyncio
import difflib
import hashlib
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import msgspec
import structlog

from plugins.api.plugin_services import PluginLog
from plugins.api.tool import ApprovalRequest, Tool, ToolContext, ToolOutput
from plugins.mcp.definitions import TOOLS, DefinitionRefused, ServerTool, one_visible_line, server_tool
from plugins.mcp.mcp_settings import EXTRA, ServerKeys
from plugins.sandbox.policy import AcceptedLevel, Level, SandboxStatus, accepted_level
from plugins.support.errors import ToolFailed
from sessions.events.messages import ToolDefinition

if TYPE_CHECKING:
    from plugins.mcp.chat_logins import ChatLogin
    from plugins.mcp.connection import Connection, Health, Listing
    from plugins.mcp.oauth import OAuthFlow

FIND_TOOLS, RESOURCES = "find_tools", "mcp_resources"
"""The names of the client's own tools."""

PINNED = 2_000
"""Tools of one server whose definitions are kept."""

TEXT_LENGTH = 8_000
"""Characters of a definition that are kept, to show what changed."""

log = structlog.get_logger("exuvia.mcp")

Connect: TypeAlias = Callable[..., "Connection"]


class PinnedTool(msgspec.Struct, frozen=True, kw_only=True, tag="tool_pinned", tag_field="kind"):
    """A definition was offered for the first time, or accepted again: its server, its own name, its digest, and the
    beginning of its text."""

    server: str
    tool: str
    digest: str
    text: str = ""


class ServerReport(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a server.

    Attributes:
        name: Its name in the configuration.
        where: Its command or address.
        ready: It is connected.
        problem: Why it is not, or what is wrong with it; "" if nothing is.
        server: The name and version that it reports.
        protocol: The version of the protocol.
        tools: The names under which its tools are offered.
        changed: Its own names of tools that are withheld because their definitions changed.
        refused: Sentences about tools that cannot be offered.
        prompts: The names of its prompts.
        starts: How often it was connected to.
    """

    name: str
    where: str
    ready: bool = False
    problem: str = ""
    server: str = ""
    protocol: str = ""
    tools: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    prompts: tuple[str, ...] = ()
    starts: int = 0


class ServerToolCalls:
    """A tool of a server, as the model calls it."""

    def __init__(self, server: McpServer, tool: ServerTool) -> None:
        self.definition: ToolDefinition = tool.definition
        self.repeatable = server.keys.trust and tool.repeatable
        self._server = server
        self._tool = tool

    async def approval(self, arguments: dict[str, Any], _: ToolContext) -> ApprovalRequest:
        """Describe a call: the server, its name of the tool, and the arguments as JSON."""
        shown = msgspec.json.format(msgspec.json.encode(arguments, order="sorted")).decode()
        name = one_visible_line(self._tool.name, 200)
        # The digest: a call that was approved does not run with a definition that changed meanwhile.
        return ApprovalRequest(what=f"{self._server.name}: {name}", detail=shown, state=self._tool.digest)

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Call the tool. Raises ToolFailed."""
        from plugins.mcp.results import tool_output  # noqa: PLC0415 - needs the SDK, which is loaded now

        return tool_output(await self._server.connected().call_tool(self._tool.name, arguments, call))


class McpServer:
    """A configured server: its connection, and the tools that are offered of it."""

    def __init__(self, name: str, keys: ServerKeys, pins: Pins, reserved: Callable[[], Collection[str]]) -> None:
        self.name = name
        self.keys = keys
        self.tools: dict[str, Tool] = {}
        self.problem = ""
        self.version = 0
        self._pins = pins
        self._reserved = reserved
        self._connection: Connection | None = None
        self._listing: Listing | None = None
        self._changed: tuple[ServerTool, ...] = ()
        self._refused: tuple[str, ...] = ()
        self._running: asyncio.Task[None] | None = None

    def start(self, connect: Connect, oauth: OAuthFlow | None) -> None:
        """Connect, and stay connected."""
        self._connection = connect(self.name, self.keys, oauth=oauth, listed=self._take)
        self._running = asyncio.create_task(self._connection.run(), name=f"mcp-owner:{self.name}")

    async def stop(self) -> None:
        """Disconnect; the server's process ends."""
        self.tools = {}
        if self._running is not None:
            self._running.cancel()
            await asyncio.wait([self._running])

    def connected(self) -> Connection:
        """Return the connection. Raises ToolFailed if there is none."""
        if self._connection is None:
            raise ToolFailed(f"The MCP server {self.name} is not available: {self.problem or 'it is not connected'}.")
        return self._connection

    async def settled(self) -> None:
        """Wait until the server is ready, or cannot be reached."""
        if self._connection is not None:
            await self._connection.settled()

    def health(self) -> Health | None:
        """Return the state of the connection; None before there is one."""
        return None if self._connection is None else self._connection.health

    @property
    def has_resources(self) -> bool:
        """True if the server offers resources."""
        return self._listing is not None and self._listing.resources

    @property
    def prompts(self) -> Sequence[dict[str, Any]]:
        """The prompts that the server lists."""
        return self._listing.prompts if self._listing else ()

    def report(self) -> ServerReport:
        """Return the state for people."""
        health, listing = self.health(), self._listing
        return ServerReport(
            name=self.name,
            where=self.keys.url or " ".join(self.keys.command),
            ready=health is not None and health.ready,
            problem=self.problem or (health.problem if health else ""),
            server=listing.server if listing else "",
            protocol=listing.protocol if listing else "",
            tools=tuple(self.tools),
            changed=tuple(one_visible_line(tool.name, 100) for tool in self._changed),
            refused=self._refused,
            prompts=tuple(one_visible_line(str(prompt.get("name")), 100) for prompt in listing.prompts) if listing else (),
            starts=health.starts if health else 0,
        )

    async def changes(self) -> tuple[str, str]:
        """Return the changed definitions as a unified diff, and their digest; both are empty if there are none."""
        changed = self._changed
        if not changed:
            return "", ""
        known = [await self._pins.text(self.name, tool) for tool in changed]
        texts = [_difference(tool, before) for tool, before in zip(changed, known, strict=True)]
        return "\n".join(texts), _digest_of(changed)

    async def accept(self, digest: str) -> list[str]:
        """Offer the tools whose definitions changed, if their digest begins with this; return their names.

        Raises:
            LogUnusable: It cannot be recorded.
        """
        changed = self._changed
        if not changed or not _digest_of(changed).startswith(digest):
            return []
        for tool in changed:
            await self._pins.pin(self.name, tool)
        if self._listing is not None:
            await self._take(self._listing)
        return [one_visible_line(tool.name, 100) for tool in changed]

    async def _take(self, listing: Listing) -> None:
        """Offer the tools of a new listing, as far as they are allowed, valid, and the same as before."""
        refused: list[str] = []
        tools: dict[str, Tool] = {}
        changed: list[ServerTool] = []
        if len(listing.tools) > TOOLS:
            refused.append(f"{self.name} has more than {TOOLS} tools; the others are not offered.")
        for sent in listing.tools[:TOOLS]:
            name = one_visible_line(str(sent.get("name")), 100)
            if not self.keys.tools.admits(str(sent.get("name"))):
                continue
            try:
                tool = server_tool(self.name, sent)
                offered = tool.definition.name
                if offered in tools or offered in (FIND_TOOLS, RESOURCES) or offered in self._reserved():
                    raise DefinitionRefused(f"would be named {offered!r}, which is the name of another tool")
                admitted = await self._pins.admit(self.name, tool, trusted=self.keys.trust)
            except DefinitionRefused as error:
                refused.append(f"{self.name}: the tool {name!r} {error}.")
                continue
            if admitted:
                tools[offered] = cast("Tool", ServerToolCalls(self, tool))
            else:
                changed.append(tool)
        self._listing, self._changed, self._refused = listing, tuple(changed), tuple(refused)
        self.tools = tools
        self.version += 1
        log.info("mcp_tools_listed", server=self.name, offered=len(tools), changed=len(changed), refused=len(refused))


class Pins:
    """The digests of the definitions that were offered, in a durable log."""

    def __init__(self, log_: PluginLog) -> None:
        self._log = log_
        self._known: dict[tuple[str, str], PinnedTool] | None = None
        self._reading = asyncio.Lock()

    async def admit(self, server: str, tool: ServerTool, *, trusted: bool) -> bool:
        """Return True if a definition may be offered; one that is new, or of a trusted server, is pinned.

        Raises:
            DefinitionRefused: The server names ever new tools.
            LogUnusable: It cannot be recorded.
        """
        known = (await self._pinned()).get((server, tool.name))
        if known is not None and known.digest == tool.digest:
            return True
        if known is not None and not trusted:
            return False
        if known is None and sum(name == server for name, _ in await self._pinned()) >= PINNED:
            raise DefinitionRefused(f"is new, and the server has named {PINNED:,} tools before")
        await self.pin(server, tool)
        return True

    async def pin(self, server: str, tool: ServerTool) -> None:
        """Record a definition as offered. Raises LogUnusable."""
        known = await self._pinned()
        pinned = PinnedTool(server=server, tool=tool.name, digest=tool.digest, text=_text(tool)[:TEXT_LENGTH])
        await self._log.append(msgspec.to_builtins(pinned))
        known[server, tool.name] = pinned

    async def text(self, server: str, tool: ServerTool) -> str:
        """Return the text of the definition that was offered; "" if there was none. Raises LogUnusable."""
        known = (await self._pinned()).get((server, tool.name))
        return "" if known is None else known.text

    async def _pinned(self) -> dict[tuple[str, str], PinnedTool]:
        async with self._reading:
            if self._known is None:
                known: dict[tuple[str, str], PinnedTool] = {}
                after = 0
                while entries := await self._log.entries(after):
                    for entry in entries:
                        pinned = msgspec.convert(entry.entry, PinnedTool)
                        known[pinned.server, pinned.tool] = pinned
                    after = entries[-1].seq
                self._known = known
            return self._known


class McpServers:
    """All configured servers.

    Args:
        log: Keeps the digests of definitions.
        workspace: The folder in which programs run.
        folder: The folder for logins.
        environment: The gateway's environment.
        reserved: Returns the names of all other tools.
        sandbox_level: Returns the setting `sandbox.level`.
        prepare_login: Prepares the login to each server, for example for a person who is there to log in.
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
        prepare_login: Callable[[OAuthFlow], None] | None = None,
    ) -> None:
        self._sandbox_level = sandbox_level
        self._sandbox_status: SandboxStatus | None = None
        self._prepare_login = prepare_login
        self._pins = Pins(log)
        self._workspace = workspace
        self._folder = folder
        self._environment = environment
        self._reserved = reserved
        self._servers: dict[str, McpServer] = {}
        self._logins: dict[str, ChatLogin] = {}
        self._login_type: Callable[..., OAuthFlow] | None = None
        self._changing = asyncio.Lock()
        self._changes = 0

    @property
    def version(self) -> int:
        """A number that differs whenever the tools have changed."""
        return self._changes + sum(server.version for server in self._servers.values())

    def with_resources(self) -> list[McpServer]:
        """Return the servers that offer resources."""
        return [server for server in self._servers.values() if server.has_resources]

    def tools(self) -> Mapping[str, Tool]:
        """Return the tools of all servers by name."""
        return {name: tool for server in self._servers.values() for name, tool in server.tools.items()}

    def reports(self) -> Sequence[ServerReport]:
        """Return the state of every server."""
        return [server.report() for server in self._servers.values()]

    async def settled(self) -> None:
        """Wait until every server is ready, or cannot be reached."""
        await asyncio.gather(*(server.settled() for server in self._servers.values()))

    def problems(self) -> list[str]:
        """Return the present problems as sentences."""
        found: list[str] = []
        for report in self.reports():
            if report.problem and not report.ready:
                found.append(f"The MCP server {report.name} is not available: {report.problem.rstrip('.')}.")
            if report.changed:
                found.append(
                    f"The MCP server {report.name} changed the definitions of {', '.join(report.changed[:5])}, which are"
                    f" withheld until you accept them: `/mcp show {report.name}`."
                )
            found += report.refused
        return found

    async def reconfigure(self, servers: Mapping[str, ServerKeys]) -> None:
        """Start the servers that are new or changed, and stop those that are changed or gone."""
        async with self._changing:
            gone = [name for name, server in self._servers.items() if servers.get(name) != server.keys]
            self._changes += 1 + sum(self._servers[name].version for name in gone)
            await asyncio.gather(*(self._servers.pop(name).stop() for name in gone))
            new = {name: keys for name, keys in servers.items() if name not in self._servers}
            for name, keys in new.items():
                self._servers[name] = McpServer(name, keys, self._pins, self._reserved)
            if not new:
                return
            try:
                connect, login = await asyncio.to_thread(_load)
            except ImportError as error:
                for name in new:
                    self._servers[name].problem = f"the SDK is not installed ({error}): pip install '{EXTRA}'"
                return
            except Exception:  # such as no thread: the next call starts them
                for name in new:
                    del self._servers[name]
                raise
            self._login_type = login
            for name, keys in new.items():
                oauth = login(name, keys, self._folder / f"{name}.json") if keys.url and keys.auth == "oauth" else None
                if oauth is not None and self._prepare_login is not None:
                    self._prepare_login(oauth)
                self._servers[name].start(self._connector(connect), oauth)

    def server(self, name: str) -> McpServer | None:
        """Return a configured server."""
        return self._servers.get(name)

    async def begin_login(self, name: str) -> str:
        """Begin a login to a server; return the address that a person must open, "" if the server asks for none.

        Raises:
            ToolFailed: The server has no login, or none can begin.
        """
        server = self._servers[name]
        if not server.keys.url or server.keys.auth != "oauth" or self._login_type is None:
            raise ToolFailed(f'The MCP server {name} has no login: it needs a url, and auth = "oauth".')
        from plugins.mcp.chat_logins import ChatLogin  # noqa: PLC0415 - needs the SDK, which is loaded now
        from plugins.mcp.connection import Connection  # noqa: PLC0415 - as above
        from plugins.mcp.oauth import LoginNeeded  # noqa: PLC0415 - as above

        await self._end_login(name)
        connector = self._connector(Connection)
        login = ChatLogin(
            self._login_type(name, server.keys, self._folder / f"{name}.json"),
            lambda flow, listed: connector(name, server.keys, oauth=flow, listed=listed),
        )
        self._logins[name] = login
        try:
            return await login.address()
        except LoginNeeded as error:
            raise ToolFailed(f"The MCP server {name}: {error}.") from error

    async def finish_login(self, name: str, address: str) -> None:
        """End a login with the address that the browser was sent back to.

        Raises:
            ToolFailed: None was begun, or it failed.
        """
        login = self._logins.pop(name, None)
        if login is None:
            raise ToolFailed(f"No login to {name} was begun: `/mcp login {name}`.")
        from plugins.mcp.oauth import LoginNeeded  # noqa: PLC0415 - as above

        try:
            await login.finish(address)
        except LoginNeeded as error:
            raise ToolFailed(f"The login to {name} failed: {error}.") from error
        finally:
            await login.close()

    async def _end_login(self, name: str) -> None:
        if (login := self._logins.pop(name, None)) is not None:
            await login.close()

    async def close(self) -> None:
        """Stop all servers, and end all logins."""
        for name in tuple(self._logins):
            await self._end_login(name)
        await self.reconfigure({})

    def _connector(self, connect: Connect) -> Connect:
        def connection(name: str, keys: ServerKeys, **others: Any) -> Connection:
            return connect(
                name,
                keys,
                workspace=self._workspace,
                environment=self._environment,
                sandbox=self._find_level,
                **others,
            )

        return connection

    async def _find_level(self) -> Level | None:
        """Return the level at which servers run in the sandbox; None if it does not work, or the setting is `none`."""
        from plugins.sandbox.detection import detect  # noqa: PLC0415 - for servers in the sandbox only

        if self._sandbox_status is None:
            self._sandbox_status = await detect()
        level = accepted_level(self._sandbox_level(), self._sandbox_status)
        return None if level == "none" else level


def _text(tool: ServerTool) -> str:
    """Return a definition for people."""
    schema = msgspec.json.format(msgspec.json.encode(tool.definition.parameters)).decode()
    return f"{tool.definition.description}\n{schema}\n"


def _difference(tool: ServerTool, before: str) -> str:
    now = _text(tool)[:TEXT_LENGTH]
    lines = difflib.unified_diff(before.splitlines(), now.splitlines(), "before", "now", lineterm="", n=1)
    return "\n".join([f"{one_visible_line(tool.name, 100)}:", *lines])


def _digest_of(tools: Sequence[ServerTool]) -> str:
    return hashlib.sha256("".join(tool.digest for tool in tools).encode()).hexdigest()


def _load() -> tuple[Connect, Callable[..., OAuthFlow]]:
    """Import the SDK, which takes a second. Runs in a thread."""
    from plugins.mcp import connection, oauth  # noqa: PLC0415 - for configured servers only

    return connection.Connection, oauth.OAuthFlow
