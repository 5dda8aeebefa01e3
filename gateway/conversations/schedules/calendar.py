"""The next occurrences of schedules, day by day, for a calendar. However often something is due, a day has few entries."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, date, datetime, time, timedelta, tzinfo

import msgspec

from gateway.conversations.schedules.recurrence import occurrences, stamp_seconds
from gateway.conversations.schedules.schedules import Schedule

PER_DAY = 3
"""Maximum occurrences of one schedule on one day; that there are more is noted."""

LONGEST = 62
"""Maximum days."""

_BEFORE = timedelta(microseconds=1)


class DueEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An occurrence of the schedule `id`: `at` in UTC (RFC 3339), `time` in the calendar's zone. `more` if others follow
    on the same day that are not listed."""

    id: str
    at: str
    time: str
    more: bool = False


class CalendarDay(msgspec.Struct, frozen=True, kw_only=True):
    """A day (`2026-12-24`) and what is due on it, in order."""

    day: str
    due: tuple[DueEntry, ...]


def calendar_of(schedules: Sequence[Schedule], first: date, days: int, zone: tzinfo) -> list[CalendarDay]:
    """Return the days on which something is due.

    Args:
        schedules: The schedules. Of a paused one nothing is due.
        first: The first day.
        days: The number of days, at most `LONGEST`.
        zone: The time zone of the days.
    """
    found: dict[date, list[DueEntry]] = {}
    for schedule in schedules:
        for day, entry in () if schedule.paused else _entries(schedule, first, min(days, LONGEST), zone):
            found.setdefault(day, []).append(entry)
    return [
        CalendarDay(day=day.isoformat(), due=tuple(sorted(found[day], key=lambda entry: (entry.at, entry.id))))
        for day in sorted(found)
    ]


def _entries(schedule: Schedule, first: date, days: int, zone: tzinfo) -> Iterator[tuple[date, DueEntry]]:
    """Yield what is due of one schedule. Where a day has more, the search goes on with the next day."""
    end = _midnight(first + timedelta(days=days), zone)
    after: datetime | None = max(datetime.fromisoformat(schedule.last), _midnight(first, zone) - _BEFORE)
    while after is not None:
        begun, after = after, None
        counted: dict[date, int] = {}
        last: tuple[date, DueEntry] | None = None
        for due in occurrences(schedule.made.rule, begun):
            local = due.astimezone(zone)
            day = local.date()
            if due >= end:
                break
            if counted.get(day, 0) == PER_DAY:
                last = last and (last[0], msgspec.structs.replace(last[1], more=True))
                after = _midnight(day + timedelta(days=1), zone) - _BEFORE
                break
            counted[day] = counted.get(day, 0) + 1
            if last is not None:
                yield last
            last = day, DueEntry(id=schedule.id, at=stamp_seconds(due), time=f"{local:%H:%M}")
        if last is not None:
            yield last


def _midnight(day: date, zone: tzinfo) -> datetime:
    return datetime.combine(day, time(), zone).astimezone(UTC)
