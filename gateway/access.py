"""Who may speak: the token, and which hosts and origins a request may name.

A browser page of somebody else's can reach a local port. It cannot choose the `Origin` that the browser sends, nor, without
controlling the address, the `Host`; so both must be our own (cross-site websockets, DNS rebinding).
"""

from __future__ import annotations

import hmac
import ipaddress
from collections.abc import Sequence
from urllib.parse import urlsplit

from plugins.secrets import Secret

OWNER = "owner"
"""The person that the gateway's token names."""

_LOOPBACK_NAMES = ("localhost", "127.0.0.1", "[::1]")


class Access:
    """The rules of one gateway. `port` is the one that is listened on; `hosts` and `origins` are allowed beside our own."""

    def __init__(self, token: Secret, *, host: str, port: int, hosts: Sequence[str], origins: Sequence[str]) -> None:
        self._token = token
        self._any_address = _is_wildcard(host)
        own = {*_LOOPBACK_NAMES, _in_url(host)}
        self._hosts = {f"{name}:{port}" for name in own} | {name.lower() for name in hosts}
        if port in (80, 443):
            self._hosts |= own
        self._origins = {origin.lower().rstrip("/") for origin in origins}
        self._port = port

    def person(self, token: str) -> str | None:
        """Whose token this is; None if it is nobody's."""
        known = self._token.reveal().encode()
        return OWNER if hmac.compare_digest(known, token.encode("utf-8", "surrogatepass")) else None

    def person_of_header(self, authorization: str) -> str | None:
        """Whose `Authorization` header this is; None if it is nobody's."""
        scheme, _, token = authorization.partition(" ")
        return self.person(token.strip()) if scheme.lower() == "bearer" else None

    def allows_host(self, host: str | None) -> bool:
        """Whether a request's `Host` is one of ours."""
        if host is None:
            return False
        host = host.lower()
        return host in self._hosts or (self._any_address and _is_address(host, self._port))

    def allows_origin(self, origin: str | None) -> bool:
        """Whether a request's `Origin`, if it has one, is a page of ours."""
        if origin is None:
            return True
        origin = origin.lower().rstrip("/")
        if origin in self._origins:
            return True
        try:
            parts = urlsplit(origin)
        except ValueError:
            return False
        return parts.scheme in ("http", "https") and self.allows_host(parts.netloc)


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host and not host.startswith("[") else host.lower()


def _is_wildcard(host: str) -> bool:
    try:
        return ipaddress.ip_address(host.strip("[]")).is_unspecified
    except ValueError:
        return False


def _is_address(host: str, port: int) -> bool:
    """Whether a `Host` is a literal address with our port: no name, so no name can have been rebound."""
    name, _, given = host.rpartition(":")
    if given != str(port):
        return False
    try:
        ipaddress.ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
