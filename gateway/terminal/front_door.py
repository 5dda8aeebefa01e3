"""Where a client on this machine finds its gateway: the address and the token, from what the gateway itself reads."""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway import whereabouts
from gateway.configuration.keys import load_config
from gateway.errors import GatewayError
from gateway.home import Home


class TokenMissing(GatewayError):
    """There is no token to show."""


class FrontDoor(msgspec.Struct, frozen=True, kw_only=True):
    """An address and the token to show there; `token_file` is where it was read, unless somebody set it elsewhere."""

    url: str
    token: str
    token_file: Path | None = None


def find(home: Home, environment: Mapping[str, str], *, url: str | None, token: str | None) -> FrontDoor:
    """The gateway of a home: at what is given, else where the one that runs says that it listens, else where it would by the
    environment and the home's configuration; with the token that it would read itself. TokenMissing if there is none
    anywhere; ConfigRefused if the configuration is wrong."""
    config = load_config(home.config, environment=environment, overrides={})
    running = whereabouts.found(home.address)
    host, port = (config.gateway.host, config.gateway.port) if running is None else (running.host, running.port)
    address = f"ws://{_reachable(host.strip('[]'))}:{port}/ws"
    if not token and config.gateway.token:
        token = config.gateway.token.reveal()
    if token:
        return FrontDoor(url=url or address, token=token.strip())
    return FrontDoor(url=url or address, token=read_token(home.token), token_file=home.token)


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
