"""`exuvia mcp serve`: a server of the Model Context Protocol over standard input and output, for programs that start one.

It passes each message to `/mcp` of the running gateway and prints the response, so that it holds no state and no SDK.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgspec

from gateway.cli.options import SUCCESS
from gateway.terminal.client.local_gateway import GatewayEndpoint, address_of

LINE_BYTES = 2 * 1024 * 1024
"""Bytes of the longest message."""

SECONDS = 600.0
"""Seconds that one request may take."""

PROTOCOL = "MCP-Protocol-Version"
META = "io.modelcontextprotocol/protocolVersion"
"""The key of a message's `_meta` with the version of the protocol, which over HTTP is a header."""

INTERNAL_ERROR = -32603

Post = Callable[[bytes, dict[str, str]], Awaitable[tuple[int, bytes]]]


class _Message(msgspec.Struct):
    """The parts of a message that decide about the headers of its request."""

    method: str = ""
    id: int | str | None = None
    params: dict[str, Any] = {}


class _Initialized(msgspec.Struct):
    protocolVersion: str = ""  # noqa: N815 - the name on the wire


class _Response(msgspec.Struct):
    result: _Initialized | None = None


class StdioServer:
    """Passes messages to the gateway. `write` writes one line of the output."""

    def __init__(self, post: Post, write: Callable[[bytes], None]) -> None:
        self._post = post
        self._write = write
        self._negotiated = ""
        """The version of the protocol, if the client began with `initialize`."""

    async def run(self, lines: asyncio.StreamReader) -> None:
        """Handle messages until the end of the input. Requests run concurrently, except `initialize`."""
        async with asyncio.TaskGroup() as group:
            while line := await lines.readline():
                if line.strip():
                    message = _parsed(line)
                    if message.method == "initialize":
                        await self._pass_on(line, message)
                    else:
                        group.create_task(self._pass_on(line, message))

    async def _pass_on(self, line: bytes, message: _Message) -> None:
        headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
        meta = message.params.get("_meta")
        version = str(meta.get(META, "")) if isinstance(meta, dict) else ""
        if version := version or self._negotiated:
            headers[PROTOCOL] = version
        headers |= _routing_headers(message) if isinstance(meta, dict) and META in meta else {}
        try:
            status, body = await self._post(line, headers)
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._answer_failure(message, f"The gateway cannot be reached: {error or type(error).__name__}.")
            return
        if message.method == "initialize" and status == 200:
            self._negotiated = _version_in(body)
        if not body or status == 202:
            return
        if status in (401, 403, 404, 501, 503) and b'"jsonrpc"' not in body:
            self._answer_failure(message, f"The gateway refused this ({status}): {body.decode(errors='replace')[:500]}")
            return
        self._write(body.replace(b"\r", b" ").replace(b"\n", b" ") + b"\n")

    def _answer_failure(self, message: _Message, sentence: str) -> None:
        if message.id is not None:
            error = {"code": INTERNAL_ERROR, "message": sentence}
            self._write(msgspec.json.encode({"jsonrpc": "2.0", "id": message.id, "error": error}) + b"\n")


def _routing_headers(message: _Message) -> dict[str, str]:
    """Return the headers that repeat a message's method and name, which protocols since 2026 require over HTTP."""
    name = message.params.get("name") if message.method == "tools/call" else None
    return {"Mcp-Method": message.method} | ({"Mcp-Name": name} if isinstance(name, str) else {})


def _parsed(line: bytes) -> _Message:
    try:
        return msgspec.json.decode(line, type=_Message)
    except msgspec.MsgspecError:
        return _Message()  # the gateway says what is wrong with it


def _version_in(body: bytes) -> str:
    try:
        response = msgspec.json.decode(body, type=_Response)
    except msgspec.MsgspecError:
        return ""
    return response.result.protocolVersion if response.result else ""


def run(endpoint: GatewayEndpoint) -> int:
    """Serve standard input and output until the input ends; return the exit code."""
    asyncio.run(_serve(endpoint))
    return SUCCESS


async def _serve(endpoint: GatewayEndpoint) -> None:
    url = f"{address_of(endpoint.url)}/mcp"
    timeout = aiohttp.ClientTimeout(total=SECONDS)
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {endpoint.token}"}, timeout=timeout) as http:

        async def post(line: bytes, headers: dict[str, str]) -> tuple[int, bytes]:
            async with http.post(url, data=line, headers=headers, allow_redirects=False) as response:
                return response.status, await response.read()

        def write(line: bytes) -> None:
            sys.stdout.buffer.write(line)
            sys.stdout.buffer.flush()

        lines = asyncio.StreamReader(limit=LINE_BYTES)
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
        await StdioServer(post, write).run(lines)
