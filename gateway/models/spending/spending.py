"""Charging requests to models: each one that was sent stands in the ledger exactly once."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from secrets import token_hex
from types import TracebackType
from typing import Self

import msgspec
import structlog

from gateway.config.settings import Settings
from gateway.metrics.counters import Counters
from gateway.models.spending.prices import CURRENCY, Price, Rate, micros_of, price_of, rate_of
from gateway.models.spending.report import MonthReport, month_report
from gateway.models.spending.spending_log import Ledger, LedgerEvent, RequestCharged, Zones
from plugins.api.chat import ChatProvider
from plugins.api.command import CommandFailed, SpendingSummary
from sessions.events.codec import InvalidLine
from sessions.events.errors import SessionsError
from sessions.events.events import MAIN_AGENT
from sessions.events.messages import Usage

REMEMBERED = 10_000
"""Sessions whose payer is remembered; that of another one is looked up."""

log = structlog.get_logger("exuvia.spending")


class Payer(msgspec.Struct, frozen=True):
    """Who pays for a request: a person, empty for the gateway itself, and the agent that it is for."""

    person: str
    agent: str = MAIN_AGENT


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is about to be sent: its session and purpose, the `provider:model`, and its price, None if unknown."""

    session: str
    purpose: str
    model: str
    price: Price | None


class Charge:
    """The charge for one request, from before it is sent until its outcome is known.

    Args:
        spending: The account.
        request: The request.
        payer: Who pays.
        rate: Its price in the configured currency; None if unknown.
        append: Appends to the ledger; None while it cannot be written.
    """

    def __init__(
        self,
        spending: Spending,
        request: ModelRequest,
        payer: Payer,
        *,
        rate: Rate | None,
        append: Callable[[LedgerEvent], None] | None,
    ) -> None:
        self._spending = spending
        self._request = request
        self._payer = payer
        self._rate = rate
        self._append = append
        self._open = True
        self._id = token_hex(8)

    def settle(self, usage: Usage | None, estimated: Callable[[], Usage], reported: int | None = None) -> int | None:
        """Charge what was used, once, and return what it cost in millionths of the currency; None if that is unknown.

        Args:
            usage: What the provider counted; None if it did not.
            estimated: Returns an estimate, which is charged instead.
            reported: What the provider says that it cost, in millionths of a dollar; None if it does not say.
        """
        self._open = False
        used = estimated() if usage is None else usage
        named = self._spending.converted(reported)
        micros = named if named is not None else micros_of(self._rate, used) if self._rate else None
        request = self._request
        self._spending.record(
            RequestCharged(
                request=self._id,
                person=self._payer.person,
                agent=self._payer.agent,
                session=request.session,
                purpose=request.purpose,
                model=request.model,
                usage=used,
                micros=micros or 0,
                rate=self._rate,
                currency=self._spending.currency,
                reported=named is not None,
                estimated=usage is None and named is None,
            ),
            self._append,
        )
        return micros

    def end(self, estimated: Callable[[], Usage] | None) -> None:
        """End the charge if it was not settled: charge an estimate if the outcome is unknown, nothing if None."""
        if self._open and estimated is not None:
            self.settle(None, estimated)
        self._open = False


class Spending:
    """The account of everything that requests to models cost.

    Args:
        ledger: The ledger, which is closed with this.
        settings: The configuration.
        counters: The gateway's counters.
        find: Returns the person of a session with a log; None if it is unknown.
    """

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        counters: Counters,
        find: Callable[[str], Awaitable[Payer | None]],
    ) -> None:
        self.ledger = ledger
        self._settings = settings
        self._counters = counters
        self._find = find
        self._payers: dict[str, Payer] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.ledger.close()

    @property
    def currency(self) -> str:
        """The currency of all amounts."""
        return self._settings.current.usage.currency

    def price(self, provider: ChatProvider, model: str) -> Price | None:
        """Return the price of a provider's model; None if it is unknown."""
        return price_of(provider, model, self._settings.current.prices, self.currency)

    def problems(self) -> list[str]:
        """Return the problems of the ledger, as sentences."""
        return [problem] if (problem := self.ledger.problem()) else []

    def know(self, session: str, payer: Payer) -> None:
        """Remember who pays for the requests of a session."""
        self._payers.pop(session, None)
        self._payers[session] = payer
        if len(self._payers) > REMEMBERED:
            del self._payers[next(iter(self._payers))]

    async def begin(self, request: ModelRequest) -> Charge:
        """Begin a request, which must not have been sent."""
        payer = self._payers.get(request.session) or await self._looked_up(request.session)
        try:
            append = await self.ledger.appender()
        except (SessionsError, InvalidLine) as error:
            log.error("ledger_unusable", reason=str(error))
            append = None
        return Charge(self, request, payer, rate=self._rate(request.price), append=append)

    async def summary(self, person: str, session: str) -> SpendingSummary:
        """Return what a person has spent, and what one of their sessions has cost. Raises CommandFailed."""
        try:
            sums = await self.ledger.sums()
        except (SessionsError, InvalidLine) as error:
            raise CommandFailed(f"What was spent is not known: {error}") from error
        now, by_purpose = self._now(person), dict[str, dict[str, int]]()
        for (purpose, model), cost in sums.sessions.get(session, {}).items():
            by_purpose.setdefault(purpose, {})[model] = cost
        today, month = now.date(), month_report(sums, now.date(), self.currency, now, person=person)
        monday = today - timedelta(days=today.weekday())
        return SpendingSummary(
            currency=self.currency,
            session=by_purpose,
            day=sums.cost(today, today, self.currency, person),
            week=sums.cost(monday, today, self.currency, person),
            month=month.total.micros,
            forecast=month.forecast,
            purposes={part.name: part.micros for part in month.purposes},
            models={part.name: part.micros for part in month.models},
            unpriced=month.total.unpriced,
        )

    async def report(self, person: str | None) -> MonthReport:
        """Return the report of this month, of everybody (None) or of one person. Raises StorageFailed."""
        now = self._now(person or "")
        return month_report(await self.ledger.sums(), now.date(), self.currency, now, person=person)

    def _now(self, person: str) -> datetime:
        return self.ledger.now().astimezone(Zones.of(self._settings.current).zone(person))

    def record(self, charged: RequestCharged, append: Callable[[LedgerEvent], None] | None) -> None:
        """Append a charge to the ledger and count it."""
        self._counters.cost.add(charged.purpose, charged.model, by=charged.micros)
        if append is None:
            return
        try:
            append(charged)
        except SessionsError as error:
            log.error("request_not_charged", session=charged.session, model=charged.model, reason=str(error))

    def converted(self, reported: int | None) -> int | None:
        """Return a cost that a provider reported in millionths of a dollar in those of the currency; None if it reported
        none, or the currency has no rate of exchange."""
        factor = self._factor(CURRENCY)
        return None if reported is None or factor is None else round(reported * factor)

    def _rate(self, price: Price | None) -> Rate | None:
        factor = None if price is None else self._factor(price.currency)
        return None if price is None or factor is None else rate_of(price, factor)

    def _factor(self, currency: str) -> float | None:
        """Return the value of a unit of a currency in the configured one; None if it is not known."""
        if currency == self.currency:
            return 1.0
        return self._settings.current.usage.per_dollar

    async def _looked_up(self, session: str) -> Payer:
        payer = await self._find(session) or Payer("")
        self.know(session, payer)
        return payer
