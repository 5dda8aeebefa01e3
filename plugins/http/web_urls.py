"""Canonical form of web addresses that a model, a page or a person wrote.

Two texts with the same canonical form lead to the same request, so a URL that was named once can be recognised in another
spelling. Spellings that programs read differently are refused: what is checked must be what is requested.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from ipaddress import ip_address

from yarl import URL

DEFAULT_PORTS = {"http": 80, "https": 443}

LONGEST_URL = 4000
"""The maximum length of a URL in characters."""

_FORBIDDEN = re.compile(r"[\s\\\x00-\x20\x7f]")
_HOST = re.compile(r"[a-z0-9_.-]+|[0-9a-f:.]+")
_NUMBER = re.compile(r"(?:0x[0-9a-f]*|\d+)\Z")


class UrlRefused(ValueError):
    """The text is not a web address that can be requested; `str(error)` is a sentence."""


def canonical_url(text: str, base: str = "") -> str:
    """Return a URL of http or https without its fragment, in canonical spelling.

    Args:
        text: The URL; with a base it may be relative.
        base: A canonical URL that relative ones refer to.

    Raises:
        UrlRefused: It is not a URL of http or https, contains a password, or names its host or port in a spelling that is
            not allowed.
    """
    text = text.strip()
    if len(text) > LONGEST_URL:
        raise UrlRefused(f"The URL has more than {LONGEST_URL:,} characters.")
    if _FORBIDDEN.search(text):
        raise UrlRefused("The URL contains a space, a backslash or a control character.")
    try:
        url = URL(base).join(URL(text)) if base else URL(text)
        if url.scheme not in DEFAULT_PORTS:
            raise UrlRefused("The URL must begin with http:// or https://.")
        host, port = _canonical_host(url.raw_host or ""), url.port
    except UrlRefused:
        raise
    except ValueError as error:  # its text may repeat the URL
        raise UrlRefused("The URL is not valid.") from error
    if url.raw_user is not None or url.raw_password is not None:
        raise UrlRefused("The URL contains a user name or password.")
    if port is None or (port < 1024 and port not in DEFAULT_PORTS.values()):
        raise UrlRefused("The port of the URL belongs to another protocol.")
    place = f"[{host}]" if ":" in host else host
    place += "" if port == DEFAULT_PORTS[url.scheme] else f":{port}"
    query = f"?{url.raw_query_string}" if url.raw_query_string else ""
    return f"{url.scheme}://{place}{url.raw_path or '/'}{query}"


def url_host(url: str) -> str:
    """Return the host of a canonical URL, an IPv6 address without brackets."""
    return URL(url).raw_host or ""


def is_among(url: str, hosts: Collection[str]) -> bool:
    """Return True if the host of a canonical URL is listed, with or without its port."""
    return bool({url_host(url), URL(url).raw_authority} & {host.lower() for host in hosts})


def _canonical_host(host: str) -> str:
    """Return a host without its final dot."""
    host = host.lower().removesuffix(".")
    try:
        # Programs read 2130706433, 0x7f.1 and 0177.0.0.1 as addresses, each in its own way.
        if ":" in host or _NUMBER.match(host.rpartition(".")[2]):
            host = str(ip_address(host))
    except ValueError:
        host = ""
    if not _HOST.fullmatch(host) or ".." in host:
        raise UrlRefused("The host of the URL is not valid.")
    return host
