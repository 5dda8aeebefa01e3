"""The HTTP client of the SDK's transport, with bounds and a guard: where it connects to, and how much it reads.

The operator named the server's address, so it may be on this machine or network. Everything else is named by the server (the
addresses of its authorization server) and must be public unless the server itself is not. Addresses of the link, where cloud
machines offer their credentials, are never connected to.
"""

from __future__ import annotations

import asyncio
import re
import secrets
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import TypeAlias

import httpx2

from plugins.http.public_addresses import RESOLVE_SECONDS, is_public
from plugins.mcp.definitions import MESSAGE_BYTES, MESSAGE_VALUES, values_in

CONNECT_SECONDS = 30.0
READ_SECONDS = 300.0
"""Seconds without a byte after which a response counts as lost."""

UNREACHABLE = -32050
"""The code of an answer that says that a message could not be sent."""

SESSION_LOST = secrets.token_hex()
"""The data of an error that says that the server no longer knows the session; no server can send it.

The code of the error is the HTTP status: 404 if nothing ran, 400 if that is only likely from what the server says."""

_UNKNOWN_SESSION = re.compile(rb"session id|not initialized", re.IGNORECASE)
"""What servers say that answer 400 where the protocol demands 404."""

_Address: TypeAlias = IPv4Address | IPv6Address


class GuardedTransport(httpx2.AsyncBaseTransport):
    """Resolves each name once, checks the addresses, and connects to one of them.

    Args:
        server: The address of the server, as it is configured.
        certificates: The trusted certificates.
    """

    def __init__(self, server: httpx2.URL, certificates: ssl.SSLContext) -> None:
        self._server = server
        self._inner = httpx2.AsyncHTTPTransport(verify=certificates)
        self._server_is_local: bool | None = None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send a request. Raises TransportError, unless it is a message to the server: then the failure is an answer to this
        message, since the SDK would otherwise end the connection with all its other requests.

        Where the server no longer knows the session, the answer says so: the SDK would pass on an error of the server."""
        try:
            response = await self._send(request)
            if not await _is_session_lost(request, response):
                return response
            await response.aclose()
            return _error(request, response.status_code, response.status_code, "The server no longer knows the session.")
        except (httpx2.TransportError, httpx2.StreamError) as error:
            if request.method != "POST" or request.url != self._server:
                raise
            return _error(request, 503, UNREACHABLE, f"The server cannot be reached: {error or type(error).__name__}.")

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        url = request.url
        addresses = await self._addresses(url)
        request.headers["Accept-Encoding"] = "identity"  # a compressed response has no bound
        failure: httpx2.ConnectError | None = None
        for address in addresses:
            request.url = url.copy_with(host=str(address))
            request.extensions = {**request.extensions, "sni_hostname": url.host}
            try:
                response = await self._inner.handle_async_request(request)
            except httpx2.ConnectError as error:
                failure = error
                continue
            finally:
                request.url = url
            return await _bounded(response)
        raise failure or httpx2.ConnectError(f"{url.host!r} has no address")

    async def aclose(self) -> None:
        """Close all connections."""
        await self._inner.aclose()

    async def _addresses(self, url: httpx2.URL) -> list[_Address]:
        named = url.host == self._server.host
        if self._server_is_local is None and not named:
            found = await _resolved(self._server)
            self._server_is_local = not all(map(is_public, found))
        addresses = await _resolved(url)
        if named:
            self._server_is_local = not all(map(is_public, addresses))
        literal = named and _is_address(url.host)
        for address in addresses:
            if not literal and _is_of_the_link(address):
                raise httpx2.ConnectError(f"{url.host!r} has the address {address}, which is never connected to")
            if not (named or self._server_is_local or is_public(address)):
                raise httpx2.ConnectError(f"{url.host!r} has the address {address}, which is not public")
        return addresses


def guarded_client(
    url: str, headers: Mapping[str, str], auth: httpx2.Auth | None, certificates: ssl.SSLContext
) -> httpx2.AsyncClient:
    """Return a client for one server, for a `with` block. It follows no redirects; the SDK does, within the origin."""
    timeout = httpx2.Timeout(CONNECT_SECONDS, read=READ_SECONDS)
    transport = GuardedTransport(httpx2.URL(url), certificates)
    return httpx2.AsyncClient(headers=dict(headers), auth=auth, transport=transport, timeout=timeout, trust_env=False)


def trusted_certificates() -> ssl.SSLContext:
    """Return the certificates that the gateway's other requests trust. Reads files, so it runs in a thread."""
    trust = httpx2.create_ssl_context()
    trust.load_default_certs()
    return trust


async def _resolved(url: httpx2.URL) -> list[_Address]:
    port = url.port or (443 if url.scheme == "https" else 80)
    try:
        async with asyncio.timeout(RESOLVE_SECONDS):
            found = await asyncio.get_running_loop().getaddrinfo(url.host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError, TimeoutError) as error:
        raise httpx2.ConnectError(f"the name {url.host!r} cannot be resolved") from error
    return [ip_address(text) for text in dict.fromkeys(str(each[4][0]).partition("%")[0] for each in found)]


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def _is_of_the_link(address: _Address) -> bool:
    """Return True for link-local, multicast and reserved addresses, also inside an IPv6 address."""
    inner = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    each = inner or address
    return each.is_link_local or each.is_multicast or (each.is_reserved and not each.is_loopback)


class _BoundedStream(httpx2.AsyncByteStream):
    """A body that is one message, or a stream of events that each are one; the SDK bounds the bytes of an event."""

    def __init__(self, stream: httpx2.AsyncByteStream, *, events: bool) -> None:
        self._stream = stream
        self._events = events

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = values = 0
        async for chunk in self._stream:
            last = chunk.replace(b"\r", b"").rfind(b"\n\n") if self._events else -1
            size, values = (size + len(chunk), values + values_in(chunk)) if last < 0 else (0, values_in(chunk))
            if (size > MESSAGE_BYTES and not self._events) or values > MESSAGE_VALUES:
                raise httpx2.StreamError(f"The answer has more than {MESSAGE_BYTES:,} bytes or {MESSAGE_VALUES:,} values.")
            yield chunk

    async def aclose(self) -> None:
        """Close the connection."""
        await self._stream.aclose()


async def _is_session_lost(request: httpx2.Request, response: httpx2.Response) -> bool:
    if request.method != "POST" or "Mcp-Session-Id" not in request.headers:
        return False
    if response.status_code == 400:
        try:
            return _UNKNOWN_SESSION.search(await response.aread()) is not None
        except BaseException:
            await response.aclose()
            raise
    return response.status_code == 404


def _error(request: httpx2.Request, status: int, code: int, message: str) -> httpx2.Response:
    """Return a response of our own, whose error the SDK passes on."""
    error = {"code": code, "message": message, **({} if code == UNREACHABLE else {"data": SESSION_LOST})}
    return httpx2.Response(status, json={"jsonrpc": "2.0", "id": None, "error": error}, request=request)


async def _bounded(response: httpx2.Response) -> httpx2.Response:
    if response.headers.get("Content-Encoding", "identity").lower() not in ("", "identity"):
        await response.aclose()
        raise httpx2.TransportError("The answer is compressed, which was not asked for.")
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    events = response.headers.get("Content-Type", "").lower().startswith("text/event-stream")
    response.stream = _BoundedStream(response.stream, events=events)
    return response
