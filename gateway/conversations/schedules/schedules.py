"""The schedules of all people: the log `HOME/schedules.jsonl`, with the line format of all logs (docs/events.md).

An occurrence is recorded as due before its message is handed to the conversation, and as handed after it. After a crash in
between it is handed over again, with the same id, which the conversation recognises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import TracebackType
from typing import Literal, Self, TypeAlias

import msgspec
import structlog

from gateway.conversations.schedules.recurrence import Cron, Every, Once, Rule, next_due
from gateway.support.errors import Busy, GatewayError, sentence_of
from gateway.support.session_status import span
from sessions.events.codec import encode_line
from sessions.events.errors import SessionsError
from sessions.events.events import MAIN_AGENT
from sessions.store.header import random_suffix
from sessions.store.lazy_log import LazyLog, LogFormat
from sessions.store.log_writer import stamp
from sessions.store.protocols import START, Lines, Store

PER_PERSON = 200
"""Maximum schedules of one person."""

TEXT_BYTES = 16 * 1024
"""Maximum bytes of a scheduled text."""

ON_TIME = timedelta(seconds=60)
"""The delay up to which an occurrence counts as on time."""

LONG_LOG, PER_SCHEDULE = 10_000, 10
"""Events that a log has at least before it is compacted: in all, and for each schedule in force."""

WINDOW_SECONDS = 3600
"""How late the newest missed occurrence of a repeated task may be handed over, unless the schedule says otherwise."""

_NEVER = "1970-01-01T00:00:00Z"

MissedPolicy: TypeAlias = Literal["once", "skip", "all"]
"""What becomes of occurrences that the gateway missed: the newest is handed over late, none is, or all are."""


class ScheduleRefused(GatewayError):
    """A schedule cannot be set, or there is none with this id."""


class TimeNotUnderstood(ScheduleRefused):
    """A text does not begin with a time that can be read."""


class SchedulesUnusable(Busy):
    """The log cannot be read or written."""


class ScheduleSet(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="schedule_set"):
    """`text` is to be put into the conversation `key` of a `person` by a rule.

    The answer goes to `channel`, `chat`, `reply_to` and `thread`, which are as in `message_received`. Of missed occurrences
    the newest is handed over late with the policy `once`, up to `within` seconds. `client` set it. A `reminder` is a note to
    the person and not a task for the model, and is never too late. `message` is the id of the command's message, which a
    crash may make the gateway run again; empty for other requests. Only the models of `agent` are told of the schedule.
    `handed` counts the occurrences before it that are no longer in the log.
    """

    schedule: str
    person: str
    client: str
    key: str
    text: str
    rule: Rule
    missed: MissedPolicy = "once"
    within: int = WINDOW_SECONDS
    reminder: bool = False
    channel: str = ""
    chat: Literal["private", "group"] = "private"
    reply_to: str = ""
    thread: str = ""
    message: str = ""
    agent: str = MAIN_AGENT
    handed: int = 0


class ScheduleRemoved(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="schedule_removed"):
    """A schedule was removed `by` a person."""

    schedule: str
    by: str


class SchedulePaused(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="schedule_paused"):
    """A schedule was paused `by` a person: nothing of it is due until it is resumed."""

    schedule: str
    by: str


class ScheduleResumed(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="schedule_resumed"):
    """A paused schedule was resumed `by` a person. What a repeated one would have done meanwhile is not made up for."""

    schedule: str
    by: str


class OccurrenceDue(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="occurrence_due"):
    """The occurrence of the time `due` (RFC 3339, UTC) is about to be handed over, with this text. `extra` if a person asked
    for it out of turn."""

    schedule: str
    due: str
    text: str
    extra: bool = False


class OccurrenceMissed(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="occurrence_missed"):
    """`count` occurrences, from the time `first` to the time `last`, were not handed over."""

    schedule: str
    first: str
    last: str
    count: int
    reason: str


class OccurrenceHanded(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="occurrence_handed"):
    """The occurrence of the time `due` is the message with a `seq` in a session."""

    schedule: str
    due: str
    session: str
    seq: int


Occurrence: TypeAlias = OccurrenceDue | OccurrenceMissed | OccurrenceHanded
log = structlog.get_logger("exuvia.schedules")

ScheduleEvent: TypeAlias = ScheduleSet | ScheduleRemoved | SchedulePaused | ScheduleResumed | Occurrence


class Schedule(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule that is in force.

    Attributes:
        made: What was set.
        at: When it was set (RFC 3339, UTC).
        last: The time of the last occurrence that was handled, at first a time before the first one.
        due: Occurrences that were recorded as due and not handed over yet.
        handed, missed: Counts.
        paused: True until it is resumed.
    """

    made: ScheduleSet
    at: str
    last: str
    due: tuple[OccurrenceDue, ...] = ()
    handed: int = 0
    missed: int = 0
    paused: bool = False

    @property
    def id(self) -> str:
        """Its id."""
        return self.made.schedule

    def next(self) -> datetime | None:
        """Return the time of the next occurrence; None if there is none, or while the schedule is paused."""
        return None if self.paused else next_due(self.made.rule, datetime.fromisoformat(self.last))

    def message(self, due: datetime, now: datetime) -> str:
        """Return the message of an occurrence, which says that it is a reminder, and how late it is."""
        text = f"Reminder: {self.made.text}" if self.made.reminder else self.made.text
        if now - due <= ON_TIME:
            return text
        late = span((now - due).total_seconds())
        return f"{text}\n\n(This was due at {due.astimezone(UTC):%Y-%m-%d %H:%M} UTC, {late} ago.)"


