"""One HTTP request to a gateway, from a command on this machine."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import msgspec

from gateway.support.errors import GatewayError
from gateway.support.printable import printable

ANSWER_LIMIT = 1024 * 1024
"""Bytes of the largest response that is read."""


class RequestFailed(GatewayError):
    """Something responds, but not with what was requested."""


class _Refusal(msgspec.Struct):
    message: str = ""


def address_of(url: str) -> str:
    """Return the gateway's HTTP address for the URL of its websocket."""
    parts = urlsplit(url)
    return f"{'https' if parts.scheme in ('wss', 'https') else 'http'}://{parts.netloc}"


def requested(method: str, address: str, path: str, token: str, *, patience: float) -> bytes:
    """Return the body of the gateway's response.

    Proxies and redirects are not followed, since the token is for this address alone.

    Args:
        patience: The timeout in seconds.

    Raises:
        RequestFailed: The gateway refuses, or it is no gateway.
        OSError: Nothing responds.
    """
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=patience)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        body = response.read(ANSWER_LIMIT)
    except http.client.HTTPException as error:
        raise RequestFailed(f"The server at {address} is not a gateway.") from error
    finally:
        connection.close()
    if response.status != http.client.OK:
        raise RequestFailed(f"The gateway at {address} refuses: {_reason(body) or response.status}")
    return body


def _reason(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Refusal).message
    except (msgspec.MsgspecError, UnicodeError):
        return printable(body[:200].decode("utf-8", "replace")).strip()
