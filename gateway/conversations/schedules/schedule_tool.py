"""The tool `schedule`, with which the model sets schedules for the person it talks to.

A person approves what is set, as they are shown it: the text, the rule in words, its next times and their zone. The model
turns words such as "every weekday at nine" into a rule that `parse_rule` reads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from itertools import islice
from typing import Annotated, Any, ClassVar, Literal

import msgspec

from gateway.config.settings import Settings
from gateway.conversations.schedules.recurrence import (
    Cron,
    Once,
    Rule,
    described,
    in_words,
    is_zone,
    occurrences,
    zone_named,
)
from gateway.conversations.schedules.schedules import (
    MissedPolicy,
    Schedule,
    ScheduleRefused,
    Schedules,
    ScheduleSet,
    SchedulesUnusable,
    check_text,
)
from gateway.support.errors import sentence_of
from plugins.api.tool import ApprovalRequest, Tool, ToolContext, ToolOutput
from plugins.support.errors import ToolFailed
from plugins.tools.file_changes import convert
from sessions.events.messages import ToolDefinition

SHOWN_TIMES = 3
"""The next times that a person is shown before a schedule counts."""

_Words = Annotated[str, msgspec.Meta(max_length=500)]


class ScheduleArguments(msgspec.Struct, frozen=True):
    """Arguments of the `schedule` tool."""

    action: Literal["set", "list", "remove"]
    time: _Words = ""
    text: Annotated[str, msgspec.Meta(max_length=20_000)] = ""
    reminder: bool = False
    zone: _Words = ""
    missed: MissedPolicy = "once"
    id: _Words = ""


class ScheduleTool:
    """The `schedule` tool.

    Args:
        schedules: The schedules.
        settings: The configuration in force, for the zones of people.
        now: Returns the current time in UTC.
    """

    definition: ClassVar[ToolDefinition] = ToolDefinition(
        name="schedule",
        description=(
            "Schedule a message to this conversation, list what is scheduled, or remove something. Use it when a person asks"
            " to be reminded, or for a task at a later time or again and again. They approve what you set."
        ),
        parameters={
            "type": "object",
            "properties": {
                "action": {"type": "string", "enum": ["set", "list", "remove"]},
                "time": {
                    "type": "string",
                    "description": (
                        "For set: `10m` or `2h30m` from now; `18:00`, `tomorrow 9:00`, `2026-12-24 18:00`; `every 2h`;"
                        " `every weekday 9:00`, `every monday and friday 18:30`; or a cron line, such as `0 9 1 * *` for the"
                        " first of every month at nine. Times are the person's local ones."
                    ),
                },
                "text": {
                    "type": "string",
                    "description": "For set: the reminder, or the task that you are given then, in the person's language.",
                },
                "reminder": {"type": "boolean", "description": "True for a note to the person, false for a task to you."},
                "zone": {"type": "string", "description": "A time zone such as Asia/Tokyo, if not the person's own."},
                "missed": {
                    "type": "string",
                    "enum": ["once", "skip", "all"],
                    "description": "Occurrences missed while the gateway was off; once, the default: the newest, late.",
                },
                "id": {"type": "string", "description": "For remove: its id."},
            },
            "required": ["action"],
            "additionalProperties": False,
        },
    )
    repeatable: ClassVar[bool] = True  # a call sets one schedule, however often it runs

    def __init__(self, schedules: Schedules, settings: Settings, now: Callable[[], datetime]) -> None:
        self._schedules = schedules
        self._settings = settings
        self._now = now

    async def approval(self, arguments: dict[str, Any], call: ToolContext) -> ApprovalRequest | None:
        """Describe what would be set or removed; None for a list.

        Raises:
            ToolFailed: The time is not understood, or there is no such schedule.
        """
        asked = convert(arguments, ScheduleArguments)
        try:
            match asked.action:
                case "list":
                    return None
                case "set":
                    return self._question(self._wanted(asked, call), call)
                case "remove":
                    made = (await self._found(asked.id, call)).made
                    what = f"Remove the schedule {asked.id}: {in_words(made.rule)}"
                    return ApprovalRequest(what=what, detail=made.text, rememberable=False)
        except (ScheduleRefused, SchedulesUnusable) as error:
            raise ToolFailed(sentence_of(error)) from error

    async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
        """Set, list or remove.

        Raises:
            ToolFailed: It is not possible; the sentence says why.
        """
        asked = convert(arguments, ScheduleArguments)
        try:
            match asked.action:
                case "list":
                    found = [each for each in await self._schedules.of_person(call.person) if _shows(each, call)]
                    return ToolOutput(text="\n".join(self._line(each, call) for each in found) or "Nothing is scheduled.")
                case "set":
                    made = await self._schedules.set(self._wanted(asked, call))
                    return ToolOutput(text=f"Set: {self._line(made, call)}")
                case "remove":
                    await self._found(asked.id, call)
                    removed = await self._schedules.remove(call.person, asked.id)
                    return ToolOutput(text=f"Removed: {self._line(removed, call)}")
        except (ScheduleRefused, SchedulesUnusable) as error:
            raise ToolFailed(sentence_of(error)) from error

    async def _found(self, id_: str, call: ToolContext) -> Schedule:
        """Return a schedule of the person, in a group one of this group. Raises ScheduleRefused."""
        found = await self._schedules.find(call.person, id_)
        if not _shows(found, call):
            raise ScheduleRefused("This schedule was not set by this assistant, or not in this group.")
        return found

    def _wanted(self, asked: ScheduleArguments, call: ToolContext) -> ScheduleSet:
        """Return what is to be set. Times from now count from the beginning of the turn, so that it is what was approved."""
        from gateway.conversations.schedules.parsing import parse_rule  # noqa: PLC0415 - only where somebody schedules

        if asked.zone and not is_zone(asked.zone):
            raise ScheduleRefused(f"There is no time zone {asked.zone[:40]!r}.")
        began = datetime.fromisoformat(call.began) if call.began else self._now()
        rule, rest = parse_rule(asked.time, began, self._zone(asked, call))
        if rest:
            raise ScheduleRefused(f"The time is followed by {rest[:40]!r}; pass the text as `text`.")
        check_text(asked.text)
        return ScheduleSet(
            schedule="",
            person=call.person,
            client=f"tool:{call.call}"[:128],
            key=call.chat,
            text=asked.text.strip(),
            rule=rule,
            missed=asked.missed,
            reminder=asked.reminder,
            channel=call.channel or "websocket",
            chat="group" if call.group else "private",
            reply_to=call.reply_to,
            thread=call.thread,
            message=call.call,
            agent=call.agent,
        )

    def _zone(self, asked: ScheduleArguments, call: ToolContext) -> str:
        return asked.zone or self._settings.zone_of(call.person)

    def _question(self, wanted: ScheduleSet, call: ToolContext) -> ApprovalRequest:
        zone = _zone_of(wanted.rule, self._settings.zone_of(call.person))
        kind = "Remind you" if wanted.reminder else "Give the assistant a task"
        began = datetime.fromisoformat(call.began) if call.began else self._now()
        times = [_local(each, zone) for each in islice(occurrences(wanted.rule, began), SHOWN_TIMES)]
        when = times[0] if isinstance(wanted.rule, Once) else in_words(wanted.rule)
        lines = [
            wanted.text,
            "",
            *([] if isinstance(wanted.rule, Once) else [f"Rule: {described(wanted.rule)}"]),
            f"Next: {', '.join(times)}",
            f"Time zone: {zone or 'of the system'}",
            *([f"If missed: {wanted.missed}"] if wanted.missed != "once" else []),
        ]
        return ApprovalRequest(what=f"{kind}: {when}", detail="\n".join(lines), rememberable=False)

    def _line(self, schedule: Schedule, call: ToolContext) -> str:
        made, due = schedule.made, schedule.next()
        zone = _zone_of(made.rule, self._settings.zone_of(call.person))
        following = "paused" if schedule.paused else f"next {_local(due, zone)}" if due else "no further time"
        return f"{schedule.id}: {described(made.rule)}, {following}: {made.text}"


class ScheduleTools:
    """The tool as a `ToolSource`: offered if `tools.schedule.enabled`."""

    def __init__(self, schedules: Schedules, settings: Settings, now: Callable[[], datetime]) -> None:
        self._settings = settings
        self._tools: dict[str, Tool] = {"schedule": ScheduleTool(schedules, settings, now)}

    def tools(self) -> Mapping[str, Tool]:
        """Return the tool by its name."""
        return self._tools if self._settings.current.tools.schedule.enabled else {}


def _shows(schedule: Schedule, call: ToolContext) -> bool:
    return schedule.made.agent == call.agent and (not call.group or schedule.made.key == call.chat)


def _zone_of(rule: Rule, zone: str) -> str:
    return rule.zone if isinstance(rule, Cron) else zone


def _local(moment: datetime, zone: str) -> str:
    return f"{moment.astimezone(zone_named(zone)):%Y-%m-%d %H:%M}"
