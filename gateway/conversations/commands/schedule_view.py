"""The schedules of a person as commands see and change them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from datetime import date, datetime
from itertools import islice
from typing import Literal, get_args

import msgspec

from gateway.conversations.channels.channel_inbox import conversation_key
from gateway.conversations.commands.command_services import CommandServices
from gateway.conversations.commands.memory_view import as_command_failure
from gateway.conversations.schedules.calendar import CalendarDay, calendar_of
from gateway.conversations.schedules.recurrence import (
    Cron,
    Every,
    Rule,
    described,
    in_words,
    is_zone,
    occurrences,
    stamp_seconds,
    zone_named,
)
from gateway.conversations.schedules.schedules import (
    MissedPolicy,
    Schedule,
    ScheduleRefused,
    ScheduleSet,
    TimeNotUnderstood,
    check_text,
)
from plugins.api.command import HeartbeatEntry, ScheduleEntry, ScheduleOptions
from plugins.support.workspace import OWNER
from sessions.events.events import MAIN_AGENT, MessageReceived
from sessions.events.handed_messages import HEARTBEAT

SHOWN_TIMES = 5
"""The next times of a schedule that are shown."""

_KEY = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_POLICIES: dict[str, MissedPolicy] = {policy: policy for policy in get_args(MissedPolicy)}


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """The conversation of a schedule, and where its answers go; the fields are those of `ScheduleSet`."""

    key: str
    channel: str
    chat: Literal["private", "group"] = "private"
    reply_to: str = ""
    thread: str = ""


class Calendar(msgspec.Struct, frozen=True, kw_only=True):
    """The days on which something is due, in a time zone (empty for the system's); `today` and `first` are days, too."""

    zone: str
    today: str
    first: str
    days: list[CalendarDay]


class PersonsSchedules:
    """A `SchedulesView` for the sender of a message in a conversation with a key."""

    def __init__(self, services: CommandServices, message: MessageReceived, key: str, agent: str = MAIN_AGENT) -> None:
        self._services = services
        self._schedules = services.schedules
        self._proposals = services.proposals
        self._now = services.clock.now
        self._message = message
        self._key = key
        self._agent = agent

    @property
    def zone(self) -> str:
        return self._services.settings.zone_of(self._message.sender)

    async def entries(self) -> Sequence[ScheduleEntry]:
        with as_command_failure():
            found = await self._schedules.of_person(self._message.sender)
        entries = (self._entry(each) for each in found if self._shows(each))
        return sorted(entries, key=lambda entry: (entry.next == "", entry.next))

    async def heartbeat(self) -> HeartbeatEntry | None:
        report = self._services.heartbeat.report(self._agent)
        if report is None or report.person != self._message.sender or self._message.chat == "group":
            return None
        spent = await self._services.spending.summary(report.person, "")
        return HeartbeatEntry(
            every=described(Every(round(report.every), "")),
            active=report.active,
            zone=report.zone,
            key=report.key,
            next=report.next,
            last=report.last,
            sent=report.sent,
            skipped=report.skipped,
            cost=spent.purposes.get(HEARTBEAT, 0),
            currency=spent.currency,
        )

    async def show(self, id_: str) -> ScheduleEntry:
        with as_command_failure():
            return self._entry(await self._find(id_), upcoming=True)

    async def add(self, text: str, *, reminder: bool, options: ScheduleOptions | None = None) -> ScheduleEntry:
        with as_command_failure():
            wanted = await self._wanted(text, options or ScheduleOptions(), reminder=reminder)
            return self._entry(await self._schedules.set(wanted), upcoming=True)

    async def propose(self, text: str, *, reminder: bool, options: ScheduleOptions | None = None) -> ScheduleEntry | None:
        options, now = options or ScheduleOptions(), self._now()
        with as_command_failure():
            try:
                await self._wanted(text, options, reminder=reminder)
            except TimeNotUnderstood:
                zone = options.zone or self.zone
                if (found := await self._proposals.rule_of(text, now, zone, self._key)) is None:
                    return None
                wanted = await self._wanted_by(found, options, reminder=reminder)
                check_text(wanted.text)
                self._proposals.keep(wanted)
                return self._entry(Schedule(made=wanted, at=stamp_seconds(now), last=stamp_seconds(now)), upcoming=True)
            return None

    async def confirm(self) -> ScheduleEntry:
        with as_command_failure():
            wanted = self._proposals.take(self._message.sender, self._key)
            return self._entry(await self._schedules.set(wanted), upcoming=True)

    async def remove(self, id_: str) -> ScheduleEntry:
        with as_command_failure():
            await self._find(id_)
            return self._entry(await self._schedules.remove(self._message.sender, id_))

    async def run(self, id_: str) -> None:
        with as_command_failure():
            await self._find(id_)
            await self._schedules.run_now(self._message.sender, id_)

    async def pause(self, id_: str) -> ScheduleEntry:
        with as_command_failure():
            await self._find(id_)
            return self._entry(await self._schedules.pause(self._message.sender, id_))

    async def resume(self, id_: str) -> ScheduleEntry:
        with as_command_failure():
            await self._find(id_)
            return self._entry(await self._schedules.resume(self._message.sender, id_))

    async def calendar(self, first: date | None, days: int) -> Calendar:
        """Return the days on which something is due, from the first one, by default the beginning of this month."""
        zone = zone_named(self.zone)
        today = self._now().astimezone(zone).date()
        first = first or today.replace(day=1)
        with as_command_failure():
            found = [each for each in await self._schedules.of_person(self._message.sender) if self._shows(each)]
        listed = await asyncio.to_thread(calendar_of, found, first, days, zone)
        return Calendar(zone=self.zone, today=today.isoformat(), first=first.isoformat(), days=listed)

    async def _find(self, id_: str) -> Schedule:
        """Return a schedule of the sender, in a group one of this group. Raises ScheduleRefused."""
        found = await self._schedules.find(self._message.sender, id_)
        if not self._shows(found):
            raise ScheduleRefused(f"The schedule {id_!r} was not set in this group; write the command where it was set.")
        return found

    def _shows(self, schedule: Schedule) -> bool:
        return self._message.chat != "group" or schedule.made.key == self._key

    async def _wanted(self, text: str, options: ScheduleOptions, *, reminder: bool) -> ScheduleSet:
        from gateway.conversations.schedules.parsing import parse_rule  # noqa: PLC0415 - only where somebody schedules

        if options.zone and not is_zone(options.zone):
            raise ScheduleRefused(f"There is no time zone {options.zone[:40]!r}; write a name such as Europe/Berlin.")
        found = parse_rule(text, self._now(), options.zone or self.zone)
        return await self._wanted_by(found, options, reminder=reminder)

    async def _wanted_by(self, found: tuple[Rule, str], options: ScheduleOptions, *, reminder: bool) -> ScheduleSet:
        """Return what is to be set by a rule, with a text. Raises ScheduleRefused."""
        from gateway.conversations.schedules.parsing import parse_window  # noqa: PLC0415 - as above

        if (policy := _POLICIES.get(options.missed or "once")) is None:
            raise ScheduleRefused(f"Missed occurrences are handled by `once`, `skip` or `all`, not {options.missed[:40]!r}.")
        place, message = await self._place(options), self._message
        wanted = ScheduleSet(
            schedule="",
            person=message.sender,
            client=message.client,
            key=place.key,
            text=found[1],
            rule=found[0],
            missed=policy,
            reminder=reminder,
            channel=place.channel,
            chat=place.chat,
            reply_to=place.reply_to,
            thread=place.thread,
            message=message.id,
            agent=self._agent,
        )
        return msgspec.structs.replace(wanted, within=parse_window(options.within)) if options.within else wanted

    async def _place(self, options: ScheduleOptions) -> _Place:
        """Return the conversation of a new schedule, and where its answers go. Raises ScheduleRefused."""
        message = self._message
        if not options.session and not options.to:
            return _Place(
                key=self._key,
                channel=message.channel,
                chat=message.chat,
                reply_to=message.reply_to,
                thread=message.thread,
            )
        if message.chat == "group":
            raise ScheduleRefused("In a group a schedule is for this group; write the command elsewhere.")
        if options.session and _KEY.fullmatch(options.session) is None:
            raise ScheduleRefused("The name of a conversation has up to 64 letters, digits and `._:-`.")
        return await self._chat(options) if options.to else _Place(key=options.session, channel="websocket")

    async def _chat(self, options: ScheduleOptions) -> _Place:
        """Return the place of a chat on a channel. As long as nothing else is known, others may read it."""
        channel, _, chat = options.to.partition(":")
        if not chat or not self._services.senders.knows_channel(channel):
            raise ScheduleRefused(f"There is no channel for {options.to[:60]!r}; write its name and a chat: `CHANNEL:CHAT`.")
        person = self._message.sender
        private = await self._services.senders.is_named(channel, chat, person)
        if person != OWNER and not private:
            raise ScheduleRefused("Only the owner schedules for other chats; write the command in that chat.")
        key = options.session or conversation_key(channel, chat)
        return _Place(key=key, channel=channel, chat="private" if private else "group", reply_to=chat)

    def _entry(self, schedule: Schedule, *, upcoming: bool = False) -> ScheduleEntry:
        return entry_of(schedule, self.zone, upcoming=upcoming)


def entry_of(schedule: Schedule, zone: str, *, upcoming: bool = False) -> ScheduleEntry:
    """Describe a schedule.

    Args:
        schedule: The schedule.
        zone: The time zone of its person.
        upcoming: True to compute the next times.
    """
    made, due = schedule.made, schedule.next()
    times = islice(occurrences(made.rule, datetime.fromisoformat(schedule.last)), SHOWN_TIMES) if upcoming and due else ()
    to = f"{made.channel}:{made.reply_to}" if made.reply_to else ""
    zone = made.rule.zone if isinstance(made.rule, Cron) else zone
    return ScheduleEntry(
        id=schedule.id,
        text=made.text,
        rule=described(made.rule),
        words=in_words(made.rule),
        next=stamp_seconds(due) if due else "",
        upcoming=tuple(map(stamp_seconds, times)),
        zone=zone,
        key=made.key,
        to=to,
        reminder=made.reminder,
        missed_policy=made.missed,
        within=made.within,
        at=schedule.at,
        paused=schedule.paused,
        handed=schedule.handed,
        missed=schedule.missed,
    )


def local_time(at: str, zone: str) -> str:
    """Return a time (RFC 3339) in a zone, as people read it."""
    return f"{datetime.fromisoformat(at).astimezone(zone_named(zone)):%Y-%m-%d %H:%M}"