Known: TypeAlias = Mapping[str, Schedule]


def fold_schedule(known: Known, event: ScheduleEvent, *, seq: int, at: str, turn: int | None, size: int) -> Known:
    """Return the schedules after one more event."""
    if isinstance(event, ScheduleSet):
        made = Schedule(made=event, at=at, last=_before_first(event.rule, at), handed=event.handed)
        return {**known, event.schedule: made}
    if (old := known.get(event.schedule)) is None:
        return known
    new = None if isinstance(event, ScheduleRemoved) else _after(old, event, at)
    if new is None or (isinstance(new.made.rule, Once) and not new.due and new.last >= new.made.rule.at):
        return {id_: each for id_, each in known.items() if id_ != event.schedule}
    return {**known, event.schedule: new}


def _before_first(rule: Rule, at: str) -> str:
    """Return a time before the first occurrence of a rule that was set `at` a time: recording it may have taken longer than
    until then."""
    match rule:
        case Once():
            return _NEVER
        case Every(after=after):
            return after
        case Cron():
            return at


def _after(schedule: Schedule, event: SchedulePaused | ScheduleResumed | Occurrence, at: str) -> Schedule:
    replace = msgspec.structs.replace
    match event:
        case SchedulePaused():
            return replace(schedule, paused=True)
        case ScheduleResumed():
            last = schedule.last if isinstance(schedule.made.rule, Once) else max(schedule.last, at)
            return replace(schedule, paused=False, last=last)
        case OccurrenceDue():
            last = schedule.last if event.extra else max(schedule.last, event.due)
            return replace(schedule, due=(*schedule.due, event), last=last)
        case OccurrenceMissed():
            left = tuple(each for each in schedule.due if not event.first <= each.due <= event.last)
            return replace(schedule, due=left, last=max(schedule.last, event.last), missed=schedule.missed + event.count)
        case OccurrenceHanded():
            left = tuple(each for each in schedule.due if each.due != event.due)
            return replace(schedule, due=left, handed=schedule.handed + 1)


def check_text(text: str) -> None:
    """Raise ScheduleRefused if a text cannot be scheduled."""
    if not text.strip():
        raise ScheduleRefused("Write the text after the time.")
    if len(text.encode()) > TEXT_BYTES:
        raise ScheduleRefused(f"A scheduled text has at most {TEXT_BYTES // 1024} KiB.")
    if text.lstrip().startswith("/"):
        raise ScheduleRefused("A command cannot be scheduled.")


