"""Where a client on this machine finds its gateway: the address and the token, from what the gateway itself reads."""

from __future__ import annotations

import ipaddress
import tomllib
from collections.abc import Mapping
from pathlib import Path

import msgspec

from gateway.errors import GatewayError
from gateway.home import Home

HOST, PORT = "127.0.0.1", "7117"


class TokenMissing(GatewayError):
    """There is no token to show."""


class FrontDoor(msgspec.Struct, frozen=True, kw_only=True):
    """An address and the token to show there."""

    url: str
    token: str


def find(home: Home, environment: Mapping[str, str], *, url: str | None, token: str | None) -> FrontDoor:
    """The gateway of a home. What is given goes before the environment, that before the home's files. TokenMissing if
    there is none anywhere."""
    token = token or environment.get("EXUVIA_TOKEN") or _read_token(home.token)
    return FrontDoor(url=url or _address(home.config, environment), token=token.strip())


def _read_token(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise TokenMissing(
            f"There is no token in {path}; `exuvia run` makes one, and EXUVIA_TOKEN or --token names another gateway's."
        ) from error


def _address(config: Path, environment: Mapping[str, str]) -> str:
    stated = _stated(config)
    host = environment.get("EXUVIA_HOST") or environment.get("EXUVIA__GATEWAY__HOST") or str(stated.get("host") or HOST)
    port = environment.get("EXUVIA_PORT") or environment.get("EXUVIA__GATEWAY__PORT") or str(stated.get("port") or PORT)
    return f"ws://{_reachable(host.strip('[]'))}:{port}/ws"


def _stated(config: Path) -> dict[str, object]:
    """The configuration's section about the gateway. The gateway checks it; a client takes what it can use."""
    try:
        section = tomllib.loads(config.read_text(encoding="utf-8")).get("gateway")
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError):
        section = None
    return section if isinstance(section, dict) else {}


def _reachable(host: str) -> str:
    """An address to connect to, from one to listen on: `0.0.0.0` is every address, this machine's own among them."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if address.is_unspecified:
        return "127.0.0.1" if address.version == 4 else "[::1]"
    return f"[{host}]" if address.version == 6 else host
