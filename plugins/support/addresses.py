"""Addresses that a configuration names: types of keys whose values are checked when it is read.

A type carries its check in `msgspec.Meta.extra`: a function that takes the text and returns what is wrong with it, as the
end of a sentence, empty if nothing is. No check says the text again: an address may hold a password.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

FAULT = "fault"
"""Under which name a type has its check."""

LONGEST = 2000
"""Characters of a URL."""

_NOT_IN_HOSTS = re.compile(r"[\s/?#@\\]")


def web_fault(text: str) -> str:
    """Check a URL of `http` or `https` to which paths are added. Nothing at all is none, and no fault."""
    well = not text.strip() or _is_web_address(text.strip())
    return "" if well else "must be an address such as https://models.example.org/v1"


def server_fault(text: str) -> str:
    """Check the same, or a server in one of Ollama's spellings: `host`, `host:port`, `:port`, an IPv6 address."""
    place = text.strip().strip("\"'").strip()
    well = not place or _is_web_address(place if "://" in place else f"http://{_bracketed(place)}")
    return "" if well else "must be an address such as http://127.0.0.1:11434"


def origin_fault(text: str) -> str:
    """Check the origin of a page, as a browser names it."""
    scheme, mark, host = text.strip().rstrip("/").partition("://")
    well = bool(mark and scheme and host) and not _NOT_IN_HOSTS.search(scheme + host)
    return "" if well or text == "null" else "must be an origin such as https://chat.example.org"


def host_fault(text: str) -> str:
    """Check a host with or without a port, as a request names it."""
    well = not _NOT_IN_HOSTS.search(text.strip())
    return "" if well else "must be a host such as chat.example.org or chat.example.org:8443"


WebAddress = Annotated[str, msgspec.Meta(extra={FAULT: web_fault})]
ServerAddress = Annotated[str, msgspec.Meta(extra={FAULT: server_fault})]
Origin = Annotated[str, msgspec.Meta(min_length=1, extra={FAULT: origin_fault})]
HostName = Annotated[str, msgspec.Meta(min_length=1, extra={FAULT: host_fault})]


def _is_web_address(text: str) -> bool:
    if len(text) > LONGEST:
        return False
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        return False
    host = parts.netloc.rpartition("@")[2]
    plain = not (parts.query or parts.fragment or re.search(r"\s", text) or host.endswith(":"))
    return parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0 and plain


def _bracketed(place: str) -> str:
    """The place with what a URL needs around or before it."""
    try:
        return f"[{place}]" if ip_address(place).version == 6 else place
    except ValueError:
        return f"127.0.0.1{place}" if place.startswith(":") else place
