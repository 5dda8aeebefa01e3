"""The `/remind` and `/schedule` commands."""

from __future__ import annotations

import re
from typing import ClassVar, Literal

from plugins.api.command import (
    CommandFailed,
    CommandTime,
    ConversationView,
    HeartbeatEntry,
    ScheduleEntry,
    ScheduleOptions,
    SchedulesView,
)
from plugins.commands.markdown import block_text, code

SHOWN = 100
"""Maximum characters of a text in the list."""


PROPOSED_TIMES = 3
"""The next times that are shown of a proposal."""

_OPTION = re.compile(r"(?:--|—)(missed|within|zone|session|to)(?:=| +)(\S+)(?: +|\Z)")  # some keyboards join two hyphens


class Remind:
    """The `/remind` command."""

    name: ClassVar[str] = "remind"
    usage: ClassVar[str] = "/remind TIME TEXT"
    summary: ClassVar[str] = "Remind you of something here, such as `/remind 18:00 Call Ana` or `/remind every 2h Drink`."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with when the reminder comes; raise CommandFailed if the time cannot be understood."""
        return await _add(argument, conversation, reminder=True)


class ScheduleCommand:
    """The `/schedule` command."""

    name: ClassVar[str] = "schedule"
    usage: ClassVar[str] = "/schedule [TIME TEXT | show ID | remove ID | run ID | pause ID | resume ID]"
    summary: ClassVar[str] = (
        "List what is scheduled, or schedule a task, such as `/schedule 0 9 * * 1-5 Summarise my mails`."
    )
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with the list, or with what was done; raise CommandFailed if it cannot be done."""
        schedules = conversation.schedules
        match argument.split():
            case [] | ["list"]:
                entries = await schedules.entries()
                lines = [_line(each, conversation) for each in entries]
                if (heartbeat := await schedules.heartbeat()) is not None:
                    lines.append(_heartbeat(heartbeat, conversation))
                return "\n".join(lines) or "Nothing is scheduled. `/remind 10m TEXT` sets a reminder."
            case ["ok"]:
                return _set(await schedules.confirm(), conversation)
            case ["show" | "remove" | "run" | "pause" | "resume" as action, id_]:
                return await _changed(schedules, action, id_, conversation)
            case ["show" | "remove" | "run" | "pause" | "resume", *_]:
                raise CommandFailed(f"Write {self.usage}; `/schedule` lists the ids.")
        return await _add(argument.removeprefix("add "), conversation, reminder=False)


async def _changed(
    schedules: SchedulesView,
    action: Literal["show", "remove", "run", "pause", "resume"],
    id_: str,
    conversation: ConversationView,
) -> str:
    match action:
        case "show":
            return _shown(await schedules.show(id_), conversation)
        case "remove":
            removed = await schedules.remove(id_)
            return f"Removed {code(removed.id)}: {code(_short(removed.text))}."
        case "run":
            await schedules.run(id_)
            return f"{code(id_)} runs now."
        case "pause":
            paused = await schedules.pause(id_)
            return f"{code(paused.id)} is paused. `/schedule resume {paused.id}` resumes it."
        case "resume":
            resumed = await schedules.resume(id_)
            return f"{code(resumed.id)} is resumed; next {_local(resumed, conversation)}."


async def _add(text: str, conversation: ConversationView, *, reminder: bool) -> str:
    """Set a schedule whose options come first."""
    given: dict[str, str] = {}
    while option := _OPTION.match(text):
        given[option[1]] = option[2]
        text = text[option.end() :]
    options, schedules = ScheduleOptions(**given), conversation.schedules
    try:
        return _set(await schedules.add(text, reminder=reminder, options=options), conversation)
    except CommandFailed:
        if (proposal := await schedules.propose(text, reminder=reminder, options=options)) is None:
            raise
        return _proposed(proposal, conversation)


def _proposed(entry: ScheduleEntry, conversation: ConversationView) -> str:
    """Describe what the model proposes, in full."""
    kind = "a reminder" if entry.reminder else "a task"
    when = "once" if entry.rule == "once" else f"{entry.words} ({code(entry.rule)})"
    lines = [
        f"Do you mean {kind}, {when}?",
        f"- next: {', '.join(_times(entry, conversation)[:PROPOSED_TIMES])} ({entry.zone or 'the time zone of the system'})",
        "",
        "```",
        block_text(entry.text),
        "```",
        "",
        "`/schedule ok` sets it; otherwise nothing is set.",
    ]
    return "\n".join(lines)


def _shown(entry: ScheduleEntry, conversation: ConversationView) -> str:
    """Describe one schedule in full."""
    kind = "Reminder" if entry.reminder else "Task"
    lines = [
        f"{kind} {code(entry.id)} in {code(entry.key)}{', paused' if entry.paused else ''}",
        f"- when: {code(entry.words)}{f' ({code(entry.rule)})' if entry.words != entry.rule else ''}",
        *([f"- next: {', '.join(_times(entry, conversation))}"] if entry.upcoming else []),
        *([f"- answers go to {code(entry.to)}"] if entry.to else []),
        f"- missed ones: {_policy(entry)}",
        f"- handed over {entry.handed} times, missed {entry.missed}",
    ]
    return "\n".join([*lines, "", "```", block_text(entry.text), "```"])


def _heartbeat(entry: HeartbeatEntry, conversation: ConversationView) -> str:
    """Describe the heartbeat on one line."""
    cost = f", {entry.cost / 1_000_000:.2f} {entry.currency} this month" if entry.cost else ""
    counts = f"{entry.sent} sent and {entry.skipped} skipped since the start"
    following = f"{conversation.local(entry.next):%Y-%m-%d %H:%M}"
    return f"- heartbeat {entry.every} ({entry.active}) in {code(entry.key)}, next {following}: {counts}{cost}"


def _policy(entry: ScheduleEntry) -> str:
    """Say what becomes of occurrences that were missed."""
    match entry.missed_policy:
        case "all":
            return "the newest 20 come late"
        case "skip":
            return "are skipped"
        case _:
            late = "" if entry.reminder or entry.rule == "once" else f", up to {entry.within // 60} minutes"
            return f"the newest comes late{late}"


def _times(entry: ScheduleEntry, conversation: ConversationView) -> list[str]:
    return [f"{conversation.local(each):%Y-%m-%d %H:%M}" for each in entry.upcoming]


def _set(entry: ScheduleEntry, conversation: ConversationView) -> str:
    repeated = "" if entry.rule == "once" else f" ({entry.rule})"
    return f"Set for {_local(entry, conversation)}{repeated}. `/schedule remove {entry.id}` removes it."


def _line(entry: ScheduleEntry, conversation: ConversationView) -> str:
    counts = f", {entry.missed} missed" if entry.missed else ""
    counts = f", paused{counts}" if entry.paused else counts
    when = f"{entry.rule}, next {_local(entry, conversation)}" if entry.rule != "once" else _local(entry, conversation)
    when = entry.rule if entry.paused else when
    place = "" if entry.key == conversation.key else f" in {code(entry.key)}"
    return f"- {code(entry.id)} {when}{place}{counts}: {code(_short(entry.text))}"


def _local(entry: ScheduleEntry, conversation: ConversationView) -> str:
    return f"{conversation.local(entry.next):%Y-%m-%d %H:%M}" if entry.next else "never"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"
