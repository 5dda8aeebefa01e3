"""The local gateway: its address and token, from the files and variables that it reads itself, and requests to it."""

from __future__ import annotations

import http.client
import ipaddress
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from gateway.config.keys import GatewayKeys, fit_config
from gateway.config.secret_references import References
from gateway.config.sources import Sources, merge_readable
from gateway.support import instance_address
from gateway.support.errors import GatewayError
from gateway.support.home import Home
from gateway.support.printable import printable

ANSWER_LIMIT = 1024 * 1024
"""Bytes of the largest response that is read."""


class TokenMissing(GatewayError):
    """No token is available."""


class GatewayEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An address and a token; `token_file` is the file that it was read from, None if it was set elsewhere."""

    url: str
    token: str
    token_file: Path | None = None


def find_gateway(home: Home, environment: Mapping[str, str], *, url: str | None, token: str | None) -> GatewayEndpoint:
    """Find the gateway of a home: the given address, else that of the running gateway, else the configured one.

    Raises:
        TokenMissing: There is no token.
        ConfigRefused: A required key is invalid; a running gateway is found even if other keys are.
    """
    sources, fault = merge_readable(home.config, environment)
    running = instance_address.running_instance(home.address)
    if url is None:
        if running is None and fault is not None:
            raise fault
        at = running or _keys(home, sources, environment, "host", "port")
        url = websocket_at(at.host, at.port)
    if not token and (chosen := _keys(home, sources, environment, "token").token):
        token = chosen.reveal()
    if token:
        return GatewayEndpoint(url=url, token=token.strip())
    try:
        return GatewayEndpoint(url=url, token=read_token(home.token), token_file=home.token)
    except TokenMissing as missing:
        if fault is not None:
            raise TokenMissing(f"{fault} And {str(missing)[0].lower()}{str(missing)[1:]}") from missing
        raise


def websocket_at(host: str, port: int) -> str:
    """Return the websocket's URL for an address that a gateway listens on."""
    return f"ws://{_reachable(host.strip('[]'))}:{port}/ws"


def _keys(home: Home, sources: Sources, environment: Mapping[str, str], *names: str) -> GatewayKeys:
    """Return these keys of `[gateway]`, others at their defaults, so that faults of other keys do not matter."""
    table = sources.tree.get("gateway", {})
    if isinstance(table, dict):
        table = {name: value for name, value in table.items() if name in names}
    narrowed = msgspec.structs.replace(sources, tree={"gateway": table})
    return fit_config(narrowed, References(environment, home.root)).gateway


def read_token(path: Path) -> str:
    """Return the token in a file; raise TokenMissing if there is none."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenMissing(
            f"There is no token in {path}; `exuvia run` creates one. For another gateway, pass --token or set EXUVIA_TOKEN."
        ) from error


def _reachable(host: str) -> str:
    """Return an address to connect to for one to listen on: `0.0.0.0` includes this machine's own."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return f"[{host}]" if address.version == 6 else host


# --- requests ---------------------------------------------------------------------------------------------------------


class RequestFailed(GatewayError):
    """Something responds, but not with what was requested."""


class _Refusal(msgspec.Struct):
    message: str = ""


def address_of(url: str) -> str:
    """Return the gateway's HTTP address for the URL of its websocket."""
    parts = urlsplit(url)
    return f"{'https' if parts.scheme in ('wss', 'https') else 'http'}://{parts.netloc}"


def request(method: str, address: str, path: str, token: str, *, patience: float, body: bytes | None = None) -> bytes:
    """Return the body of the gateway's response.

    Proxies and redirects are not followed, since the token is for this address alone.

    Args:
        patience: The timeout in seconds.
        body: The body of the request: JSON, or a file.

    Raises:
        RequestFailed: The gateway refuses, or it is no gateway.
        OSError: Nothing responds.
    """
    parts = urlsplit(address)
    kind = http.client.HTTPSConnection if parts.scheme == "https" else http.client.HTTPConnection
    connection = kind(parts.hostname or "", parts.port, timeout=patience)
    try:
        connection.request(method, path, body, headers={"Authorization": f"Bearer {token}"})
        response = connection.getresponse()
        answered = response.read(ANSWER_LIMIT)
    except http.client.HTTPException as error:
        raise RequestFailed(f"The server at {address} is not a gateway.") from error
    finally:
        connection.close()
    if response.status not in (http.client.OK, http.client.CREATED):
        raise RequestFailed(f"The gateway at {address} refuses: {_reason(answered) or response.status}")
    return answered


def _reason(body: bytes) -> str:
    try:
        return msgspec.json.decode(body, type=_Refusal).message
    except (msgspec.MsgspecError, UnicodeError):
        return printable(body[:200].decode("utf-8", "replace")).strip()
