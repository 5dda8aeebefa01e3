"""The ledger: the logs `HOME/spending-YYYY-MM.jsonl`, one for each month in UTC, and the sums of what they say.

Each request to a model is one `request_charged`, whatever it was for and whatever became of its answer. Amounts are integer
millionths of the currency, computed from the tokens and the price that stand in the same line: `cost_of` gives the same
amount again. Nothing here holds text of a conversation, and the deletion of one leaves what it cost.

The sums are by day, in the person's time zone, and so by week and month. They are derived: when the ledger is opened, the
logs of this month and the one before are read, and nothing else ever is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import TypeAlias
from zoneinfo import ZoneInfo

import msgspec

from gateway.config.keys import Sections
from gateway.models.spending.prices import Rate
from gateway.support.home import SPENDING
from sessions.events.messages import Usage
from sessions.store.lazy_log import LazyLog, LogFormat
from sessions.store.protocols import LogReader, Store


class RequestCharged(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="request_charged"):
    """A request to a model ended, and costs `micros` millionths of `currency`.

    `person` pays; empty for a request of the gateway's own. `session` is that of the request, which need not have a log.
    `rate` is the price, None if it is unknown. `reported` if the provider named the cost, which counts instead of the price;
    `estimated` if the provider did not count the tokens, or the outcome is unknown.
    """

    request: str
    person: str
    agent: str
    session: str
    purpose: str
    model: str
    usage: Usage
    micros: int
    rate: Rate | None = None
    currency: str = "USD"
    reported: bool = False
    estimated: bool = False


LedgerEvent: TypeAlias = RequestCharged


class Zones(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the time zones in which days begin: `default`, empty for the system's, and those of people."""

    default: str = ""
    people: Mapping[str, str] = {}

    @classmethod
    def of(cls, config: Sections) -> Zones:
        """Return the zones of a configuration."""
        people = {person: keys.timezone for person, keys in config.people.items() if keys.timezone}
        return cls(default=config.agent.timezone or "", people=people)

    def zone(self, person: str) -> tzinfo | None:
        """Return the zone of a person; None for the system's."""
        name = self.people.get(person, self.default)
        return ZoneInfo(name) if name else None

    def day(self, at: datetime, person: str) -> date:
        """Return the day of a time for a person."""
        return at.astimezone(self.zone(person)).date()


class Entry(msgspec.Struct, frozen=True):
    """What a sum is of: requests of one day with the same payer, purpose and model."""

    day: date
    person: str
    agent: str
    purpose: str
    model: str
    currency: str


class Spent(msgspec.Struct, kw_only=True):
    """A sum over requests. `micros` is in millionths of the currency, and `estimated` the part of it that is estimated;
    `unpriced` counts the requests whose price is unknown."""

    requests: int = 0
    input: int = 0
    cached: int = 0
    output: int = 0
    micros: int = 0
    estimated: int = 0
    unpriced: int = 0

    def add(self, other: Spent) -> None:
        """Add another sum to this one."""
        for name in self.__struct_fields__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Sums:
    """The sums of what ledgers say, by entry; `zones` decide on which day a request was made.

    `sessions` has the cost of each session in millionths of the currency, by purpose and model.
    """

    def __init__(self, zones: Zones) -> None:
        self.entries: dict[Entry, Spent] = {}
        self.sessions: dict[str, dict[tuple[str, str], int]] = {}
        self._zones = zones

    def copied(self) -> Sums:
        """Return an independent copy."""
        copy = Sums(self._zones)
        copy.entries = {entry: msgspec.structs.replace(spent) for entry, spent in self.entries.items()}
        copy.sessions = {session: dict(costs) for session, costs in self.sessions.items()}
        return copy

    def add(self, event: LedgerEvent, at: str) -> None:
        """Add an event of the time `at`."""
        day = self._zones.day(datetime.fromisoformat(at), event.person)
        entry = Entry(day, event.person, event.agent, event.purpose, event.model, event.currency)
        spent = self.entries.setdefault(entry, Spent())
        spent.requests += 1
        spent.input += event.usage.input
        spent.cached += event.usage.cached
        spent.output += event.usage.output
        spent.micros += event.micros
        spent.estimated += event.micros if event.estimated else 0
        spent.unpriced += event.rate is None and not event.reported
        if event.micros:
            costs, key = self.sessions.setdefault(event.session, {}), (event.purpose, event.model)
            costs[key] = costs.get(key, 0) + event.micros

    def between(self, first: date, last: date) -> Iterator[tuple[Entry, Spent]]:
        """Yield the sums of the days from `first` to `last`, both included."""
        return ((entry, spent) for entry, spent in self.entries.items() if first <= entry.day <= last)

    def cost(self, first: date, last: date, currency: str, person: str) -> int:
        """Return what a person has spent from the day `first` to `last`, in millionths of a currency."""
        return sum(
            spent.micros
            for entry, spent in self.between(first, last)
            if entry.person == person and entry.currency == currency
        )


