"""The schedules of a person as commands see and change them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime

from gateway.conversations.commands.memory_view import as_command_failure
from gateway.conversations.schedules.recurrence import described, stamp_seconds
from gateway.conversations.schedules.schedules import Schedule, ScheduleRefused, Schedules, ScheduleSet
from plugins.api.command import ScheduleEntry
from sessions.events.events import MessageReceived


class PersonsSchedules:
    """A `SchedulesView` for the sender of a message in a conversation with a key; `zone` is the name of the time zone."""

    def __init__(
        self, schedules: Schedules, message: MessageReceived, key: str, *, now: Callable[[], datetime], zone: str
    ) -> None:
        self._schedules = schedules
        self._message = message
        self._key = key
        self._now = now
        self._zone = zone

    async def entries(self) -> Sequence[ScheduleEntry]:
        with as_command_failure():
            found = await self._schedules.of_person(self._message.sender)
        return sorted(map(entry_of, filter(self._shows, found)), key=lambda entry: (entry.next == "", entry.next))

    async def add(self, text: str, *, reminder: bool) -> ScheduleEntry:
        with as_command_failure():
            return entry_of(await self._schedules.set(self._wanted(text, reminder=reminder)))

    async def remove(self, id_: str) -> ScheduleEntry:
        with as_command_failure():
            await self._find(id_)
            return entry_of(await self._schedules.remove(self._message.sender, id_))

    async def run(self, id_: str) -> None:
        with as_command_failure():
            await self._find(id_)
            await self._schedules.run_now(self._message.sender, id_)

    async def _find(self, id_: str) -> None:
        """Raise ScheduleRefused unless it is a schedule of the sender, and in a group one of this group."""
        if not self._shows(await self._schedules.find(self._message.sender, id_)):
            raise ScheduleRefused(f"The schedule {id_!r} was not set in this group; write the command where it was set.")

    def _shows(self, schedule: Schedule) -> bool:
        return self._message.chat != "group" or schedule.made.key == self._key

    def _wanted(self, text: str, *, reminder: bool) -> ScheduleSet:
        from gateway.conversations.schedules.parsing import parse_rule  # noqa: PLC0415 - only where somebody schedules

        message = self._message
        rule, rest = parse_rule(text, self._now(), self._zone)
        return ScheduleSet(
            schedule="",
            person=message.sender,
            client=message.client,
            key=self._key,
            text=rest,
            rule=rule,
            reminder=reminder,
            channel=message.channel,
            chat=message.chat,
            reply_to=message.reply_to,
            thread=message.thread,
            message=message.id,
        )


def entry_of(schedule: Schedule) -> ScheduleEntry:
    """Describe a schedule."""
    made, due = schedule.made, schedule.next()
    return ScheduleEntry(
        id=schedule.id,
        text=made.text,
        rule=described(made.rule),
        next=stamp_seconds(due) if due else "",
        key=made.key,
        reminder=made.reminder,
        handed=schedule.handed,
        missed=schedule.missed,
    )
