"""The `/remind` and `/schedule` commands."""

from __future__ import annotations

from typing import ClassVar

from plugins.api.command import CommandFailed, CommandTime, ConversationView, ScheduleEntry
from plugins.commands.markdown import code

SHOWN = 100
"""Maximum characters of a text in the list."""


class Remind:
    """The `/remind` command."""

    name: ClassVar[str] = "remind"
    usage: ClassVar[str] = "/remind TIME TEXT"
    summary: ClassVar[str] = "Remind you of something here, such as `/remind 18:00 Call Ana` or `/remind every 2h Drink`."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Answer with when the reminder comes; raise CommandFailed if the time cannot be understood."""
        return _set(await conversation.schedules.add(argument, reminder=True), conversation)


class ScheduleCommand:
    """The `/schedule` command."""

    name: ClassVar[str] = "schedule"
    usage: ClassVar[str] = "/schedule [TIME TEXT | remove ID | run ID]"
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
                return "\n".join(lines) or "Nothing is scheduled. `/remind 10m TEXT` sets a reminder."
            case ["remove", id_]:
                removed = await schedules.remove(id_)
                return f"Removed {code(removed.id)}: {code(_short(removed.text))}."
            case ["run", id_]:
                await schedules.run(id_)
                return f"{code(id_)} runs now."
            case ["remove" | "run", *_]:
                raise CommandFailed(f"Write {self.usage}; `/schedule` lists the ids.")
        return _set(await schedules.add(argument.removeprefix("add "), reminder=False), conversation)


def _set(entry: ScheduleEntry, conversation: ConversationView) -> str:
    repeated = "" if entry.rule == "once" else f" ({entry.rule})"
    return f"Set for {_local(entry, conversation)}{repeated}. `/schedule remove {entry.id}` removes it."


def _line(entry: ScheduleEntry, conversation: ConversationView) -> str:
    counts = f", {entry.missed} missed" if entry.missed else ""
    when = f"{entry.rule}, next {_local(entry, conversation)}" if entry.rule != "once" else _local(entry, conversation)
    place = "" if entry.key == conversation.key else f" in {code(entry.key)}"
    return f"- {code(entry.id)} {when}{place}{counts}: {code(_short(entry.text))}"


def _local(entry: ScheduleEntry, conversation: ConversationView) -> str:
    return f"{conversation.local(entry.next):%Y-%m-%d %H:%M}" if entry.next else "never"


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= SHOWN else f"{line[: SHOWN - 1]}…"
