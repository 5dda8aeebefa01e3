"""Types of addresses in the configuration, with their validation.

A type contains its check in `msgspec.Meta.extra`: a function that returns what is wrong with a text, as the end of a
sentence; empty if it is valid. No check repeats the text: an address may contain a password.
"""

from __future__ import annotations

import re
from ipaddress import ip_address
from typing import Annotated
from urllib.parse import urlsplit

import msgspec

FAULT = "fault"
"""The key of the check in `extra`."""

LONGEST = 2000
"""The maximum length of a URL in characters."""

_HOST_PATTERN = re.compile(r"(?:\*\.)?[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]+)*(?::[0-9]{1,5})?")

_NOT_IN_HOSTS = re.compile(r"[\s/?#@\\]")


def web_fault(text: str) -> str:
    """Check a URL of `http` or `https` to which paths are appended; it may be empty."""
    valid = not text.strip() or _is_web_address(text.strip())
    return "" if valid else "must be an address such as https://models.example.org/v1"


def server_fault(text: str) -> str:
    """Check a URL as `web_fault` does, or one of Ollama's notations: `host`, `host:port`, `:port`, an IPv6 address."""
    address = text.strip().strip("\"'").strip()
    valid = not address or _is_web_address(address if "://" in address else f"http://{_url_host(address)}")
    return "" if valid else "must be an address such as http://127.0.0.1:11434"


def origin_fault(text: str) -> str:
    """Check the origin of a web page."""
    scheme, mark, host = text.strip().rstrip("/").partition("://")
    valid = bool(mark and scheme and host) and not _NOT_IN_HOSTS.search(scheme + host)
    return "" if valid or text == "null" else "must be an origin such as https://chat.example.org"


def host_fault(text: str) -> str:
    """Check a host with an optional port, as in a `Host` header."""
    valid = not _NOT_IN_HOSTS.search(text.strip())
    return "" if valid else "must be a host such as chat.example.org or chat.example.org:8443"


def host_pattern_fault(text: str) -> str:
    """Check a host with an optional port, or `*.` and a domain for all hosts below it."""
    valid = _HOST_PATTERN.fullmatch(text) is not None and len(text) <= 255
    return "" if valid else "must be a host such as pypi.org, *.example.com or example.com:8443"


WebAddress = Annotated[str, msgspec.Meta(extra={FAULT: web_fault})]
ServerAddress = Annotated[str, msgspec.Meta(extra={FAULT: server_fault})]
Origin = Annotated[str, msgspec.Meta(min_length=1, extra={FAULT: origin_fault})]
HostPattern = Annotated[str, msgspec.Meta(min_length=1, extra={FAULT: host_pattern_fault})]
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


def _url_host(address: str) -> str:
    """Return a server in one of Ollama's notations as in a URL."""
    try:
        return f"[{address}]" if ip_address(address).version == 6 else address
    except ValueError:
        return f"127.0.0.1{address}" if address.startswith(":") else address
