"""The ledger: the logs `HOME/spending-YYYY-MM.jsonl`, one for each month in UTC, and the sums of what they say.

Each request to a model is one `request_charged`, whatever it was for and whatever became of its answer. Amounts are integer
millionths of the currency, computed from the tokens and the price that stand in the same line: `cost_of` gives the same
amount again. Nothing here holds text of a conversation, and the deletion of one leaves what it cost.

The sums are by day, in the person's time zone, and so by week and month. They are derived: when the ledger is opened, the
logs of this month and the one before are read, and nothing else ever is.

Gateways that share the ledger open a new month's log one after the other, each with its next request. Until then a gateway
settles its requests in the old log, so that the others read this log once more before they charge such a request in full.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Iterator, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime, timedelta, tzinfo
from typing import Literal, TypeAlias, get_args
from zoneinfo import ZoneInfo

import msgspec
import structlog

from gateway.config.keys import Sections
from gateway.models.spending.prices import Rate
from gateway.support.errors import sentence_of
from gateway.support.home import SPENDING
from plugins.support.workspace import OWNER
from sessions.events.codec import InvalidLine
from sessions.events.errors import SessionsError, StorageFailed
from sessions.events.events import MAIN_AGENT
from sessions.events.messages import Usage
from sessions.store.cluster import Cluster
from sessions.store.lazy_log import AppendEvent, LazyLog, LogFormat
from sessions.store.log_writer import LogWriter
from sessions.store.protocols import Lines, LogReader, Store

ABANDONED = timedelta(minutes=20)
"""Age of a reservation after which its request is not waited for: longer than any request may take."""

ANNOUNCED = timedelta(seconds=10)
"""Age of a reservation from which its gateway, if it is alive, is known to the others of its cluster."""

READ_AGAIN = timedelta(minutes=1)
"""Time until the log of the month before is read again after that has failed."""

MOST_DEFERRED = 10_000
"""Events that are kept while the ledger cannot be written."""

report = structlog.get_logger("exuvia.spending")


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


class RequestReserved(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="request_reserved"
):
    """A request is about to be sent, and costs `micros` at most. The fields are those of
    `request_charged`; `usage` is the most that it may use. `gateway` is the incarnation of the gateway that sends it, empty
    if there are no others."""

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
    gateway: str = ""

    def charged(self) -> RequestCharged:
        """Return the charge for a request whose outcome is unknown: all that was reserved."""
        fields = msgspec.structs.asdict(self)
        del fields["gateway"]
        return RequestCharged(**fields, estimated=True)


class RequestReleased(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="request_released"):
    """A reserved request was not sent, or was refused, and costs nothing."""

    request: str


class BudgetWarned(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="budget_warned"):
    """Most of the budget `cap` of a scope (`person:NAME`, `agent:NAME` or `all`) in a period (`2026-11-29`, `2026-W48`,
    `2026-11`) is spent, by a request of `session`; nobody is warned again in this period."""

    scope: str
    period: str
    spent: int
    cap: int
    session: str
    currency: str = "USD"


LedgerEvent: TypeAlias = RequestCharged | RequestReserved | RequestReleased | BudgetWarned

EVENTS = (RequestCharged, RequestReserved, RequestReleased, BudgetWarned)

Period: TypeAlias = Literal["day", "week", "month"]

Place: TypeAlias = tuple[str, str, str]
"""The key of a sum: the currency, the scope and the period."""


class Payer(msgspec.Struct, frozen=True):
    """Who pays for a request: a person, empty for the gateway itself, and the agent that it is for."""

    person: str
    agent: str = MAIN_AGENT


def person_scope(person: str) -> str:
    """Return the scope of a person's budget."""
    return f"person:{person}"


def agent_scope(agent: str) -> str:
    """Return the scope of an agent's budget."""
    return f"agent:{agent}"


def period_key(period: Period, day: date) -> str:
    """Return the name of the period of a day: `2026-11-29`, `2026-W48` or `2026-11`."""
    match period:
        case "day":
            return day.isoformat()
        case "week":
            year, week, _ = day.isocalendar()
            return f"{year}-W{week:02}"
        case "month":
            return f"{day:%Y-%m}"


