"""Times as people write them: `in 10m`, `18:00`, `tomorrow 9:00`, `2026-12-24 18:00`, `every 2h`, `every weekday 9:00`, or a
cron line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from gateway.conversations.schedules.recurrence import Cron, Every, Once, Rule, next_due, stamp_seconds, zone_named
from gateway.conversations.schedules.schedules import ScheduleRefused, TimeNotUnderstood

SHORTEST = 60
"""Minimum seconds of an interval."""

LONGEST_LINE = 200
"""Maximum characters of a cron line."""

LONGEST = timedelta(days=3660)
"""Maximum time from now to the first occurrence."""

LONGEST_WINDOW = 30 * 86_400
"""Maximum seconds that something may be late."""

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_UNIT = r"(?:seconds?|secs?|s|minutes?|mins?|m|hours?|hrs?|h|days?|d|weeks?|w)"
_PART = re.compile(rf"(\d{{1,9}}) ?({_UNIT})(?![A-Za-z])", re.IGNORECASE)
_IN, _EVERY = re.compile(r"in +", re.IGNORECASE), re.compile(r"every +", re.IGNORECASE)
_DAY = re.compile(r"(today|tomorrow|\d{4}-\d{2}-\d{2})(?: +|T)", re.IGNORECASE)
_AT = re.compile(r"at +", re.IGNORECASE)
_TIME = re.compile(r"(\d{1,2}):(\d{2})(?!\d)")
_DAYS_OF_WEEK = {"day": "*", "weekday": "1-5", "weekend": "0,6"} | {
    f"{name}day": str(number) for number, name in enumerate(("sun", "mon", "tues", "wednes", "thurs", "fri", "satur"))
}
_DAY_OF_WEEK = rf"(?:{'|'.join(_DAYS_OF_WEEK)})"
_DAYS = re.compile(rf"({_DAY_OF_WEEK}(?:(?: *, *(?:and +)?| +and +){_DAY_OF_WEEK})*) +(?:at +)?(?=\d)", re.IGNORECASE)
_CRON = re.compile(r"(?:cron +)?((?:[\d*,/LW#A-Za-z-]+ +){4}[\d*,/LW#A-Za-z-]+)(?: +|\Z)")


def parse_rule(text: str, now: datetime, zone: str) -> tuple[Rule, str]:
    """Read a time at the beginning of a text.

    Args:
        text: A time, such as `in 10m`, `18:00`, `tomorrow 9:00`, `2026-12-24 18:00`, `every 2h`, `every weekday 9:00` or
            `0 9 * * 1-5`, and what follows.
        now: The current time.
        zone: The time zone of times of day: a name, or empty for the system's.

    Returns:
        The rule, and the text after it.

    Raises:
        TimeNotUnderstood: The text does not begin with a time.
        ScheduleRefused: There is no such time.
    """
    text = text.strip()
    rule, rest = _parsed(text, now, zone)
    first = next_due(rule, now)
    if first is None:
        raise ScheduleRefused("That time is in the past, or never comes.")
    if first - now > LONGEST:
        raise ScheduleRefused("That time is more than ten years away.")
    return rule, rest.strip()


def parse_window(text: str) -> int:
    """Return the seconds of a duration such as `2h`. Raises ScheduleRefused."""
    seconds, end = _duration(text, 0)
    if end < len(text) or not SHORTEST <= seconds <= LONGEST_WINDOW:
        raise ScheduleRefused("How late something may come is a duration from one minute to 30 days, such as `2h`.")
    return seconds


def _parsed(text: str, now: datetime, zone: str) -> tuple[Rule, str]:
    if found := _EVERY.match(text):
        if (days := _DAYS.match(text, found.end())) and (time := _TIME.match(text, days.end())):
            return _on_days(days[1].lower(), int(time[1]), int(time[2]), zone), text[time.end() :]
        seconds, end = _duration(text, found.end())
        if seconds < SHORTEST:
            kind = ScheduleRefused if seconds else TimeNotUnderstood
            raise kind(
                "Write an interval of at least one minute, such as `every 30m`, or days and a time, such as"
                " `every weekday 9:00`."
            )
        return Every(seconds, stamp_seconds(now)), text[end:]
    if (line := _CRON.match(text)) and len(line[1]) <= LONGEST_LINE and _is_cron(line[1]):
        return Cron(" ".join(line[1].split()), zone), text[line.end() :]
    found = _IN.match(text)
    seconds, end = _duration(text, found.end() if found else 0)
    if seconds:
        return Once(stamp_seconds(now + timedelta(seconds=seconds))), text[end:]
    if not found and (moment := _moment(text, now, zone)) is not None:
        return moment
    raise TimeNotUnderstood(
        "Begin with a time: `10m`, `2h30m`, `18:00`, `tomorrow 9:00`, `2026-12-24 18:00`, `every 2h`,"
        " `every weekday 9:00`, or a cron line such as `0 9 * * 1-5`."
    )


def _on_days(days: str, hour: int, minute: int, zone: str) -> Cron:
    if hour > 23 or minute > 59:
        raise ScheduleRefused(f"There is no such time: {hour}:{minute:02}.")
    fields = dict.fromkeys(_DAYS_OF_WEEK[day] for day in re.findall(_DAY_OF_WEEK, days))
    return Cron(f"{minute} {hour} * * {'*' if '*' in fields else ','.join(fields)}", zone)


def _duration(text: str, begin: int) -> tuple[int, int]:
    """Return the seconds of a duration such as `2h 30m`, 0 if there is none, and its end."""
    seconds, end, found = 0, begin, _PART.match(text, begin)
    while found:
        seconds += int(found[1]) * _UNITS[found[2][0].lower()]
        end = found.end()
        found = _PART.match(text, end) or _PART.match(text, end + 1 if text[end : end + 1] == " " else end)
    return min(seconds, 10**10), end


def _is_cron(line: str) -> bool:
    from cronsim import CronSim, CronSimError  # noqa: PLC0415 - only where there is a schedule

    try:
        CronSim(line, datetime(2000, 1, 1, tzinfo=UTC))
    except (CronSimError, OverflowError):
        return False
    return True


def _moment(text: str, now: datetime, zone: str) -> tuple[Once, str] | None:
    """Return a time of day, today or on the day before it, and what follows; None if there is none."""
    local = now.astimezone(zone_named(zone))
    day = _DAY.match(text)
    begin = day.end() if day else 0
    if at := _AT.match(text, begin):
        begin = at.end()
    if (found := _TIME.match(text, begin)) is None:
        return None
    try:
        moment = local.replace(hour=int(found[1]), minute=int(found[2]), second=0, microsecond=0, fold=0)
        if day and day[1][0].isdigit():
            year, month, number = map(int, day[1].split("-"))
            moment = moment.replace(year=year, month=month, day=number)
        elif day and day[1].lower() == "tomorrow":
            moment = moment + timedelta(days=1)
    except ValueError as error:
        raise ScheduleRefused(f"There is no such time: {error}.") from error
    if moment > local and moment.astimezone(UTC) <= now:  # within the hour that is repeated in autumn
        moment = moment.replace(fold=1)
    if not day and moment <= local:
        moment = moment + timedelta(days=1)
    return Once(stamp_seconds(moment)), text[found.end() :]