def _set_by_command(known: Known, wanted: ScheduleSet) -> Schedule | None:
    """Return the schedule that the message of a command has set already; None if there is none."""
    command = wanted.person, wanted.key, wanted.message
    for schedule in known.values() if wanted.message else ():
        if (schedule.made.person, schedule.made.key, schedule.made.message) == command:
            return schedule
    return None


def _new_id(known: Known, person: str) -> str:
    """Return an id for a new schedule of a person. Raises ScheduleRefused if the person has too many."""
    if sum(each.made.person == person for each in known.values()) >= PER_PERSON:
        raise ScheduleRefused(f"You have {PER_PERSON} schedules already; remove one first.")
    while (id_ := random_suffix()) in known:
        pass
    return id_


SCHEDULES: LogFormat[ScheduleEvent, Known] = LogFormat(
    name="schedules",
    events=(
        ScheduleSet,
        ScheduleRemoved,
        SchedulePaused,
        ScheduleResumed,
        OccurrenceDue,
        OccurrenceMissed,
        OccurrenceHanded,
    ),
    empty={},
    fold=fold_schedule,
)


def compacted_lines(known: Known) -> Iterator[bytes]:
    """Yield the lines of a log whose state is that of these schedules, in the events that all versions read."""
    digest, seq = START.sum, 0
    for schedule in known.values():
        for event in _events_of(schedule):
            seq += 1
            line, digest = encode_line(seq, schedule.at, None, event, digest)
            yield line


def _events_of(schedule: Schedule) -> Iterator[ScheduleEvent]:
    """Yield what a schedule is made of: how it was set, the last occurrence that was handled, and what waits."""
    yield msgspec.structs.replace(schedule.made, handed=schedule.handed)
    # What waits says when it was due; a single occurrence would be taken for missed, and the schedule for done.
    waits = bool(schedule.due) and isinstance(schedule.made.rule, Once)
    if not waits and (schedule.missed or schedule.last > _before_first(schedule.made.rule, schedule.at)):
        first, reason = schedule.last, "Earlier occurrences are no longer in the log."
        yield OccurrenceMissed(schedule=schedule.id, first=first, last=first, count=schedule.missed, reason=reason)
    if schedule.paused:
        yield SchedulePaused(schedule=schedule.id, by=schedule.made.person)
    yield from schedule.due


