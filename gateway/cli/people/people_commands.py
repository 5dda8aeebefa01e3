"""`exuvia people`: the running gateway is asked, which alone admits people. Tokens and invitations are printed once.

Each function prints and returns an exit code.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from gateway.auth.people_log import INVITATION, TrailEntry
from gateway.cli.channels import ask
from gateway.cli.options import SUCCESS, Invocation, print_json
from gateway.config.keys import Role
from gateway.http.console.signing_in import ListedPerson
from gateway.support.printable import one_line
from gateway.terminal.client import local_gateway


class _People(msgspec.Struct, frozen=True):
    people: list[ListedPerson]
    trail: list[TrailEntry]


class _Made(msgspec.Struct, frozen=True):
    token: str = ""
    invitation: str = ""


def list_people(call: Invocation) -> int:
    """Print everybody who may use the gateway."""
    found = ask(call, "GET", "/api/people", _People).people
    if call.as_json:
        print_json(found, call.out)
    else:
        call.out.write("".join(f"{_line(each)}\n" for each in found))
    return SUCCESS


def audit(call: Invocation) -> int:
    """Print who did what about people, oldest first."""
    found = ask(call, "GET", "/api/people", _People).trail
    if call.as_json:
        print_json(found, call.out)
    else:
        call.out.write(
            "".join(f"{each.at}  {each.by} {each.act} {each.person}\n" for each in found) or "Nothing was done.\n"
        )
    return SUCCESS


def add(call: Invocation, person: str, *, name: str, role: Role, invite: bool) -> int:
    """Add a person, and print their token or invitation."""
    body = msgspec.json.encode({"id": person, "name": name, "role": role, "invite": invite})
    return _print_secret(call, person, ask(call, "POST", "/api/people", _Made, body))


def replace_token(call: Invocation, person: str) -> int:
    """Give a person a new token, and print it."""
    return _print_secret(call, person, ask(call, "POST", f"{_place(person)}/token", _Made))


def disable(call: Invocation, person: str, *, enable: bool) -> int:
    """Refuse a person from now on, or admit them again."""
    ask(call, "POST", f"{_place(person)}/{'enable' if enable else 'disable'}", _Made)
    call.out.write(f"{one_line(person, 40)} is {'admitted again' if enable else 'not admitted any more'}.\n")
    return SUCCESS


def change_role(call: Invocation, person: str, role: Role) -> int:
    """Give a person another role."""
    ask(call, "POST", f"{_place(person)}/role", _Made, msgspec.json.encode({"role": role}))
    call.out.write(f"{one_line(person, 40)} is a {role} from now on.\n")
    return SUCCESS


def remove(call: Invocation, person: str) -> int:
    """Remove a person."""
    ask(call, "DELETE", _place(person), _Made)
    call.out.write(f"{one_line(person, 40)} was removed. Their conversations remain; `exuvia erase person` removes them.\n")
    return SUCCESS


def _place(person: str) -> str:
    return f"/api/people/{quote(person, safe='')}"


def _print_secret(call: Invocation, person: str, made: _Made) -> int:
    if call.as_json:
        print_json(made, call.out)
    elif made.token:
        call.out.write(f"The token of {one_line(person, 40)}, which is not shown again:\n\n  {made.token}\n")
    else:
        address = local_gateway.find_gateway(call.home, call.environment, url=None, token=None).url
        place = address.replace("ws", "http", 1).removesuffix("/ws")
        call.out.write(
            f"The invitation of {one_line(person, 40)} works once, within seven days. They open it in a browser, at the"
            f" address by which they reach the gateway:\n\n  {place}/#link={INVITATION}{made.invitation}\n"
        )
    return SUCCESS


def _line(person: ListedPerson) -> str:
    state = "disabled" if person.disabled else f"invited until {person.invited[:10]}" if person.invited else ""
    place = f"since {person.since[:10]}" if person.added else "in the configuration" if person.role != "owner" else ""
    return "  ".join(part for part in (person.id, person.role, one_line(person.name, 60), place, state) if part)
