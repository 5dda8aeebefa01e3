"""GET requests to web addresses that a model chose.

Unlike `client`, whose addresses the operator configured, it reaches only the public internet: each host of a chain of
redirects is resolved once, checked, and connected to at the address that was checked. It sends no cookies and no key, keeps
no connection, and limits time, size and decompressed size.

Behind a proxy (`HTTPS_PROXY`) the proxy connects. Names are checked as far as they can be resolved here; what else the
proxy reaches is its own rule.
"""

from __future__ import annotations

import asyncio
import re
import socket
import ssl
import zlib
from collections.abc import Awaitable, Callable, Collection
from contextlib import suppress
from http import HTTPStatus
from urllib.parse import urlsplit
from urllib.request import getproxies_environment

import aiohttp
import msgspec
from aiohttp.abc import AbstractResolver, ResolveResult
from yarl import URL

from plugins.http.connection_pools import certificate_problem, proxy_for, trusted_certificates
from plugins.http.public_addresses import AddressRefused, HostUnknown, resolve_public
from plugins.http.web_urls import DEFAULT_PORTS, UrlRefused, canonical_url, is_among, url_host

USER_AGENT = "Exuvia/0.1 (fetches single pages for a person; no crawler)"
"""Names the program, so that a site can refuse it."""

MAX_REDIRECTS = 5
SECONDS = 30.0
"""The time limit of a request with all its redirects."""
CONNECT_SECONDS = 10.0
"""The time limit of a connection, and of a pause between two parts of a body."""
MAX_BYTES = 8 * 1024 * 1024
"""The maximum size of a body, before and after decompression."""

_REDIRECTS = (301, 302, 303, 307, 308)
_ENCODINGS = ("gzip", "x-gzip", "deflate")
_HEADERS = {
    "User-Agent": USER_AGENT,
    "Accept": "text/html, text/*;q=0.9, */*;q=0.5",
    "Accept-Encoding": "gzip, deflate",
}

Resolve = Callable[[str, int], Awaitable[list[str]]]
"""Returns the addresses of a host that may be connected to; raises AddressRefused."""


class WebFailed(Exception):
    """A page could not be requested; `str(error)` is a sentence. It contains nothing that a server sent."""


class WebResponse(msgspec.Struct, frozen=True, kw_only=True):
    """A response with the status 200.

    Attributes:
        url: The canonical URL that was answered, after all redirects.
        media: The media type in lower case without parameters; "" if the server named none.
        charset: The charset that the server named, or "".
        body: The decompressed body.
    """

    url: str
    media: str
    charset: str
    body: bytes


