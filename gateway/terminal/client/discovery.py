"""Where a client on this machine finds its gateway: the address and the token, from what the gateway itself reads."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.config.keys import GatewayKeys, fit_config
from gateway.config.secret_references import References
from gateway.config.sources import Sources, merge_readable
from gateway.support import instance_address
from gateway.support.errors import GatewayError
from gateway.support.home import Home


class TokenMissing(GatewayError):
    """There is no token to show."""


class GatewayEndpoint(msgspec.Struct, frozen=True, kw_only=True):
    """An address and the token to show there; `token_file` is where it was read, unless somebody set it elsewhere."""

    url: str
    token: str
    token_file: Path | None = None


def find(home: Home, environment: Mapping[str, str], *, url: str | None, token: str | None) -> GatewayEndpoint:
    """The gateway of a home: at what is given, else where the one that runs says that it listens, else where it would by the
    environment and the home's configuration; with the token that it would read itself. TokenMissing if there is none
    anywhere. ConfigRefused if a key that is needed for that is wrong; one that runs is found whatever is in the file."""
    sources, fault = merge_readable(home.config, environment)
    running = instance_address.found(home.address)
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
    """The websocket of a gateway that listens there."""
    return f"ws://{_reachable(host.strip('[]'))}:{port}/ws"


def _keys(home: Home, sources: Sources, environment: Mapping[str, str], *names: str) -> GatewayKeys:
    """These keys of `[gateway]`, the others as their defaults: what is wrong with those is no client's affair."""
    table = sources.tree.get("gateway", {})
    if isinstance(table, dict):
        table = {name: value for name, value in table.items() if name in names}
    narrowed = msgspec.structs.replace(sources, tree={"gateway": table})
    return fit_config(narrowed, References(environment, home.root)).gateway


def read_token(path: Path) -> str:
    """The token in a file; TokenMissing if there is none."""
    try:
        return path.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise TokenMissing(
            f"There is no token in {path}; `exuvia run` makes one, and EXUVIA_TOKEN or --token names another gateway's."
        ) from error


def _reachable(host: str) -> str:
    """An address to connect to, from one to listen on: `0.0.0.0` is every address, this machine's own among them."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return f"[{host}]" if address.version == 6 else host