class Zones(msgspec.Struct, frozen=True, kw_only=True):
    """The names of the time zones in which days begin: `default`, empty for the system's, and those of people."""

    default: str = ""
    people: Mapping[str, str] = {}

    @classmethod
    def of(cls, config: Sections) -> Zones:
        """Return the zones of a configuration."""
        people = {person: keys.timezone for person, keys in config.people.items() if keys.timezone}
        return cls(default=config.agent.timezone or "", people=people)

    def name(self, person: str) -> str:
        """Return the name of a person's zone, empty for the system's."""
        return self.people.get(person, self.default)

    def zone(self, person: str) -> tzinfo | None:
        """Return the zone of a person; None for the system's."""
        name = self.name(person)
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

    `sessions` has the cost of each session in millionths of the currency, by purpose and model. For the budgets, `spent` and
    `reserved` are sums by period, `open` the requests whose outcome is unknown yet, each with the places and the time of its
    reservation, `in_full` those that were charged as reserved, each with the time, because their gateway had gone, and
    `warned` the places whose people were warned.
    """

    def __init__(self, zones: Zones) -> None:
        self.entries: dict[Entry, Spent] = {}
        self.sessions: dict[str, dict[tuple[str, str], int]] = {}
        self.spent: dict[Place, int] = {}
        self.reserved: dict[Place, int] = {}
        self.open: dict[str, tuple[RequestReserved, list[Place], datetime]] = {}
        self.in_full: dict[str, tuple[RequestCharged, str]] = {}
        self.warned: set[Place] = set()
        self._zones = zones

    def copied(self) -> Sums:
        """Return an independent copy."""
        copy = Sums(self._zones)
        copy.entries = {entry: msgspec.structs.replace(spent) for entry, spent in self.entries.items()}
        copy.sessions = {session: dict(costs) for session, costs in self.sessions.items()}
        copy.spent, copy.reserved = dict(self.spent), dict(self.reserved)
        copy.open, copy.in_full, copy.warned = dict(self.open), dict(self.in_full), set(self.warned)
        return copy

    def add(self, event: LedgerEvent, at: str) -> None:
        """Add an event of the time `at`."""
        match event:
            case RequestReserved():
                time = datetime.fromisoformat(at)
                places = list(self._places(event, time))
                self.open[event.request] = event, places, time
                for place in places:
                    self.reserved[place] = self.reserved.get(place, 0) + event.micros
            case RequestCharged():
                self._settle(event, at)
            case RequestReleased():
                self._withdraw(event.request)
                self._release(event.request)
            case BudgetWarned():
                self.warned.add((event.currency, event.scope, event.period))

    def _settle(self, event: RequestCharged, at: str) -> None:
        """Add a charge. It replaces that of a gateway which took the one that sent the request for dead."""
        self._withdraw(event.request)
        left = self.open.get(event.request)
        if left is not None and event == left[0].charged():
            self.in_full[event.request] = event, at
        self._release(event.request)
        self._charge(event, at)

    def _withdraw(self, request: str) -> None:
        """Subtract the charge in full for a request of which the gateway that sent it now says what became of it."""
        if (before := self.in_full.pop(request, None)) is not None:
            self._charge(*before, sign=-1)

    def _release(self, request: str) -> None:
        if request not in self.open:
            return
        reserved, places, _ = self.open.pop(request)
        for place in places:
            self.reserved[place] -= reserved.micros
            if not self.reserved[place]:
                del self.reserved[place]

    def _places(self, event: RequestCharged | RequestReserved, at: datetime) -> Iterator[Place]:
        """Yield the places of an event's amount, for all scopes and periods."""
        scopes = [(agent_scope(event.agent), OWNER), ("all", OWNER)]
        if event.person:
            scopes.append((person_scope(event.person), event.person))
        for scope, person in scopes:
            day = self._zones.day(at, person)
            for period in get_args(Period):
                yield event.currency, scope, period_key(period, day)

    def _charge(self, event: RequestCharged, at: str, *, sign: Literal[1, -1] = 1) -> None:
        for place in self._places(event, datetime.fromisoformat(at)) if event.micros else ():
            self.spent[place] = self.spent.get(place, 0) + sign * event.micros
        day = self._zones.day(datetime.fromisoformat(at), event.person)
        entry = Entry(day, event.person, event.agent, event.purpose, event.model, event.currency)
        spent = self.entries.setdefault(entry, Spent())
        spent.requests += sign
        spent.input += sign * event.usage.input
        spent.cached += sign * event.usage.cached
        spent.output += sign * event.usage.output
        spent.micros += sign * event.micros
        spent.estimated += sign * event.micros if event.estimated else 0
        spent.unpriced += sign if event.rate is None and not event.reported else 0
        if event.micros:
            costs, key = self.sessions.setdefault(event.session, {}), (event.purpose, event.model)
            costs[key] = costs.get(key, 0) + sign * event.micros

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

    return LogFormat(name=ledger_name(month), events=EVENTS, empty=before, fold=fold)


