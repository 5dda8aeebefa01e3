"""`exuvia schedule`: the running gateway is asked, which alone hands over what is due.

Each function prints and returns an exit code.
"""

from __future__ import annotations

from urllib.parse import quote

import msgspec

from gateway.cli.channels import ask
from gateway.cli.options import SUCCESS, Invocation, print_json
from gateway.support.printable import one_line
from plugins.api.command import ScheduleEntry


def list_schedules(call: Invocation) -> int:
    """Print the owner's schedules, the next one first."""
    found = ask(call, "GET", "/api/schedules", list[ScheduleEntry])
    if call.as_json:
        print_json(found, call.out)
    else:
        call.out.write("".join(f"{_line(each)}\n" for each in found) or "Nothing is scheduled.\n")
    return SUCCESS


def add(call: Invocation, text: str, *, session: str, reminder: bool) -> int:
    """Set a schedule."""
    body = msgspec.json.encode({"text": text, "session": session, "reminder": reminder})
    return _changed(call, "Set", ask(call, "POST", "/api/schedules", ScheduleEntry, body))


def remove(call: Invocation, id_: str) -> int:
    """Remove a schedule."""
    return _changed(call, "Removed", ask(call, "DELETE", _place(id_), ScheduleEntry))


def run(call: Invocation, id_: str) -> int:
    """Put the text of a schedule into its conversation now."""
    ask(call, "POST", f"{_place(id_)}/run", type(None))
    call.out.write(f"{one_line(id_, 40)} runs now.\n")
    return SUCCESS


def _place(id_: str) -> str:
    return f"/api/schedules/{quote(id_, safe='')}"


def _changed(call: Invocation, done: str, entry: ScheduleEntry) -> int:
    if call.as_json:
        print_json(entry, call.out)
    else:
        call.out.write(f"{done}: {_line(entry)}\n")
    return SUCCESS


def _line(entry: ScheduleEntry) -> str:
    due = entry.next[:16].replace("T", " ") + " UTC" if entry.next else "never"
    missed = f", {entry.missed} missed" if entry.missed else ""
    kind = "reminder" if entry.reminder else "task"
    return f"{entry.id}  {due}  {entry.rule}, {kind} in {one_line(entry.key, 64)}{missed}: {one_line(entry.text, 100)}"
