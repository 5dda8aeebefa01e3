"""Connection pools by proxy and TLS, and the trusted certificates.

The trusted certificates are httpx's list and the system's, or those of `SSL_CERT_FILE` or `SSL_CERT_DIR`.
"""

from __future__ import annotations

import asyncio
import ssl
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult
from urllib.request import getproxies_environment, proxy_bypass

from plugins.support.errors import Unreachable

if TYPE_CHECKING:
    from plugins.http.aiohttp_transport import AiohttpTransport


_modules: dict[str, Any] = sys.modules
_modules.setdefault("httpx._main", None)  # its command-line client, which would import rich and pygments, 4 MB


class CertificateError(Unreachable):
    """The server's certificate is not trusted."""

    retryable = False


def certificate_problem(error: BaseException) -> str | None:
    """Return what is wrong with the server's certificate, or None if the request failed for another reason."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, ssl.SSLCertVerificationError) and (words := getattr(cause, "verify_message", "")):
            return str(words).rstrip(".")  # aiohttp's error is a subclass without this attribute
        cause = getattr(cause, "certificate_error", None) or cause.__cause__ or cause.__context__
    return None


class ConnectionPools:
    """Connection pools, one for each proxy, with and without TLS, created on first use."""

    def __init__(self) -> None:
        # Read here and not by aiohttp, which would also read ~/.netrc for each request and fail if a request has both a key
        # and a password from there.
        self._proxies = getproxies_environment()
        self._pools: dict[tuple[bool, str | None], AiohttpTransport] = {}
        self._opening = asyncio.Lock()

    async def to(self, address: SplitResult) -> AiohttpTransport:
        """Return the pool for an address.

        Raises:
            CertificateError: The configured certificates cannot be read.
        """
        key = address.scheme == "https", proxy_for(address, self._proxies)
        if key not in self._pools:
            async with self._opening:
                if key not in self._pools:
                    try:
                        self._pools[key] = (await asyncio.to_thread(_pool_maker, *key))()
                    except OSError as error:
                        raise CertificateError(
                            "The certificates that SSL_CERT_FILE or SSL_CERT_DIR names cannot be read."
                        ) from error
        return self._pools[key]

    async def close(self) -> None:
        """Close all connections."""
        for pool in self._pools.values():
            await pool.aclose()


def proxy_for(address: SplitResult, proxies: Mapping[str, str]) -> str | None:
    """Return the proxy for an address, from those of the environment by scheme."""
    if not proxies or proxy_bypass(address.hostname or ""):
        return None
    return proxies.get(address.scheme) or proxies.get("all")


def trusted_certificates() -> ssl.SSLContext:
    """Return a TLS context with the list of httpx and that of the system: some Pythons have no system list, some companies
    use only that. Takes a while: it imports httpx and reads all certificates.

    Raises:
        OSError: The configured certificates cannot be read.
    """
    import httpx  # noqa: PLC0415 - a start does not need it

    trust = httpx.create_ssl_context()
    trust.load_default_certs()
    return trust


def _pool_maker(secure: bool, proxy: str | None) -> Callable[[], AiohttpTransport]:
    """Return a function that creates a pool. Runs in a thread: it imports 100 ms of modules and reads all certificates."""
    import httpx  # noqa: PLC0415 - a start does not need it

    from plugins.http.aiohttp_transport import AiohttpTransport  # noqa: PLC0415 - a start does not need it

    trust = trusted_certificates() if secure else ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    httpx_proxy = None if proxy is None else httpx.Proxy(proxy if "://" in proxy else f"http://{proxy}")
    return partial(AiohttpTransport, trust, httpx_proxy)
