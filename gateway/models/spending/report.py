"""What was spent: by whom, for what, with which model, and what the month will have cost at this rate."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import date, datetime, timedelta
from typing import TypeAlias

import msgspec

from gateway.models.spending.spending_log import Entry, Spent, Sums, month_before

Item: TypeAlias = tuple[Entry, Spent]


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of what was spent: `name` is a person, an agent, a purpose, a model or a day. Amounts are in millionths of the
    currency, tokens as the providers counted them; `unpriced` requests have no known price."""

    name: str
    requests: int
    input: int
    cached: int
    output: int
    micros: int
    estimated: int
    unpriced: int


class MonthReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was spent in a month, as `YYYY-MM`, in one currency; `total` is the sum of each list. `forecast` is what the
    month will have cost at the mean rate of what has passed of it; None if less than a day has, or it is over."""

    month: str
    currency: str
    total: Part
    forecast: int | None
    people: Sequence[Part]
    agents: Sequence[Part]
    purposes: Sequence[Part]
    models: Sequence[Part]
    days: Sequence[Part]


def month_report(sums: Sums, month: date, currency: str, now: datetime, *, person: str | None = None) -> MonthReport:
    """Return the report of a month, of everybody or of one person.

    Args:
        sums: The sums of its ledger and of that of the month before, whose last hours may belong to it in local time.
        month: Any day of the month.
        currency: Amounts in other currencies are left out.
        now: The current time in the time zone of the sums.
        person: The only person that is reported on; None for everybody.
    """
    first, after = month.replace(day=1), next_month(month)
    items = [
        (entry, spent)
        for entry, spent in sums.between(first, after - timedelta(days=1))
        if entry.currency == currency and person in (None, entry.person)
    ]
    total = _part("", (spent for _, spent in items))
    return MonthReport(
        month=f"{first:%Y-%m}",
        currency=currency,
        total=total,
        forecast=forecast(total.micros, first, after, now),
        people=_parts(items, lambda entry: entry.person),
        agents=_parts(items, lambda entry: entry.agent),
        purposes=_parts(items, lambda entry: entry.purpose),
        models=_parts(items, lambda entry: entry.model),
        days=sorted(_parts(items, lambda entry: entry.day.isoformat()), key=_name),
    )


def forecast(micros: int, first: date, after: date, now: datetime) -> int | None:
    """Return what a period from the day `first` to before the day `after` will have cost at its mean rate so far; None in
    its first day, and when it is over."""
    begins = datetime(first.year, first.month, first.day, tzinfo=now.tzinfo)
    ends = datetime(after.year, after.month, after.day, tzinfo=now.tzinfo)
    if now >= ends or now - begins < timedelta(days=1):
        return None
    return round(micros * ((ends - begins) / (now - begins)))


def ledger_months(month: date) -> list[date]:
    """Return the ledgers, by their first days, that have all requests of a month in any time zone."""
    first = month.replace(day=1)
    return [month_before(first), first, next_month(first)]


def next_month(month: date) -> date:
    """Return the first day of the month after."""
    return (month.replace(day=1) + timedelta(days=31)).replace(day=1)


def _parts(items: Iterable[Item], key: Callable[[Entry], str]) -> list[Part]:
    """Return the parts by a key, the most expensive first."""
    by_key: dict[str, list[Spent]] = defaultdict(list)
    for entry, spent in items:
        by_key[key(entry)].append(spent)
    parts = [_part(name, spent) for name, spent in by_key.items()]
    return sorted(parts, key=lambda part: (-part.micros, -part.input - part.output, part.name))


def _part(name: str, each: Iterable[Spent]) -> Part:
    total = Spent()
    for spent in each:
        total.add(spent)
    return Part(name=name, **msgspec.structs.asdict(total))


def _name(part: Part) -> str:
    return part.name
