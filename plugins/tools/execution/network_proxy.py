"""The HTTP proxy through which commands in the sandbox reach the hosts of `sandbox.network`, and nothing else.

It resolves each name itself, once, and connects to exactly these addresses, which must be public. So neither a name that
points into the local network nor one that changes its address after the check gets anywhere. TLS is not opened, but a client
must ask for the host that it connected to: a server that stands for many hosts would answer for another one.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TypeAlias
from urllib.parse import urlsplit

import msgspec
import structlog

from plugins.http.public_addresses import AddressRefused

MAX_HEAD = 64 * 1024
"""Maximum bytes of a request's head."""

HEAD_SECONDS = 30.0
CONNECT_SECONDS = 15.0
IDLE_SECONDS = 300.0
"""Seconds for a request's head, for a connection to one address, and without a byte in either direction."""

MAX_CONNECTIONS = 64
"""Maximum connections of a command at a time."""

MAX_REFUSALS = 20
"""Maximum refused hosts that are remembered for a command."""

PORTS = (80, 443)
"""The ports of a host that is listed without one."""

_CHUNK = 64 * 1024
_REPLACED = frozenset({"connection", "host", "keep-alive", "te", "trailer", "upgrade"})
"""Headers that concern one connection, or that the proxy sets itself; and all that begin with `proxy-`."""

_HOST = re.compile(r"[A-Za-z0-9._:-]{1,255}")
_REQUEST = re.compile(r"([A-Z]{1,20}) (\S{1,8000}) HTTP/1\.[01]")

log = structlog.get_logger("exuvia.sandbox")


def is_allowed(host: str, port: int, hosts: Sequence[str]) -> bool:
    """Return True if one of `hosts` is this host, or a pattern `*.DOMAIN` that it matches, with this port."""
    host = host.lower().rstrip(".")
    for each in hosts:
        name, _, own_port = each.lower().partition(":")
        fits = host.endswith(name[1:]) if name.startswith("*.") else host == name
        if fits and (port == int(own_port) if own_port else port in PORTS):
            return True
    return False


_Stream: TypeAlias = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class _Refused(Exception):
    """The request is not served: an HTTP status, and a sentence."""

    def __init__(self, status: int, sentence: str) -> None:
        super().__init__(sentence)
        self.status = status


class _Request(msgspec.Struct, frozen=True):
    """A request to the proxy. `head` is what its server is sent, empty for a tunnel; `body` the bytes that follow."""

    host: str
    port: int
    head: bytes
    body: int


class NetworkProxy:
    """The proxy of one command.

    Args:
        hosts: Returns the hosts that are allowed now.
        session: The session's id, for the log.
        resolve: Resolves a name.
    """

    def __init__(
        self,
        hosts: Callable[[], Sequence[str]],
        session: str,
        resolve: Callable[[str, int], Awaitable[Sequence[str]]],
    ) -> None:
        self._hosts = hosts
        self._session = session
        self._resolve = resolve
        self._tasks: set[asyncio.Task[None]] = set()
        self.refusals: dict[str, None] = {}
        """Why requests were refused, as sentences."""

    @contextlib.asynccontextmanager
    async def serving(self, listener: socket.socket) -> AsyncIterator[None]:
        """Serve on a listening socket while the block runs; all connections are closed at its end."""
        server = await asyncio.start_server(self._accept, sock=listener, limit=MAX_HEAD)
        try:
            yield
        finally:
            server.close()
            for task in self._tasks:
                task.cancel()
            if self._tasks:
                await asyncio.wait(self._tasks)

    def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) >= MAX_CONNECTIONS:
            writer.close()
            return
        task = asyncio.create_task(self._serve(reader, writer))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve the one request of a connection."""
        try:
            request = await _read_request(reader)
            upstream = await self._connect(request)
        except _Refused as refused:
            self._refuse(str(refused))
            await _answer(writer, refused)
        except (OSError, EOFError, TimeoutError, ValueError):
            pass  # the client went away
        else:
            await self._relay(request, (reader, writer), upstream)
        finally:
            writer.close()

    async def _connect(self, request: _Request) -> _Stream:
        host, port = request.host, request.port
        allowed = is_allowed(host, port, self._hosts())
        log.info("command_network", session=self._session, host=host[:255], port=port, allowed=allowed)
        if not allowed:
            raise _Refused(403, f"{host}:{port} is not in sandbox.network.")
        try:
            addresses = await self._resolve(host, port)
        except AddressRefused as error:
            raise _Refused(403, str(error)) from error
        for address in addresses:
            with contextlib.suppress(OSError, TimeoutError):
                async with asyncio.timeout(CONNECT_SECONDS):
                    return await asyncio.open_connection(address, port)
        raise _Refused(502, f"{host}:{port} cannot be reached.")

    async def _relay(self, request: _Request, client: _Stream, server: _Stream) -> None:
        """Copy bytes until both directions have ended, or either failed."""
        try:
            if request.head:
                server[1].write(request.head)
                outward = _copy(client[0], server[1], request.body)
            else:
                client[1].write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                outward = self._copy_tunnel(request.host, client[0], server[1])
            with contextlib.suppress(OSError, TimeoutError, ExceptionGroup):
                async with asyncio.TaskGroup() as tasks:
                    tasks.create_task(outward)
                    tasks.create_task(_copy(server[0], client[1]))
        finally:
            server[1].close()

    async def _copy_tunnel(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Copy what a client sends through a tunnel. If it is TLS, it must begin by asking for the tunnel's host."""
        async with asyncio.timeout(IDLE_SECONDS):
            begin = await reader.read(_CHUNK)
            if begin.startswith(_HANDSHAKE):
                while len(begin) < _RECORD_HEAD + int.from_bytes(begin[3:_RECORD_HEAD]) and (
                    more := await reader.read(_CHUNK)
                ):
                    begin += more
                asked = requested_name(begin)
                if asked != host.lower().rstrip("."):
                    self._refuse(
                        f"The TLS client of a connection to {host} asks for {asked or 'no host'}, which is refused."
                    )
                    raise ConnectionAbortedError
            writer.write(begin)
            await writer.drain()
        await _copy(reader, writer)

    def _refuse(self, sentence: str) -> None:
        if len(self.refusals) < MAX_REFUSALS:
            self.refusals[sentence] = None