def ledger_name(month: date) -> str:
    """Return the name of a month's log."""
    return f"{SPENDING}{month:%Y-%m}"


def month_before(month: date) -> date:
    """Return the first day of the month before."""
    return (month.replace(day=1) - timedelta(days=1)).replace(day=1)


def ledger_format(month: date, before: Sums) -> LogFormat[LedgerEvent, Sums]:
    """Return the format of a month's log, whose events are added to a copy of the sums `before` it."""

    def fold(sums: Sums, event: LedgerEvent, /, *, seq: int, at: str, turn: int | None, size: int) -> Sums:
        if seq == 1:  # the log may be opened again, and sums are changed in place
            sums = before.copied()
        sums.add(event, at)
        return sums

    return LogFormat(name=ledger_name(month), events=(RequestCharged,), empty=before, fold=fold)


def read_ledgers(logs: LogReader, months: Iterable[date], zones: Zones) -> Sums:
    """Return the sums of the ledgers of some months, in order. Raises JournalDamaged, StorageFailed and InvalidLine."""
    sums = Sums(zones)
    for month in months:
        sums = ledger_format(month, sums).read(logs)
    return sums


class Ledger:
    """The ledger of a gateway, open for writing once it is needed.

    Args:
        store: The store of its logs.
        now: Returns the current time in UTC.
        zones: Returns the time zones in which days begin.
    """

    def __init__(self, store: Store, now: Callable[[], datetime], zones: Callable[[], Zones]) -> None:
        self._store = store
        self.now = now
        self._zones = zones
        self._opening = asyncio.Lock()
        self._month: date | None = None
        self._opened: Zones | None = None
        self._log: LazyLog[LedgerEvent, Sums] | None = None

    async def close(self) -> None:
        """Commit what was appended and close the log."""
        if self._log is not None:
            await self._log.close()

    def problem(self) -> str:
        """Return why the ledger cannot be used, as a sentence; empty if it can."""
        return self._log.problem if self._log is not None else ""

    async def appender(self) -> Callable[[LedgerEvent], None]:
        """Return a function that appends to this month's log, see `LazyLog.appender`. Raises StorageFailed."""
        return await (await self._current()).appender()

    async def sums(self) -> Sums:
        """Return the sums of this month and the one before. Raises StorageFailed."""
        return await (await self._current()).durable_state()

    async def _current(self) -> LazyLog[LedgerEvent, Sums]:
        month, zones = self.now().astimezone(UTC).date().replace(day=1), self._zones()
        if self._log is not None and (month, zones) == (self._month, self._opened):
            return self._log
        async with self._opening:
            if self._log is None or (month, zones) != (self._month, self._opened):
                before = await asyncio.to_thread(read_ledgers, self._store, [month_before(month)], zones)
                await self.close()
                self._log = LazyLog(
                    ledger_format(month, before), self._store, self.now, unusable="The spending ledger cannot be used"
                )
                self._month, self._opened = month, zones
            return self._log
