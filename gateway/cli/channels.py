"""`exuvia pair`: who may speak on channels. The running gateway decides, since it alone has the codes.

Each function prints and returns an exit code: 0 success, 1 there is nothing to print.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TypeVar
from urllib.parse import quote

import click
import msgspec

from gateway.cli.options import SUCCESS, Invocation, print_json
from gateway.status.channel_reports import AdmittedAddress, PairingsReport
from gateway.support.errors import GatewayError
from gateway.support.printable import one_line
from gateway.terminal.client import local_gateway
from gateway.terminal.client.local_gateway import RequestFailed, address_of, request
from plugins.support.workspace import OWNER

T = TypeVar("T")

PATIENCE = 30.0
"""Seconds to wait for a response."""


class GatewayNeeded(GatewayError):
    """No gateway runs; the message says what to do."""


def list_pairings(call: Invocation) -> int:
    """Print who asks to speak, and who may."""
    report = _ask(call, "GET", "/api/pairings", PairingsReport)
    if call.as_json:
        print_json(report, call.out)
    else:
        call.out.writelines(f"{one_line(line, 400)}\n" for line in _lines(report))
    return SUCCESS


def admit(call: Invocation, code: str, person: str | None) -> int:
    """Link the address that was told a code to a person; ask for the person on a terminal if none is given."""
    if person is None:
        person = _chosen_person(_ask(call, "GET", "/api/pairings", PairingsReport), code)
    body = msgspec.json.encode({"code": code, "person": person})
    admitted = _ask(call, "POST", "/api/pairings", AdmittedAddress, body)
    _print(call, admitted, f"{admitted.address} speaks for {admitted.person} from now on.")
    return SUCCESS


def remove(call: Invocation, address: str) -> int:
    """Unlink an address."""
    removed = _ask(call, "DELETE", f"/api/pairings/{quote(address, safe='')}", AdmittedAddress)
    _print(call, removed, f"{removed.address} speaks for {removed.person} no more.")
    return SUCCESS


def _print(call: Invocation, changed: AdmittedAddress, sentence: str) -> None:
    if call.as_json:
        print_json(changed, call.out)
    else:
        call.out.write(f"{one_line(sentence, 600)}\n")


def _chosen_person(report: PairingsReport, code: str) -> str:
    """Ask on the terminal for whom the sender with a code speaks."""
    wanted = code.upper().replace("-", "")
    found = next((each for each in report.codes if each.code.replace("-", "") == wanted), None)
    if found is None:
        raise click.ClickException(f"There is no code {one_line(code, 40)}; `exuvia pair` lists the valid ones.")
    if not sys.stdin.isatty():
        raise click.ClickException(f"Say for whom they speak: --as {' or --as '.join(report.persons)}.")
    click.echo(f"{one_line(found.address, 200)}{_named(found.name)} was told this code.")
    if report.persons == (OWNER,):
        click.confirm("Are they you, the owner, with all your rights?", abort=True)
        return OWNER
    return str(click.prompt(f"For whom do they speak ({OWNER} has all rights)?", type=click.Choice(report.persons)))


def _lines(report: PairingsReport) -> Iterator[str]:
    for code in report.codes:
        yield f"{code.code}  {code.address}{_named(code.name)} asks to speak; valid for {max(1, code.seconds // 60)} min"
    for each in report.linked:
        yield f"{each.address}{_named(each.name)} speaks for {each.person} since {each.at[:16].replace('T', ' ')} UTC"
    if not report.codes and not report.linked:
        yield "Nobody is paired, and nobody has asked. Senders in the configuration are not listed here."


def _named(name: str) -> str:
    return f" ({name!r})" if name else ""


def _ask(call: Invocation, method: str, path: str, form: type[T], body: bytes | None = None) -> T:
    """Return the running gateway's response. Raises GatewayNeeded if none runs, RequestFailed if it refuses."""
    endpoint = local_gateway.find_gateway(call.home, call.environment, url=None, token=None)
    address = address_of(endpoint.url)
    try:
        answered = request(method, address, path, endpoint.token, patience=PATIENCE, body=body)
    except ConnectionRefusedError as error:
        raise GatewayNeeded(f"No gateway runs at {address}, which this needs; `exuvia run` starts one.") from error
    try:
        return msgspec.json.decode(answered, type=form)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise RequestFailed(f"The server at {address} is not a gateway of this version.") from error
