"""`exuvia schedule`: the running gateway is asked, which alone hands over what is due.

Each function prints and returns an exit code.
"""

from __future__ import annotations

from datetime import datetime
from urllib.parse import quote

import msgspec

from gateway.cli.channels import ask
from gateway.cli.options import SUCCESS, Invocation, print_json
from gateway.conversations.schedules.recurrence import zone_named
from gateway.support.printable import one_line
from plugins.api.command import ScheduleEntry, ScheduleOptions


def list_schedules(call: Invocation) -> int:
    """Print the owner's schedules, the next one first."""
    found = ask(call, "GET", "/api/schedules", list[ScheduleEntry])
    if call.as_json:
        print_json(found, call.out)
    else:
        call.out.write("".join(f"{_line(each)}\n" for each in found) or "Nothing is scheduled.\n")
    return SUCCESS


def show(call: Invocation, id_: str) -> int:
    """Print one schedule in full, with its next times."""
    entry = ask(call, "GET", _place(id_), ScheduleEntry)
    if call.as_json:
        print_json(entry, call.out)
    else:
        call.out.write("".join(f"{name:<10}{value}\n" for name, value in _fields(entry)))
    return SUCCESS


def _fields(entry: ScheduleEntry) -> list[tuple[str, str]]:
    """Return what there is to say about a schedule, each with its name."""
    zone = zone_named(entry.zone)
    times = [f"{datetime.fromisoformat(each).astimezone(zone):%Y-%m-%d %H:%M %Z}" for each in entry.upcoming]
    policy = f"once, within {entry.within // 60} minutes" if entry.missed_policy == "once" else entry.missed_policy
    return [
        ("id", entry.id),
        ("kind", f"{'reminder' if entry.reminder else 'task'}{', paused' if entry.paused else ''}"),
        ("when", entry.words if entry.words == entry.rule else f"{entry.words} ({entry.rule})"),
        ("next", ", ".join(times) or "never"),
        ("session", one_line(entry.key, 64)),
        ("to", one_line(entry.to, 200) or "the session"),
        ("missed", policy),
        ("set", entry.at),
        ("counts", f"{entry.handed} handed over, {entry.missed} missed"),
        ("text", one_line(entry.text, 20_000)),
    ]


def add(call: Invocation, text: str, options: ScheduleOptions, *, reminder: bool) -> int:
    """Set a schedule."""
    body = msgspec.json.encode({**msgspec.to_builtins(options), "text": text, "reminder": reminder})
    return _changed(call, "Set", ask(call, "POST", "/api/schedules", ScheduleEntry, body))


def remove(call: Invocation, id_: str) -> int:
    """Remove a schedule."""
    return _changed(call, "Removed", ask(call, "DELETE", _place(id_), ScheduleEntry))


def pause(call: Invocation, id_: str) -> int:
    """Pause a schedule."""
    return _changed(call, "Paused", ask(call, "POST", f"{_place(id_)}/pause", ScheduleEntry))


def resume(call: Invocation, id_: str) -> int:
    """Resume a schedule."""
    return _changed(call, "Resumed", ask(call, "POST", f"{_place(id_)}/resume", ScheduleEntry))


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
    due = entry.next[:16].replace("T", " ") + " UTC" if entry.next else "paused" if entry.paused else "never"
    missed = f", {entry.missed} missed" if entry.missed else ""
    kind = "reminder" if entry.reminder else "task"
    return f"{entry.id}  {due}  {entry.rule}, {kind} in {one_line(entry.key, 64)}{missed}: {one_line(entry.text, 100)}"
