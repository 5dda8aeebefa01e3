"""`exuvia status`: the state of the running gateway. It starts nothing and takes no lock."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TextIO

import msgspec

from gateway.cli.options import print_json
from gateway.status.overview import Overview, describe_overview, is_well
from gateway.support import instance_address
from gateway.support.errors import GatewayError, sentence_of
from gateway.support.home import Home
from gateway.support.instance_address import InstanceAddress
from gateway.support.printable import printable
from gateway.terminal.client import local_gateway
from gateway.terminal.client.local_gateway import RequestFailed, address_of, request

PATIENCE = 5.0
"""Seconds to wait for a response."""


class NotRunning(GatewayError):
    """No gateway responds; the message says what to do."""


def status(
    home: Home, environment: Mapping[str, str], out: TextIO, *, url: str | None, token: str | None, as_json: bool
) -> int:
    """Print the state of the gateway of a home, or at `url`. Return 0 if all is well, 1 if there is a problem or none runs.

    Raises:
        RequestFailed: Something else responds at the address.
        ConfigRefused: The configuration is invalid.
        TokenMissing: There is no token to send.
    """
    try:
        address, overview = _find_and_ask(home, environment, url, token)
    except NotRunning as error:
        if as_json:
            print_json({"running": False, "reason": str(error)}, out)
        else:
            out.write(f"{printable(str(error))}\n")
        return 1
    if as_json:
        print_json({"running": True, "address": address, **msgspec.to_builtins(overview)}, out)
    else:
        out.write(printable(describe_overview(overview, address)) + "\n")
    return 0 if is_well(overview) else 1


def _find_and_ask(home: Home, environment: Mapping[str, str], url: str | None, token: str | None) -> tuple[str, Overview]:
    try:
        endpoint = local_gateway.find_gateway(home, environment, url=url, token=token)
    except local_gateway.TokenMissing:
        if url is not None or home.lock.exists():
            raise
        raise NotRunning(f"No gateway has ever run on {home.root}; `exuvia run` starts one.") from None
    address = address_of(endpoint.url)
    ended = instance_address.crashed_instance(home.address) if url is None else None
    try:
        return address, _ask(address, endpoint.token)
    except RequestFailed as error:
        if ended is None or address_of(local_gateway.websocket_at(ended.host, ended.port)) == address:
            raise
        raise NotRunning(_ended(home, ended)) from error  # what answers where this one would is another
    except OSError as error:
        raise NotRunning(_absence(home, address, ended, error)) from error


def _ask(address: str, token: str) -> Overview:
    body = request("GET", address, "/status.json", token, patience=PATIENCE)
    try:
        return msgspec.json.decode(body, type=Overview)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise RequestFailed(f"The server at {address} is not a gateway of this version.") from error


def _ended(home: Home, last: InstanceAddress) -> str:
    where = address_of(local_gateway.websocket_at(last.host, last.port))
    return (
        f"No gateway runs on {home.root}: the last one listened at {where} and was killed. `exuvia run` starts one; pass"
        " the same options if it had any. Nothing that was acknowledged is lost."
    )


def _absence(home: Home, address: str, ended: InstanceAddress | None, error: OSError) -> str:
    if isinstance(error, TimeoutError):
        return f"The gateway at {address} did not respond within {PATIENCE:.0f} seconds: it hangs, or is unreachable."
    if not isinstance(error, ConnectionRefusedError):
        return f"No gateway can be reached at {address}: {error.strerror or sentence_of(error)}."
    if (process := _last_owner(home.lock)) is not None:
        return (
            f"No gateway responds at {address}, but process {process}, which used {home.root} last, is running. If it was"
            " started with another --port, use `exuvia status --url`."
        )
    if ended is not None:
        return _ended(home, ended)
    return f"No gateway runs at {address}; `exuvia run` starts one."


def _last_owner(lock: Path) -> int | None:
    """Return the process id in a home's lock if that process is alive, else None."""
    try:
        process = int(lock.read_text(encoding="ascii"))
        os.kill(process, 0)
    except (OSError, ValueError, OverflowError):
        return None
    return process