class WebClient:
    """Requests pages. `resolve` can be replaced in tests."""

    def __init__(self, resolve: Resolve = resolve_public) -> None:
        self._resolve = resolve
        self._proxies = getproxies_environment()
        self._trust: ssl.SSLContext | None = None

    async def get(self, url: str, private_hosts: Collection[str] = ()) -> WebResponse:
        """Request a URL and follow its redirects.

        Args:
            url: A canonical URL.
            private_hosts: Hosts, each with or without a port, whose addresses need not be public. A redirect from another
                host does not reach them.

        Raises:
            WebFailed: An address is not public, the server cannot be reached, or its answer is not a complete 200.
        """
        try:
            async with asyncio.timeout(SECONDS):
                return await self._follow(url, private_hosts)
        except TimeoutError as error:
            raise WebFailed(f"The page was not complete within {SECONDS:.0f} seconds.") from error
        except AddressRefused as error:
            raise WebFailed(str(error)) from error

    async def _follow(self, url: str, private_hosts: Collection[str]) -> WebResponse:
        first = url
        for _ in range(MAX_REDIRECTS + 1):
            private = is_among(url, private_hosts) and url_host(url) == url_host(first)
            answer = await self._get(url, private=private)
            if isinstance(answer, WebResponse):
                return answer
            try:
                url = canonical_url(answer, base=url)
            except UrlRefused as error:
                raise WebFailed("The server redirects to an address that is not allowed.") from error
        raise WebFailed(f"The server redirects more than {MAX_REDIRECTS} times.")

    async def _get(self, url: str, *, private: bool) -> WebResponse | str:
        """Return the response, or the target of a redirect."""
        parts, host = urlsplit(url), url_host(url)
        proxy = None if private else proxy_for(parts, self._proxies)
        addresses = [] if private else await self._addresses(host, parts.port or DEFAULT_PORTS[parts.scheme], proxy)
        if self._trust is None:
            self._trust = await asyncio.to_thread(trusted_certificates)
        connector = aiohttp.TCPConnector(
            resolver=None if private or proxy else CheckedResolver(host, addresses),
            use_dns_cache=False,
            force_close=True,
            ssl=self._trust,
        )
        try:
            async with (
                aiohttp.ClientSession(
                    connector=connector,
                    cookie_jar=aiohttp.DummyCookieJar(),
                    auto_decompress=False,
                    timeout=aiohttp.ClientTimeout(sock_connect=CONNECT_SECONDS, sock_read=CONNECT_SECONDS),
                ) as session,
                session.get(URL(url, encoded=True), headers=_HEADERS, allow_redirects=False, proxy=proxy) as response,
            ):
                return await _read(url, response)
        except (aiohttp.ClientError, OSError, ValueError) as error:
            if isinstance(error, TimeoutError) and not isinstance(error, aiohttp.ClientError):
                raise  # the time limit of the whole request
            if why := certificate_problem(error):
                raise WebFailed(f"The certificate of {host} is not valid: {why}.") from error
            raise WebFailed(f"{host} cannot be reached, or its answer is not HTTP.") from error

    async def _addresses(self, host: str, port: int, proxy: str | None) -> list[str]:
        try:
            return await self._resolve(host, port)
        except HostUnknown:
            if proxy:
                return []  # a network in which only the proxy can resolve names
            raise


class CheckedResolver(AbstractResolver):
    """A resolver that knows one host, with the addresses that were checked."""

    def __init__(self, host: str, addresses: list[str]) -> None:
        self._host = host
        self._addresses = addresses

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_UNSPEC
    ) -> list[ResolveResult]:
        """Return the checked addresses."""
        if host != self._host:
            raise OSError(f"{host} was not checked")
        return [
            ResolveResult(
                hostname=host,
                host=address,
                port=port,
                family=socket.AF_INET6 if ":" in address else socket.AF_INET,
                proto=socket.IPPROTO_TCP,
                flags=socket.AI_NUMERICHOST,
            )
            for address in self._addresses
        ]

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""


async def _read(url: str, response: aiohttp.ClientResponse) -> WebResponse | str:
    location = response.headers.get("Location")
    if response.status in _REDIRECTS and location:
        return location
    if response.status != HTTPStatus.OK:
        raise WebFailed(f"The server answered with the status {_status(response.status)}.")
    encoding = response.headers.get("Content-Encoding", "").strip().lower()
    if encoding not in ("", "identity", *_ENCODINGS):
        raise WebFailed("The server compressed its answer in a way that was not asked for.")
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MAX_BYTES:
            raise _too_large()
    content = bytes(body)
    if encoding in _ENCODINGS:
        content = await asyncio.to_thread(_decompress, content)
    media, _, parameters = response.headers.get("Content-Type", "").partition(";")
    charset = re.search(r"charset=\s*[\"']?([\w.:-]{1,40})", parameters, re.IGNORECASE)
    return WebResponse(url=url, media=media.strip().lower(), charset=charset[1] if charset else "", body=content)


def _decompress(body: bytes) -> bytes:
    """Return a body in gzip or deflate, of at most `MAX_BYTES`."""
    for window in (47, -15):  # gzip or zlib, and the raw form that some servers call deflate
        with suppress(zlib.error):
            decoder = zlib.decompressobj(window)
            content = decoder.decompress(body, MAX_BYTES + 1)
            if len(content) > MAX_BYTES:
                raise _too_large()
            if not decoder.eof:
                break
            return content
    raise WebFailed("The compressed answer of the server is damaged or incomplete.")


def _too_large() -> WebFailed:
    return WebFailed(f"The page is larger than {MAX_BYTES >> 20} MiB, which is more than this tool reads.")


def _status(code: int) -> str:
    """Return a status with its standard name: a server may write anything behind it."""
    with suppress(ValueError):
        return f"{code} ({HTTPStatus(code).phrase})"
    return str(code)
