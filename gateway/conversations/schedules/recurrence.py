"""When a schedule is due: at a time, after each interval, or by a cron line.

Cron lines follow Debian's cron at changes of daylight saving: a job at a fixed hour that is skipped in spring runs right
after the change, and one in the hour that is repeated in autumn runs once.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import TypeAlias
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import msgspec

_LOCAL = Path("/etc/localtime")


class Once(msgspec.Struct, frozen=True, tag_field="rule", tag="once"):
    """Due once, `at` a time (RFC 3339, UTC)."""

    at: str


class Every(msgspec.Struct, frozen=True, tag_field="rule", tag="every"):
    """Due every so many `seconds` after a time (RFC 3339, UTC)."""

    seconds: int
    after: str


class Cron(msgspec.Struct, frozen=True, tag_field="rule", tag="cron"):
    """Due by a cron line of five fields in a time zone: a name such as `Europe/Berlin`, or empty for the system's."""

    line: str
    zone: str = ""


Rule: TypeAlias = Once | Every | Cron


def occurrences(rule: Rule, after: datetime) -> Iterator[datetime]:
    """Yield the times later than `after` at which a rule is due, ascending, in UTC."""
    match rule:
        case Once(at=at):
            if (due := datetime.fromisoformat(at)) > after:
                yield due
        case Every(seconds=seconds, after=start):
            began = datetime.fromisoformat(start)
            passed = max(0, int((after - began).total_seconds() // seconds))
            while True:
                passed += 1
                if (due := began + timedelta(seconds=passed * seconds)) > after:
                    yield due
        case Cron(line=line, zone=zone):
            from cronsim import CronSim, CronSimError  # noqa: PLC0415 - only where there is a schedule

            last = after
            try:
                for local in CronSim(line, after.astimezone(zone_named(zone))):
                    due = local.astimezone(UTC)
                    if due > last:  # from within a repeated hour it yields earlier times
                        last = due
                        yield due
            except (CronSimError, OverflowError):
                return


@lru_cache(4096)  # the schedules are looked at every few seconds, and a cron line takes 40 µs
def next_due(rule: Rule, after: datetime) -> datetime | None:
    """Return the first time after another one at which a rule is due; None if there is none."""
    return next(occurrences(rule, after), None)


def in_words(rule: Rule) -> str:
    """Describe a rule as a sentence without its full stop, for people who do not read cron lines."""
    if not isinstance(rule, Cron):
        return described(rule)
    from cronsim import CronSim  # noqa: PLC0415 - only where there is a schedule

    return CronSim(rule.line, datetime(2000, 1, 1, tzinfo=UTC)).explain()


def is_zone(name: str) -> bool:
    """Return True if this machine knows a time zone by its name."""
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, OSError, ValueError, RecursionError):
        return False
    return True


def zone_named(name: str) -> tzinfo:
    """Return a time zone; the system's if the name is empty, UTC if it is unknown here."""
    try:
        if name:
            return ZoneInfo(name)
        with _LOCAL.open("rb") as file:
            return ZoneInfo.from_file(file)
    except (ZoneInfoNotFoundError, OSError, ValueError, RecursionError):  # importlib recurses for each part of a path
        return UTC


def stamp_seconds(moment: datetime) -> str:
    """Return a time in UTC as RFC 3339, without fractions of a second."""
    return moment.astimezone(UTC).replace(microsecond=0).isoformat().replace("+00:00", "Z")


def described(rule: Rule) -> str:
    """Describe a rule on one line, without the time of a rule that is due once."""
    match rule:
        case Once():
            return "once"
        case Every(seconds=seconds):
            parts = []
            for unit, size in (("w", 604_800), ("d", 86_400), ("h", 3600), ("min", 60), ("s", 1)):
                count, seconds = divmod(seconds, size)
                if count:
                    parts.append(f"{count} {unit}")
            return f"every {' '.join(parts)}"
        case Cron(line=line, zone=zone):
            return f"cron {line}{f' ({zone})' if zone else ''}"
