"""`exuvia channels` and `exuvia pair`. What a running gateway knows is asked of it; it alone has the codes for pairing.

Each function prints and returns an exit code: 0 success, 1 a channel is not connected.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TypeVar
from urllib.parse import quote

import click
import msgspec

from gateway.cli.options import PROBLEM, SUCCESS, Invocation, print_json
from gateway.conversations.channels.channel_probe import CheckedChannel
from gateway.status.channel_reports import AdmittedAddress, ChannelReport, PairingsReport, SentPost
from gateway.status.overview import Overview
from gateway.support import instance_address, logs
from gateway.support.errors import GatewayError
from gateway.support.printable import one_line
from gateway.terminal.client import local_gateway
from gateway.terminal.client.local_gateway import RequestFailed, address_of, request
from plugins.support.workspace import OWNER

T = TypeVar("T")

PATIENCE, SEND_PATIENCE = 70.0, 600.0
"""Seconds to wait for a response, and until a long text is sent."""


class GatewayNeeded(GatewayError):
    """No gateway runs; the message says what to do."""


class _Uploaded(msgspec.Struct, frozen=True):
    sha256: str


class ListedChannel(msgspec.Struct, frozen=True, kw_only=True):
    """A configured channel while no gateway runs."""

    name: str
    kind: str
    connection: str = "no gateway runs"


def list_channels(call: Invocation) -> int:
    """Print the channels and their state."""
    overview = _overview(call)
    if overview is None:
        listed = [ListedChannel(name=name, kind=keys.kind) for name, keys in call.config().channels.items()]
        lines = [f"{each.name} ({each.kind}): {each.connection}" for each in listed]
        _print_all(call, listed, lines)
        return SUCCESS
    _print_all(call, overview.channels, [line for each in overview.channels for line in _channel_lines(each)])
    return SUCCESS if all(each.connection == "connected" for each in overview.channels) else PROBLEM


def check(call: Invocation, name: str | None) -> int:
    """Print as whom the channels are logged in, asked of the running gateway, or by opening them."""
    overview = _overview(call)
    if overview is None:
        checked = _check_here(call, name)
    else:
        names = [each.name for each in overview.channels] if name is None else [name]
        checked = [ask(call, "POST", f"/api/channels/{quote(each, safe='')}/check", CheckedChannel) for each in names]
    _print_all(call, checked, [f"{each.name}: {'ok' if each.ok else 'FAILED'}. {each.says}" for each in checked])
    return SUCCESS if all(each.ok for each in checked) else PROBLEM


def send(call: Invocation, name: str, *, chat: str, text: str, thread: str, files: Sequence[Path] = ()) -> int:
    """Send a text and files through the running gateway."""
    uploaded = [ask(call, "POST", f"/attachments?name={quote(each.name)}", _Uploaded, _content(each)) for each in files]
    body = {"chat": chat, "text": text, "thread": thread, "attachments": [each.sha256 for each in uploaded]}
    place = f"/api/channels/{quote(name, safe='')}/posts"
    sent = ask(call, "POST", place, SentPost, msgspec.json.encode(body), patience=SEND_PATIENCE)
    if call.as_json:
        print_json(sent, call.out)
    else:
        posts = f" in {sent.posts} posts" if sent.posts > 1 else ""
        call.out.write(one_line(f"Sent{posts}{f' as {sent.receipt}' if sent.receipt else ''}.", 400) + "\n")
    return SUCCESS


def _content(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError as error:
        raise click.ClickException(f"{one_line(str(file), 200)} cannot be read: {error.strerror}.") from error


def _check_here(call: Invocation, name: str | None) -> list[CheckedChannel]:
    from gateway.doctor.channel_checks import check_channels  # noqa: PLC0415 - loads plugins

    logs.configure("error", "auto")
    checked = asyncio.run(check_channels(call.config(), call.home, call.environment, () if name is None else (name,)))
    if name is not None and not checked:
        raise click.ClickException(f"There is no channel {one_line(name, 40)!r} in the configuration.")
    return checked


def _channel_lines(channel: ChannelReport) -> Iterator[str]:
    since = channel.since[:16].replace("T", " ")
    counts = f"{channel.accepted:,} in, {channel.delivered:,} out"
    yield f"{channel.name} ({channel.kind}): {channel.connection} since {since} UTC; {counts}"
    if channel.problem:
        yield f"  {channel.problem}"
    if channel.waiting:
        yield f"  {channel.waiting:,} waiting{f': {channel.waiting_because}' if channel.waiting_because else ''}"
    if channel.abandoned:
        at = channel.abandoned_at[:16].replace("T", " ")
        yield f"  {channel.abandoned:,} never delivered, the last at {at} UTC: {channel.abandoned_because}"


def _print_all(call: Invocation, values: Sequence[object], lines: Sequence[str]) -> None:
    if call.as_json:
        print_json(values, call.out)
    elif not lines:
        call.out.write("No channel is configured: add a table [channels.NAME] to the configuration.\n")
    else:
        call.out.writelines(f"{'  ' * line.startswith('  ')}{one_line(line, 600)}\n" for line in lines)


def list_pairings(call: Invocation) -> int:
    """Print who asks to speak, and who may."""
    report = ask(call, "GET", "/api/pairings", PairingsReport)
    if call.as_json:
        print_json(report, call.out)
    else:
        call.out.writelines(f"{one_line(line, 400)}\n" for line in _lines(report))
    return SUCCESS


def admit(call: Invocation, code: str, person: str | None) -> int:
    """Link the address that was told a code to a person; ask for the person on a terminal if none is given."""
    if person is None:
        person = _chosen_person(ask(call, "GET", "/api/pairings", PairingsReport), code)
    body = msgspec.json.encode({"code": code, "person": person})
    admitted = ask(call, "POST", "/api/pairings", AdmittedAddress, body)
    untold = "" if admitted.told else " They have not been told."
    _print(call, admitted, f"{admitted.address} speaks for {admitted.person} from now on.{untold}")
    return SUCCESS


def remove(call: Invocation, address: str) -> int:
    """Unlink an address."""
    removed = ask(call, "DELETE", f"/api/pairings/{quote(address, safe='')}", AdmittedAddress)
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


def _overview(call: Invocation) -> Overview | None:
    """Return the state of the running gateway; None if none runs."""
    if instance_address.running_instance(call.home.address) is None:
        return None
    try:
        return ask(call, "GET", "/status.json", Overview)
    except GatewayNeeded:
        return None


def ask(
    call: Invocation, method: str, path: str, form: type[T], body: bytes | None = None, *, patience: float = PATIENCE
) -> T:
    """Return the running gateway's response. Raises GatewayNeeded if none runs, RequestFailed if it refuses."""
    endpoint = local_gateway.find_gateway(call.home, call.environment, url=None, token=None)
    address = address_of(endpoint.url)
    try:
        answered = request(method, address, path, endpoint.token, patience=patience, body=body)
    except ConnectionRefusedError as error:
        raise GatewayNeeded(f"No gateway runs at {address}, which this needs; `exuvia run` starts one.") from error
    try:
        return msgspec.json.decode(answered, type=form)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise RequestFailed(f"The server at {address} is not a gateway of this version.") from error
