"""The clients that the protocol's conformance suite drives: `python -m tests.mcp.conformance_client SOCKET`.

It forks one for each `conformance_command` that connects. A client opens the server as the gateway does, logs in where it is
asked to, and calls its tools. What the person would do, the suite's pages do at once.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

import httpx2

from plugins.api.tool import ApprovalRequest, Tool
from plugins.mcp.mcp_settings import OAuthKeys, ServerKeys
from plugins.mcp.oauth import OAuthFlow, authorization_result
from plugins.support.errors import ToolFailed
from plugins.support.secrets import Secret
from tests.mcp.mcp_stage import call_context, opened, report

ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}
"""Arguments of the tools that need some."""


async def approve(_: ApprovalRequest) -> bool:
    return True


def log_in_at_once(flow: OAuthFlow) -> None:
    """Let the suite's authorization server redirect at once, as a browser would follow it."""
    arrived: list[str] = []

    async def show(url: str) -> None:
        async with httpx2.AsyncClient() as browser:
            response = await browser.get(url)
            arrived.append(response.headers["Location"])

    async def answer() -> Any:
        return authorization_result(arrived[-1])

    flow.interactive(show, answer, "http://127.0.0.1:8765/callback")


def keys(url: str, context: dict[str, Any]) -> ServerKeys:
    oauth = OAuthKeys(
        client_id=context.get("client_id"),
        client_secret=Secret(context["client_secret"]) if "client_secret" in context else None,
        client_metadata_url="https://conformance-test.local/client-metadata.json",
    )
    return ServerKeys(url=url, oauth=oauth)


async def call(tools: dict[str, Tool], name: str, arguments: dict[str, Any]) -> None:
    try:
        output = await tools[f"suite_{name}"].run(arguments, call_context(ask=approve))
    except ToolFailed as error:
        sys.stdout.write(f"{name} failed: {error}\n")
    else:
        sys.stdout.write(f"{name} returned: {output.text[:300]}\n")


async def main(url: str) -> int:
    context = json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}"))
    with tempfile.TemporaryDirectory() as folder:
        async with opened(Path(folder), prepare_login=log_in_at_once, suite=keys(url, context)) as source:
            seen = report(source, "suite")
            sys.stdout.write(f"{seen}\n")
            if not seen.ready:
                return 1
            tools = dict(source.tools())
            names = [name.removeprefix("suite_") for name in tools]
            if "toolCalls" in context:
                for each in context["toolCalls"]:
                    await call(tools, each["name"], each["arguments"])
            elif os.environ["MCP_CONFORMANCE_SCENARIO"] == "json-schema-2020-12-preservation":
                focal, echo = names
                await call(tools, echo, {"schema": tools[f"suite_{focal}"].definition.parameters})
            else:
                await asyncio.gather(*(call(tools, name, ARGUMENTS.get(name, {})) for name in names))
    return 0


def run_for(command: socket.socket) -> NoReturn:
    """Run a client in this process for the command that is connected, and end with it."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        told, outputs, _, _ = socket.recv_fds(command, 1 << 20, 2)
        for number, output in enumerate(outputs, 1):
            os.dup2(output, number)
        asked = json.loads(told)
        os.environ.update(asked["environment"])
        code = asyncio.run(main(asked["url"]))
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        command.send(str(code).encode())
        os._exit(code)


def serve(place: str) -> NoReturn:
    """Fork a client for each command that connects."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
        listening.bind(place)
        listening.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            command, _ = listening.accept()
            if not os.fork():
                run_for(command)
            command.close()


if __name__ == "__main__":
    serve(sys.argv[1])