def read_ledgers(logs: LogReader, months: Iterable[date], zones: Zones) -> Sums:
    """Return the sums of the ledgers of some months, in order. Raises JournalDamaged, StorageFailed and InvalidLine."""
    sums = Sums(zones)
    for month in months:
        sums = ledger_format(month, sums).read(logs)
    return sums


Outcome: TypeAlias = RequestCharged | RequestReleased

Outcomes: TypeAlias = dict[str, tuple[Outcome, str]]
"""The last event that says what became of a request, by request, each with its time."""


def read_outcomes(logs: LogReader, month: date, requests: Collection[str]) -> Outcomes:
    """Return what a month's log says of the outcome of some requests. Raises JournalDamaged, StorageFailed, InvalidLine."""

    def fold(found: Outcomes, event: Outcome, /, *, seq: int, at: str, turn: int | None, size: int) -> Outcomes:
        return found | {event.request: (event, at)} if event.request in requests else found

    form: LogFormat[Outcome, Outcomes] = LogFormat(
        name=ledger_name(month), events=(RequestCharged, RequestReleased), empty={}, fold=fold
    )
    return form.read(logs)


class Ledger:
    """The ledger of a gateway, open for writing once it is needed.

    Args:
        store: The store of its logs.
        now: Returns the current time in UTC.
        zones: Returns the time zones in which days begin.
        cluster: The gateways that append to it, None if there is one.
    """

    def __init__(
        self,
        store: Store,
        now: Callable[[], datetime],
        zones: Callable[[], Zones],
        cluster: Cluster | None = None,
    ) -> None:
        self._store = store
        self._cluster = cluster
        self.now = now
        self._zones = zones
        self._opening = asyncio.Lock()
        self._opened: tuple[date, Zones] | None = None
        self._log: LazyLog[LedgerEvent, Sums] | None = None
        self._append: AppendEvent[LedgerEvent] | None = None
        self._writer: LogWriter[LedgerEvent, Sums] | None = None
        self._deferred: list[LedgerEvent] = []
        """Events that wait for the ledger to be open again."""
        self._left_open: frozenset[str] = frozenset()
        """Requests that were open when the log of the month before was read, if other gateways may settle them there."""
        self._settling: asyncio.Task[None] | None = None
        self._settle_after = datetime.min.replace(tzinfo=UTC)

    @property
    def shared(self) -> bool:
        """True if other gateways append to the same ledger."""
        return self._store.shared

    @property
    def gateway(self) -> str:
        """The present incarnation of this gateway, empty if there are no others."""
        return "" if self._cluster is None else self._cluster.id

    async def close(self) -> None:
        """Commit what was appended and close the log."""
        self._append = self._writer = None
        if self._settling is not None:
            await asyncio.wait([self._settling])
        if self._log is not None:
            await self._log.close()

    async def flush(self) -> None:
        """Open the log if events wait for that. Raises StorageFailed and InvalidLine."""
        if self._deferred:
            await self._current()

    def problem(self) -> str:
        """Return why the ledger cannot be used, as a sentence; empty if it can."""
        return self._log.problem if self._log is not None else ""

    @property
    def deferred(self) -> int:
        """The number of events that wait for the log to be opened."""
        return len(self._deferred)

    async def ready(self) -> None:
        """Open this month's log. Raises StorageFailed and InvalidLine."""
        await self._current()

    @asynccontextmanager
    async def writing(self) -> AsyncIterator[LogWriter[LedgerEvent, Sums]]:
        """Lend the writer of this month's log, see `LazyLog.writing`, after charging what was left behind by a crash: no
        money stays reserved for a request that nobody waits for. Raises StorageFailed and InvalidLine."""
        log = await self._current()
        async with log.writing() as writer:
            self._charge_abandoned(log, writer)
            yield writer

    async def sums(self) -> Sums:
        """Return the sums of this month and the one before. Raises StorageFailed and InvalidLine."""
        log, writer = await self._current(), self._writer
        if writer is not None:
            await writer.until_durable(writer.head)
        return await log.durable_state()

    @property
    def state(self) -> Sums | None:
        """The sums of this moment; None while the ledger is not open, or if it is shared."""
        return None if self._writer is None else self._writer.state

    async def rewrite(self, name: str, rewritten: Callable[[Lines], Iterator[bytes]]) -> None:
        """Replace the lines of a month's log; what is charged meanwhile waits. Raises StorageFailed, JournalDamaged."""
        async with self._opening:
            await self._leave()
            await self._store.rewrite(name, rewritten)

    def append(self, event: LedgerEvent, *, urgent: bool = True) -> None:
        """Append an event without waiting for the disk, see `AppendEvent`; it waits for the ledger to be opened if it is not
        open."""
        if self._append is not None:
            try:
                return self._append(event, urgent=urgent)
            except SessionsError:  # the next request opens it again
                self._append = None
        if len(self._deferred) < MOST_DEFERRED:
            self._deferred.append(event)
        return None

    async def _current(self) -> LazyLog[LedgerEvent, Sums]:
        """Return this month's log, open. Raises StorageFailed and InvalidLine."""
        current = self.now().astimezone(UTC).date().replace(day=1), self._zones()
        if self._log is not None and self._append is not None and current == self._opened:
            return self._log
        async with self._opening:
            if self._log is None or self._append is None or current != self._opened:
                await self._open(*current)
        assert self._log is not None
        return self._log

    async def _open(self, month: date, zones: Zones) -> None:
        first = self._log is None
        await self._leave()
        before = await asyncio.to_thread(read_ledgers, self._store, [month_before(month)], zones)
        self._log = LazyLog(
            ledger_format(month, before), self._store, self.now, unusable="The spending ledger cannot be used"
        )
        self._append = await self._log.appender()
        self._opened = month, zones
        self._left_open = frozenset(before.open if self._store.shared else ())
        if not self._store.shared:
            async with self._log.writing() as self._writer:
                if first:
                    self._charge_abandoned(self._log, self._writer, all_=True)
        deferred, self._deferred = self._deferred, []
        for event in deferred:
            self.append(event)

    async def _leave(self) -> None:
        """Close the log in order to use another one. Raises StorageFailed if something still waits to be appended to it."""
        if self._log is not None and not await self._log.flush():
            raise StorageFailed(self._log.problem or "The spending ledger takes too long; try again shortly.")
        await self.close()

    def _charge_abandoned(
        self, log: LazyLog[LedgerEvent, Sums], writer: LogWriter[LedgerEvent, Sums], *, all_: bool = False
    ) -> None:
        """Charge in full the requests that a process has left behind: all, or those of gateways that are gone and those
        older than any request may take. One that the log of the month before left open is charged soon: first this log is
        read again, and nobody waits for that."""
        left = list[RequestReserved]()
        for reserved, _, at in list(writer.state.open.values()):
            if not (all_ or self._is_abandoned(reserved, at)):
                continue
            if reserved.request in self._left_open:
                left.append(reserved)
            else:
                writer.append(reserved.charged())
        if left and (self._settling is None or self._settling.done()) and self.now() >= self._settle_after:
            self._settling = asyncio.create_task(self._settle_left(log, left))

    def _is_abandoned(self, reserved: RequestReserved, at: datetime) -> bool:
        now, cluster = self.now(), self._cluster
        gone = cluster is not None and at < now - ANNOUNCED and cluster.is_gone(reserved.gateway)
        return gone or at < now - ABANDONED

    async def _settle_left(self, log: LazyLog[LedgerEvent, Sums], left: list[RequestReserved]) -> None:
        """Settle abandoned requests that the log of the month before left open when it was read: as it says by now, else in
        full. If it cannot be read, they remain reserved until a later attempt."""
        assert self._opened is not None
        month, requests = month_before(self._opened[0]), {reserved.request for reserved in left}
        try:
            outcomes = await asyncio.to_thread(read_outcomes, self._store, month, requests)
            async with log.writing() as writer:
                for reserved in left:
                    if reserved.request not in writer.state.open:  # it was settled in this month's log meanwhile
                        continue
                    if reserved.request in outcomes:
                        writer.state.add(*outcomes[reserved.request])
                    else:
                        writer.append(reserved.charged(), urgent=True)
                await writer.until_durable(writer.head)
        except (SessionsError, InvalidLine) as error:
            self._settle_after = self.now() + READ_AGAIN
            report.warning("reservations_kept", reservations=len(left), reason=sentence_of(error))
