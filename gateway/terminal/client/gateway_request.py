"""One HTTP request to a gateway, from a command of this machine."""

from __future__ import annotations

import http.client
from urllib.parse import urlsplit

import msgspec

from gateway.support.errors import GatewayError
from gateway.support.printable import printable

ANSWER_LIMIT = 1024 * 1024
"""Bytes of an answer; more is none of ours."""


class RequestFailed(GatewayError):
    """Something answers, but not with what was asked for."""


class _Refusal(msgspec.Struct):
    message: str = ""


def address_of(url: str) -> str:
    """The gateway's own address, from that of its websocket."""
    parts = urlsplit(url)
    return f"{'https' if parts.scheme in ('wss', 'https') else 'http'}://{parts.netloc}"


def requested(method: str, address: str, path: str, token: str, *, patience: float) -> bytes:
    """Return the body of the gateway's answer. `patience` is in seconds. Raises NotAsked if the gateway refuses or if it is
    none, OSError if nobody answers. No library that would follow a proxy or a redirect: the token is for this address alone.
    """
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=patience)
    try:
        connection.request(method, path, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        body = response.read(ANSWER_LIMIT)
    except http.client.HTTPException as error:
        raise RequestFailed(f"What answers at {address} is not a gateway.") from error
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
