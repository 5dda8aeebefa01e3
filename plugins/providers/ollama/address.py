"""Where an Ollama server is, out of the many spellings of OLLAMA_HOST.

After Ollama's FAQ and its command-line client: an address that the server listens on is taken for one to connect to.
"""

from __future__ import annotations

from ipaddress import ip_address

PORT = 11434
"""Ollama's own port, where no scheme says otherwise."""
CLOUD = "ollama.com"
"""The host of the vendor's own servers."""


def server_address(text: str) -> str:
    """The URL, without a slash at its end, of a server written as `host`, `host:port`, `:port`, an IPv6 address with or
    without brackets, or a URL, in quotes or not. Empty means this machine, and so does an address such as 0.0.0.0. A port
    that is none becomes the usual one. The `/api` and `/v1` that people copy along are left out."""
    text = text.strip().strip("\"'").strip()
    scheme, found, rest = text.partition("://")
    scheme, rest = (scheme.lower(), rest) if found else ("http", text)
    person, at, place = rest.rpartition("@")
    place, _, path = place.partition("/")
    if place.lower() == CLOUD:
        scheme, found = "https", "://"
    usual = {"http": 80, "https": 443}.get(scheme, PORT) if found else PORT
    host, port = _host_and_port(place, usual)
    path = "/" + path.strip("/")
    for suffix in ("/api", "/v1"):
        path = path.removesuffix(suffix)
    return f"{scheme}://{person}{at}{_reachable(host)}:{port}{path}".rstrip("/")


def _host_and_port(place: str, usual: int) -> tuple[str, int]:
    host, colon, port = place.rpartition(":")
    if not colon or place.endswith("]") or (":" in host and not host.endswith("]")):
        return place.strip("[]"), usual
    valid = port.isascii() and port.isdecimal() and 0 < int(port[:6]) <= 65535
    return host.strip("[]"), int(port) if valid else usual


def _reachable(host: str) -> str:
    """The host as it stands in a URL; one that is no address to connect to is this machine."""
    try:
        address = ip_address(host or "127.0.0.1")
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return str(address) if address.version == 4 else f"[{address}]"
