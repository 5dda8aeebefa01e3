"""The URL of an Ollama server from the notations of OLLAMA_HOST.

Sources: Ollama's FAQ and its command-line client. An address that the server listens on is also accepted.
"""

from __future__ import annotations

from ipaddress import ip_address

PORT = 11434
"""Ollama's port, unless a scheme implies another."""
CLOUD = "ollama.com"
"""The host of the vendor's cloud."""


def server_address(text: str) -> str:
    """Return the URL, without a trailing slash, of a server given as `host`, `host:port`, `:port`, an IPv6 address with or
    without brackets, or a URL, quoted or not. Empty and wildcard addresses such as 0.0.0.0 mean this machine. An invalid
    port is replaced by the default. The paths `/api` and `/v1`, which are often copied along, are removed."""
    text = text.strip().strip("\"'").strip()
    scheme, separator, rest = text.partition("://")
    scheme, rest = (scheme.lower(), rest) if separator else ("http", text)
    user, at, location = rest.rpartition("@")
    location, _, path = location.partition("/")
    if location.lower() == CLOUD:
        scheme, separator = "https", "://"
    default = {"http": 80, "https": 443}.get(scheme, PORT) if separator else PORT
    host, port = _host_and_port(location, default)
    path = "/" + path.strip("/")
    for suffix in ("/api", "/v1"):
        path = path.removesuffix(suffix)
    return f"{scheme}://{user}{at}{_reachable(host)}:{port}{path}".rstrip("/")


def _host_and_port(location: str, default: int) -> tuple[str, int]:
    host, colon, port = location.rpartition(":")
    if not colon or location.endswith("]") or (":" in host and not host.endswith("]")):
        return location.strip("[]"), default
    valid = port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= 65535
    return host.strip("[]"), int(port) if valid else default


def _reachable(host: str) -> str:
    """Return the host as written in a URL, and this machine for a wildcard address."""
    try:
        address = ip_address(host or "127.0.0.1")
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return str(address) if address.version == 4 else f"[{address}]"
