"""`exuvia mcp list|check|login`: the configured servers of the Model Context Protocol.

Each function prints and returns an exit code: 0 success, 1 a server cannot be used as it is.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
import msgspec

from gateway.cli.options import PROBLEM, SUCCESS, Invocation, print_json
from gateway.config.keys import Config
from gateway.config.keys import check_servers as check_keys
from gateway.plugin_runtime.plugin_loading import allowed_plugins
from gateway.support import logs
from gateway.support.printable import one_line
from gateway.support.session_status import count_of
from plugins.api.plugin_services import LogEntry
from plugins.mcp.mcp_servers import McpServers, ServerReport
from plugins.mcp.mcp_settings import ServerKeys

if TYPE_CHECKING:
    from plugins.mcp.oauth import OAuthFlow


class ListedServer(msgspec.Struct, frozen=True, kw_only=True):
    """A configured server: its command or address, and whether it is trusted and a login is kept."""

    name: str
    where: str
    trust: bool
    login: bool


def list_servers(call: Invocation) -> int:
    """Print the configured servers."""
    config = _config(call)
    folder = call.home.mcp_logins
    listed = [
        ListedServer(
            name=name,
            where=keys.url or " ".join(keys.command),
            trust=keys.trust,
            login=(folder / f"{name}.json").is_file(),
        )
        for name, keys in config.mcp.items()
    ]
    if call.as_json:
        print_json(listed, call.out)
    else:
        call.out.writelines(f"{line}\n" for line in _list(listed))
    return SUCCESS


def check_servers(call: Invocation, name: str | None) -> int:
    """Connect to servers, and print what they offer."""
    config = _config(call)
    if name is not None:
        _server(config, name)
    servers = {each: keys for each, keys in config.mcp.items() if name in (None, each)}
    reports = asyncio.run(_check(call, config, servers))
    if call.as_json:
        print_json(reports, call.out)
    else:
        call.out.writelines(f"{line}\n" for report in reports for line in _lines(report))
    return SUCCESS if all(report.ready and not report.refused for report in reports) else PROBLEM


def log_in(call: Invocation, name: str, *, paste: bool) -> int:
    """Log in to a server, and print the tools that it then offers."""
    config = _config(call)
    keys = _server(config, name)
    if not keys.url or keys.auth != "oauth":
        raise click.ClickException(f'The server {name!r} has no login: it needs a url, and auth = "oauth".')
    return asyncio.run(_log_in(call, config, name, paste=paste))


async def _log_in(call: Invocation, config: Config, name: str, *, paste: bool) -> int:
    from plugins.mcp import oauth  # noqa: PLC0415 - imports the SDK

    flows: list[oauth.OAuthFlow] = []
    async with oauth.callback_listener() as (redirect, browser):

        async def show(url: str) -> None:
            call.out.write(f"Open this address in a browser, and log in:\n\n{url}\n\n")
            if paste:
                call.out.write("Paste the address that the browser was sent back to, and press Enter:\n")
            call.out.flush()

        async def pasted() -> Any:
            return oauth.authorization_result((await asyncio.to_thread(sys.stdin.readline)).strip())

        def prepare(flow: oauth.OAuthFlow) -> None:
            flow.interactive(show, pasted if paste else browser, redirect)
            flows.append(flow)

        (report,) = await _check(call, config, {name: config.mcp[name]}, prepare)
    call.out.writelines(f"{line}\n" for line in _lines(report))
    if report.ready:
        there = any(flow.logged_in for flow in flows)
        call.out.write("You are logged in.\n" if there else "The server asks for no login.\n")
    return SUCCESS if report.ready else PROBLEM


def forget_login(call: Invocation, name: str) -> int:
    """Delete the login to a server."""
    _server(_config(call), name)
    file = call.home.mcp_logins / f"{name}.json"
    if not file.is_file():
        raise click.ClickException(f"There is no login to {name!r}.")
    file.unlink()
    call.out.write(f"The login to {name} was deleted; the server may still accept its tokens until they expire.\n")
    return SUCCESS


async def _check(
    call: Invocation,
    config: Config,
    servers: Mapping[str, ServerKeys],
    prepare_login: Callable[[OAuthFlow], None] | None = None,
) -> Sequence[ServerReport]:
    others = allowed_plugins(config).tools()
    workspace = call.home.workspace(config.agent.workspace)
    opened = McpServers(
        log=_NoLog(),
        workspace=workspace if workspace.is_dir() else call.home.root.parent,
        folder=call.home.mcp_logins,
        environment=call.environment,
        reserved=lambda: others,
        sandbox_level=lambda: config.sandbox.level,
        prepare_login=prepare_login,
    )
    try:
        await opened.reconfigure(servers)
        await opened.settled()
        return opened.reports()
    finally:
        await opened.close()


def _server(config: Config, name: str) -> ServerKeys:
    """Return the keys of a server. Raises ClickException if it is not configured."""
    if name not in config.mcp:
        known = f"the servers are {', '.join(config.mcp)}" if config.mcp else "none is configured"
        raise click.ClickException(f"There is no server {name!r} in [mcp]; {known}.")
    return config.mcp[name]


class _NoLog:
    """A log that keeps nothing: a check pins no definition."""

    async def append(self, entry: Any) -> int:
        return 0

    async def entries(self, after: int = 0, limit: int = 1000) -> Sequence[LogEntry]:
        return ()


def _config(call: Invocation) -> Config:
    logs.configure("error", "auto")
    config = call.config()
    check_keys(config)
    return config


def _list(listed: Sequence[ListedServer]) -> Iterator[str]:
    if not listed:
        yield "No server is configured: add a table [mcp.NAME] to the configuration."
    for each in listed:
        remarks = [*(["trusted"] if each.trust else []), *(["logged in"] if each.login else [])]
        remark = f" ({', '.join(remarks)})" if remarks else ""
        yield one_line(f"{each.name:20} {each.where}{remark}", 400)


def _lines(report: ServerReport) -> Iterator[str]:
    if not report.ready:
        yield one_line(f"{report.name} is not available: {report.problem}.", 600)
        return
    about = f"{report.server or 'without a name'}, protocol {report.protocol}"
    counts = f"{count_of(len(report.tools), 'tool')}, {count_of(len(report.prompts), 'prompt')}"
    yield one_line(f"{report.name}: {about}, {counts}.", 600)
    yield from (f"  {one_line(line, 600)}" for line in (*report.tools, *report.refused))