class Schedules:
    """The schedules of all people, as an async context manager.

    Args:
        store: The store of the log.
        now: Returns the current time in UTC.
    """

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._log = LazyLog(SCHEDULES, store, now, unusable="Nothing scheduled happens")
        self.shared = store.shared
        """True if other gateways may set schedules too."""
        self._now = now
        self._watchers: list[Callable[[], None]] = []

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._log.close()

    def problems(self) -> list[str]:
        """Return the problem of the log as a sentence, if there is one."""
        return [self._log.problem] if self._log.problem else []

    def on_change(self, watcher: Callable[[], None]) -> None:
        """Call a function after each change by a person."""
        self._watchers.append(watcher)

    async def known(self) -> Known:
        """Return the schedules in force, by id. Raises SchedulesUnusable."""
        try:
            return await self._log.durable_state()
        except SessionsError as error:
            raise SchedulesUnusable(sentence_of(error)) from error

    async def compact(self) -> None:
        """Drop what the schedules in force do not need from a long log.

        Raises:
            SchedulesUnusable: The log cannot be rewritten.
        """
        before = self._log.length
        if before <= max(LONG_LOG, PER_SCHEDULE * len(await self.known())):
            return
        try:
            await self._log.rewrite(lambda lines: compacted_lines(SCHEDULES.state_of(lines)))
            await self.known()
        except SessionsError as error:
            raise SchedulesUnusable(sentence_of(error)) from error
        log.info("schedules_compacted", before=before, after=self._log.length)

    async def rewrite(self, rewritten: Callable[[Lines], Iterator[bytes]]) -> None:
        """Replace the lines of the log, see `LazyLog.rewrite`. Raises StorageFailed, JournalDamaged."""
        await self._log.rewrite(rewritten)
        for watcher in self._watchers:
            watcher()

    async def of_person(self, person: str) -> list[Schedule]:
        """Return a person's schedules, oldest first. Raises SchedulesUnusable."""
        return [each for each in (await self.known()).values() if each.made.person == person]

    async def count(self, person: str, key: str) -> int:
        """Return the number of a person's schedules in the conversation with a key. Raises SchedulesUnusable."""
        return sum(each.made.key == key for each in await self.of_person(person))

    async def find(self, person: str, id_: str) -> Schedule:
        """Return a person's schedule. Raises ScheduleRefused, SchedulesUnusable."""
        found = (await self.known()).get(id_)
        if found is None or found.made.person != person:
            raise ScheduleRefused(f"You have no schedule {id_[:40]!r}.")
        return found

    async def set(self, wanted: ScheduleSet) -> Schedule:
        """Set a schedule durably, under a new id, or return the one that the same message has set.

        Raises:
            ScheduleRefused: It is not valid, or the person has too many.
            SchedulesUnusable: The log cannot be read or written.
        """
        check_text(wanted.text)
        id_ = ""
        try:
            async with self._log.writing() as writer:
                # No await up to the append, and no other gateway appends: the same command must not be carried out twice.
                made = _set_by_command(writer.state, wanted)
                if made is None:
                    event = msgspec.structs.replace(wanted, schedule=_new_id(writer.state, wanted.person))
                    writer.append(event, urgent=True)
                    made = writer.state[event.schedule]
                id_ = made.id
                await writer.until_durable(writer.head)
        except SessionsError as error:
            made = await self._stored(id_) if id_ else None
            if made is None:
                raise SchedulesUnusable(sentence_of(error)) from error
        self._changed()
        return made

    async def _stored(self, id_: str) -> Schedule | None:
        """Return the schedule with this id if it is in the log although its commit failed: only the answer was lost."""
        try:
            return (await self.known()).get(id_)
        except SchedulesUnusable:
            return None

    async def remove(self, person: str, id_: str) -> Schedule:
        """Remove a person's schedule durably, and return it. Raises ScheduleRefused, SchedulesUnusable."""
        removed = await self.find(person, id_)
        await self._append(ScheduleRemoved(schedule=id_, by=person))
        self._changed()
        return removed

    async def pause(self, person: str, id_: str) -> Schedule:
        """Pause a person's schedule durably, and return it. Raises ScheduleRefused, SchedulesUnusable."""
        return await self._switch(SchedulePaused(schedule=id_, by=person), paused=True)

    async def resume(self, person: str, id_: str) -> Schedule:
        """Resume a person's paused schedule durably, and return it. Raises ScheduleRefused, SchedulesUnusable."""
        return await self._switch(ScheduleResumed(schedule=id_, by=person), paused=False)

    async def _switch(self, event: SchedulePaused | ScheduleResumed, *, paused: bool) -> Schedule:
        found = await self.find(event.by, event.schedule)
        if found.paused == paused:
            return found
        await self._append(event)
        self._changed()
        return await self.find(event.by, event.schedule)

    async def run_now(self, person: str, id_: str) -> None:
        """Record an occurrence out of turn, which is handed over at once; one that waits already is enough.

        Raises:
            ScheduleRefused: The person has no schedule with this id.
            SchedulesUnusable: The log cannot be read or written.
        """
        schedule, now = await self.find(person, id_), self._now()
        due = stamp(now)  # with milliseconds, which no occurrence by the rule has
        if not any(each.extra for each in schedule.due):
            await self._append(OccurrenceDue(schedule=id_, due=due, text=schedule.message(now, now), extra=True))
        self._changed()

    async def record(self, events: Sequence[Occurrence]) -> None:
        """Record what became of occurrences, durably. Raises SchedulesUnusable."""
        await self._append(*events)

    async def _append(self, *events: ScheduleEvent) -> None:
        try:
            async with self._log.writing() as writer:
                for event in events[:-1]:
                    writer.append(event)
                await writer.append_durable(events[-1])
        except SessionsError as error:
            raise SchedulesUnusable(sentence_of(error)) from error

    def _changed(self) -> None:
        for watcher in self._watchers:
            watcher()
