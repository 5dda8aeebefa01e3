"""Hands due messages to their conversations, exactly once.

The id of such a message is made of its schedule and its time, so that the receipts of the conversation recognise one that
is handed over again after a crash. What was missed while the gateway was stopped or the machine was asleep is handed over
late or recorded as missed, as the schedule says; nothing is computed from the present time alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime, timedelta
from types import TracebackType
from typing import Self

import structlog

from gateway.conversations.routing.switchboard import Switchboard
from gateway.conversations.schedules.recurrence import Once, next_due, occurrences, stamp_seconds
from gateway.conversations.schedules.schedules import (
    ON_TIME,
    OccurrenceDue,
    OccurrenceHanded,
    OccurrenceMissed,
    Schedule,
    Schedules,
    SchedulesUnusable,
)
from gateway.support.errors import Busy, GatewayError, error_fields, sentence_of
from plugins.api.context import Clock
from sessions.events.errors import SessionsError
from sessions.events.events import MessageReceived
from sessions.store.catalog import Name
from sessions.store.lazy_log import FRESH_SECONDS
from sessions.store.leases import Leases, SoleLeases

LEASE = "schedules"
"""The name of the lease that the gateway has which hands over what is due."""

LONGEST_SLEEP = 20.0
"""Seconds after which the wall clock is read again, because it may have been set."""

AT_ONCE = 20
"""The newest missed occurrences that are handed over with the policy `all`."""

COUNTED = 10_000
"""Maximum passed occurrences that are handled in one step."""

RETRY_SECONDS = (2.0, 10.0, 30.0, 60.0)
"""Seconds before the next attempt after failures."""

HAND_OVER_SECONDS = 5.0
"""Seconds that a conversation has to take a message, which waits while a `/new` does; then others have their turn."""

_HELD = "A conversation takes no messages at the moment."

log = structlog.get_logger("exuvia.schedules")


class Scheduler:
    """Watches the clock and hands over what is due, as an async context manager. Without schedules it sleeps.

    Args:
        schedules: The schedules.
        switchboard: The conversations.
        clock: The clock.
        persons: Returns True if there is a person with an id.
        leases: One gateway at a time hands over what is due.
    """

    def __init__(
        self,
        schedules: Schedules,
        switchboard: Switchboard,
        clock: Clock,
        persons: Callable[[str], bool],
        leases: Leases | None = None,
    ) -> None:
        self._schedules = schedules
        self._switchboard = switchboard
        self._clock = clock
        self._persons = persons
        self._leases = leases or SoleLeases()
        self._changed = asyncio.Event()
        self._failures = 0
        self._waiting = set[Name]()
        """Conversations that did not take a message in time in this round."""
        self._task: asyncio.Task[None] | None = None
        schedules.on_change(self._changed.set)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    def start(self) -> None:
        """Begin to hand over what is due."""
        self._task = asyncio.create_task(self._leases.hold(LEASE, self._run))

    async def _run(self) -> None:
        while True:
            self._changed.clear()
            pause = await self._round()
            if self._schedules.shared:  # another gateway may set one
                pause = FRESH_SECONDS if pause is None else min(pause, FRESH_SECONDS)
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._changed.wait()

    async def _round(self) -> float | None:
        """Handle everything that is due; return the seconds until the next look, None if there are no schedules."""
        nearest, failure = await self._handle_all()
        pause = None
        if nearest is not None:
            pause = min(LONGEST_SLEEP, max(0.05, (nearest - self._clock.now()).total_seconds()))
        if failure is None:
            self._failures = 0
            return pause
        if isinstance(failure, GatewayError | SessionsError):
            log.warning("schedules_wait", reason=sentence_of(failure))
        else:
            log.error("schedules_failed", **error_fields(failure))
        self._failures += 1
        retry = RETRY_SECONDS[min(self._failures, len(RETRY_SECONDS)) - 1]
        return retry if pause is None else min(retry, pause)

    async def _handle_all(self) -> tuple[datetime | None, Exception | None]:
        """Handle everything that is due; return the time of the next occurrence, and an error of what must wait."""
        nearest, failure = None, None
        self._waiting.clear()
        try:
            for id_ in tuple(await self._schedules.known()):
                try:
                    after = await self._handle(id_)
                except SchedulesUnusable:
                    raise
                except Exception as error:  # the others go on
                    failure = error
                    continue
                if after is not None and (nearest is None or after < nearest):
                    nearest = after
            await self._schedules.compact()
        except Exception as error:  # the next round tries again
            failure = error
        return nearest, failure

    async def _handle(self, id_: str) -> datetime | None:
        """Hand over what is due of a schedule; return the time of its next occurrence."""
        if (schedule := (await self._schedules.known()).get(id_)) is None:  # it was removed meanwhile
            return None
        now = self._clock.now()
        if events := missed_and_due(schedule, now):
            await self._schedules.record(events)
        for due in (*schedule.due, *(each for each in events if isinstance(each, OccurrenceDue))):
            await self._hand_over(schedule, due)
        last = max([datetime.fromisoformat(schedule.last), *map(_end_of, events)])
        return None if schedule.paused else next_due(schedule.made.rule, last)

    async def _hand_over(self, schedule: Schedule, occurrence: OccurrenceDue) -> None:
        """Put a due message into its conversation, and record it.

        Raises:
            Busy, SessionsError: It cannot be received at the moment.
        """
        made = schedule.made
        name = (made.person, made.key)
        if name in self._waiting:
            raise Busy(_HELD)
        if not self._persons(made.person):
            await self._give_up(occurrence, f"There is no person {made.person!r} any more.")
            return
        message = MessageReceived(
            id=f"schedule:{schedule.id}:{occurrence.due}",
            client=f"schedule:{schedule.id}",
            sender=made.person,
            channel=made.channel,
            chat=made.chat,
            text=occurrence.text,
            attachments=(),
            reply_to=made.reply_to,
            thread=made.thread,
        )
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                chat = await self._switchboard.chat_here(*name, channel=made.channel, chat_id=made.reply_to)
                received = await chat.receive(message, None)
                await chat.until_durable(received)
        except TimeoutError as error:
            self._waiting.add(name)
            raise Busy(_HELD) from error
        except GatewayError as error:
            if isinstance(error, Busy):
                raise
            await self._give_up(occurrence, sentence_of(error))
            return
        handed = OccurrenceHanded(schedule=schedule.id, due=occurrence.due, session=received.session, seq=received.seq)
        await self._schedules.record([handed])

    async def _give_up(self, occurrence: OccurrenceDue, reason: str) -> None:
        log.warning("occurrence_missed", schedule=occurrence.schedule, due=occurrence.due, reason=reason)
        due = occurrence.due
        missed = OccurrenceMissed(schedule=occurrence.schedule, first=due, last=due, count=1, reason=reason)
        await self._schedules.record([missed])


def missed_and_due(schedule: Schedule, now: datetime) -> list[OccurrenceDue | OccurrenceMissed]:
    """Return what is to be recorded of a schedule: what it has missed, and what is due, oldest first.

    Args:
        schedule: The schedule with its last handled occurrence.
        now: The current time.
    """
    following = schedule.next()
    if following is None or following > now:
        return []
    passed: list[datetime] = []
    for due in occurrences(schedule.made.rule, datetime.fromisoformat(schedule.last)):
        if due > now or len(passed) >= COUNTED:
            break
        passed.append(due)
    more = next_due(schedule.made.rule, passed[-1]) if len(passed) >= COUNTED else None
    kept = passed[len(passed) - _kept(schedule, passed, now) :] if more is None or more > now else []
    missed = passed[: len(passed) - len(kept)]
    events: list[OccurrenceDue | OccurrenceMissed] = []
    if missed:
        reason = "The gateway was not running, or the clock was set."
        first, last = stamp_seconds(missed[0]), stamp_seconds(missed[-1])
        events.append(OccurrenceMissed(schedule=schedule.id, first=first, last=last, count=len(missed), reason=reason))
    return [*events, *(_due(schedule, each, now) for each in kept)]


def _kept(schedule: Schedule, passed: list[datetime], now: datetime) -> int:
    """Return how many of the newest passed occurrences are handed over."""
    late, made = now - passed[-1], schedule.made
    match made.missed:
        case "all":
            return min(AT_ONCE, len(passed))
        case "once" if made.reminder or isinstance(made.rule, Once) or late <= timedelta(seconds=made.within):
            return 1
        case _:
            return 1 if late <= ON_TIME else 0


def _due(schedule: Schedule, due: datetime, now: datetime) -> OccurrenceDue:
    return OccurrenceDue(schedule=schedule.id, due=stamp_seconds(due), text=schedule.message(due, now))


def _end_of(event: OccurrenceDue | OccurrenceMissed) -> datetime:
    return datetime.fromisoformat(event.last if isinstance(event, OccurrenceMissed) else event.due)