async def _read_request(reader: asyncio.StreamReader) -> _Request:
    try:
        async with asyncio.timeout(HEAD_SECONDS):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    except asyncio.LimitOverrunError as error:
        raise _Refused(431, "The head of the request is too large.") from error
    first, *lines = head[:-4].split("\r\n")
    match = _REQUEST.fullmatch(first)
    if match is None or any("\n" in line or "\r" in line for line in (first, *lines)):
        raise _Refused(400, "The request is not valid HTTP/1.1.")
    method, target = match[1], match[2]
    try:
        parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise _Refused(400, "The address of the request is not valid.") from error
    if not host or not _HOST.fullmatch(host):
        raise _Refused(400, "The request names no valid host.")
    if method == "CONNECT":
        if port is None:
            raise _Refused(400, "The request names no port.")
        return _Request(host, port, b"", 0)
    if parts.scheme != "http":
        raise _Refused(400, "Only http requests are forwarded; https goes through CONNECT.")
    path = parts._replace(scheme="", netloc="").geturl()
    return _forwarded(method, path or "/", host, port or 80, lines)


def _forwarded(method: str, path: str, host: str, port: int, lines: list[str]) -> _Request:
    """Return a request for its server: one, after which the connection is closed."""
    headers = [(name.strip().lower(), value.strip()) for name, _, value in (line.partition(":") for line in lines)]
    lengths = {value for name, value in headers if name == "content-length"}
    if any(name == "transfer-encoding" for name, _ in headers) or len(lengths) > 1 or not all(map(str.isdecimal, lengths)):
        raise _Refused(411, "A body needs one Content-Length.")
    named = zip(lines, (name for name, _ in headers), strict=True)
    kept = [line for line, name in named if name not in _REPLACED and not name.startswith("proxy-")]
    authority = host if port == 80 else f"{host}:{port}"
    if not path.startswith("/"):
        path = f"/{path}"
    head = "\r\n".join([f"{method} {path} HTTP/1.1", f"Host: {authority}", *kept, "Connection: close", "", ""])
    return _Request(host, port, head.encode("latin-1"), int(lengths.pop()) if lengths else 0)


async def _answer(writer: asyncio.StreamWriter, refused: _Refused) -> None:
    """Send a refusal. The sentence is its reason phrase too, which is all that some clients show."""
    body = f"{refused}\n".encode()
    phrase = re.sub(r"[^ -~]", "?", str(refused))[:300]
    head = f"HTTP/1.1 {refused.status} {phrase}\r\nContent-Type: text/plain\r\nContent-Length: {len(body)}\r\n"
    with contextlib.suppress(OSError):
        writer.write(f"{head}Connection: close\r\n\r\n".encode() + body)
        await writer.drain()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, left: int | None = None) -> None:
    """Copy all bytes, or as many as are `left`, and then end that direction."""
    while left is None or left > 0:
        async with asyncio.timeout(IDLE_SECONDS):
            chunk = await reader.read(_CHUNK if left is None else min(_CHUNK, left))
            if not chunk:
                break
            writer.write(chunk)
            await writer.drain()
        left = None if left is None else left - len(chunk)
    if left is None and writer.can_write_eof():
        writer.write_eof()


# --- the beginning of TLS ---------------------------------------------------------------------------------------------

_HANDSHAKE, _RECORD_HEAD = b"\x16", 5
"""The first byte of a record of TLS with a handshake, and the length of such a record's head."""


def requested_name(record: bytes) -> str:
    """Return the host that a TLS client asks for in its first message (RFC 6066), in lower case; empty if it names none, or
    if the message is not complete or not valid."""
    try:
        message = _Fields(_Fields(record[3:]).vector(2))
        if message.take(1) != b"\x01":
            return ""
        hello = _Fields(message.vector(3))
        hello.take(2 + 32)  # the version and the random number
        for size in (1, 2, 1):  # the session's id, the cipher suites, the compression methods
            hello.vector(size)
        extensions, found = _Fields(hello.vector(2)), list[bytes]()
        while extensions.left:
            kind, content = extensions.take(2), extensions.vector(2)
            if kind == b"\0\0":
                names = _Fields(_Fields(content).vector(2))
                while names.left:
                    found.append(names.take(1) + names.vector(2))
    except ValueError:
        return ""
    return found[0][1:].decode("ascii", "replace").lower() if len(found) == 1 and found[0][:1] == b"\0" else ""


class _Fields:
    """Bytes that are read field by field. ValueError if there are not enough."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._at = 0

    @property
    def left(self) -> int:
        return len(self._content) - self._at

    def take(self, size: int) -> bytes:
        if size > self.left:
            raise ValueError(size)
        self._at += size
        return self._content[self._at - size : self._at]

    def vector(self, size: int) -> bytes:
        """Return a field that begins with its length, in `size` bytes."""
        return self.take(int.from_bytes(self.take(size)))
