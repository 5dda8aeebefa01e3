"""Charging requests to models: each one that was sent stands in the ledger exactly once."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from secrets import token_hex
from types import TracebackType
from typing import Any, Self
from urllib.parse import urlsplit

import msgspec
import structlog

from gateway.auth.token import is_loopback
from gateway.config.settings import Settings
from gateway.metrics.counters import Counters
from gateway.models.spending.budgets import (
    COUNTED,
    Limit,
    RequestRates,
    RequestRefused,
    budget_of,
    check_limits,
    limits_of,
    newly_near,
)
from gateway.models.spending.prices import CURRENCY, Price, Rate, micros_of, price_of, rate_of
from gateway.models.spending.report import MonthReport, month_report
from gateway.models.spending.spending_log import (
    BudgetWarned,
    Ledger,
    Payer,
    RequestCharged,
    RequestReleased,
    RequestReserved,
    Sums,
    Zones,
)
from gateway.support.errors import sentence_of
from plugins.api.chat import ChatProvider, HasAddress
from plugins.api.command import BudgetState, CommandFailed, SpendingSummary
from plugins.api.embedding import CountsTokens, EmbeddingProvider
from sessions.events.codec import InvalidLine
from sessions.events.errors import SessionsError
from sessions.events.messages import Usage

EMBEDDING = "embedding"
"""The purpose of requests for vectors."""

REMEMBERED = 10_000
"""Sessions whose payer is remembered; that of another one is looked up."""

log = structlog.get_logger("exuvia.spending")


class BudgetUnknown(RequestRefused):
    """A budget limits a request, and the ledger cannot be used."""

    code = "storage_failed"


class ModelRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is about to be sent: its session and purpose, the `provider:model`, and its price, None if unknown.

    `tokens` returns the estimated tokens of its input, `output` is the most that the answer may have.
    """

    session: str
    purpose: str
    model: str
    price: Price | None
    tokens: Callable[[], int] = int
    output: int = 0


class Charge:
    """The charge for one request, from before it is sent until its outcome is known.

    Args:
        spending: The account.
        template: The charge, without what was used.
        payer: Who pays.
        limits: The budgets that it counts for.
        reserved: True if they hold a reservation for it.
    """

    def __init__(
        self, spending: Spending, template: RequestCharged, payer: Payer, limits: list[Limit], *, reserved: bool
    ) -> None:
        self._spending = spending
        self._template = template
        self._payer = payer
        self._limits = limits
        self._reserved = reserved
        self._open = True

    def settle(self, usage: Usage | None, estimated: Callable[[], Usage], reported: int | None = None) -> int | None:
        """Charge what was used, once, and return what it cost in millionths of the currency; None if that is unknown.

        Args:
            usage: What the provider counted; None if it did not.
            estimated: Returns an estimate, which is charged instead.
            reported: What the provider says that it cost, in millionths of a dollar; None if it does not say.
        """
        self._open = False
        used = estimated() if usage is None else usage
        rate, named = self._template.rate, self._spending.converted(reported)
        micros = named if named is not None else micros_of(rate, used) if rate else None
        charged = msgspec.structs.replace(
            self._template,
            usage=used,
            micros=micros or 0,
            reported=named is not None,
            estimated=usage is None and named is None,
        )
        self._spending.record(charged, self._limits)
        return micros

    def end(self, estimated: Callable[[], Usage] | None) -> None:
        """End the charge if it was not settled: charge an estimate if the outcome is unknown, nothing if None."""
        if self._open and estimated is not None:
            self.settle(None, estimated)
        elif self._open and self._reserved:
            self._spending.ledger.append(RequestReleased(request=self._template.request))
        self._open = False


class Spending:
    """The account of everything that requests to models cost.

    Args:
        ledger: The ledger, which is closed with this.
        settings: The configuration.
        counters: The gateway's counters.
        find: Returns who pays for the requests of a session with a log; None if it is unknown.
        monotonic: Returns the time of a monotonic clock in seconds.
    """

    def __init__(
        self,
        ledger: Ledger,
        settings: Settings,
        counters: Counters,
        find: Callable[[str], Awaitable[Payer | None]],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._monotonic = monotonic
        self._rates = RequestRates()
        self.ledger = ledger
        self._settings = settings
        self._counters = counters
        self._find = find
        self._payers: dict[str, Payer] = {}
        self._notices: dict[str, list[str]] = {}
        """Warnings that people have not been shown yet, by person."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self.ledger.flush()
        except (SessionsError, InvalidLine) as failure:
            log.error("charges_dropped", charges=self.ledger.deferred, reason=sentence_of(failure))
        await self.ledger.close()

    @property
    def currency(self) -> str:
        """The currency of all amounts."""
        return self._settings.current.usage.currency

    def price(self, provider: ChatProvider, model: str) -> Price | None:
        """Return the price of a provider's model; None if it is unknown."""
        return price_of(provider, model, self._settings.current.prices, self.currency)

    @property
    def reserved_output(self) -> int:
        """The tokens of an answer that are reserved if nothing else limits it."""
        return self._settings.current.usage.reserved_output

    def problems(self) -> list[str]:
        """Return the problems of the ledger, as sentences."""
        return [problem] if (problem := self.ledger.problem()) else []

    def know(self, session: str, payer: Payer) -> None:
        """Remember who pays for the requests of a session."""
        self._payers.pop(session, None)
        self._payers[session] = payer
        if len(self._payers) > REMEMBERED:
            del self._payers[next(iter(self._payers))]

    def take_notice(self, person: str) -> str:
        """Return the warnings that a person has not been shown yet, and forget them; empty if there are none."""
        return "\n".join(self._notices.pop(person, ()))

    async def begin(self, request: ModelRequest) -> Charge:
        """Begin a request, which must not have been sent, and reserve the most that it may cost if a budget limits it.

        Raises:
            RequestRefused: It does not fit into a budget, or the person sends too many.
            BudgetUnknown: The ledger cannot be used, and a budget limits the request.
        """
        payer = self._payers.get(request.session) or await self._looked_up(request.session)
        config, zones = self._settings.current, Zones.of(self._settings.current)
        if payer.person and config.budgets and request.purpose in COUNTED:
            self._rates.take(payer.person, budget_of(config, payer.person), self._monotonic())
        template = RequestCharged(
            request=token_hex(8),
            person=payer.person,
            agent=payer.agent,
            session=request.session,
            purpose=request.purpose,
            model=request.model,
            usage=Usage(),
            micros=0,
            rate=self._rate(request.price),
            currency=self.currency,
        )
        limits, begun = limits_of(config, payer, self.ledger.now(), zones), False
        try:
            await self.ledger.ready()
            if limits:
                await self._reserve(self._reservation(template, request), limits)
            elif template.rate is not None and not self.ledger.shared:
                reserved = self._reservation(template, request)
                if begun := reserved.micros > 0:
                    self.ledger.append(reserved)  # what a crash interrupts is charged at the next start
        except (SessionsError, InvalidLine) as error:
            log.error("ledger_unusable", reason=str(error))
            if limits:
                raise BudgetUnknown(f"A budget limits this request, and what was spent is not known: {error}") from error
        return Charge(self, template, payer, limits, reserved=bool(limits) or begun)

    def _reservation(self, template: RequestCharged, request: ModelRequest) -> RequestReserved:
        """Return the reservation of the most that a request may cost."""
        most = Usage(input=request.tokens() if template.rate else 0, output=request.output)
        worst = micros_of(template.rate, most) if template.rate else 0
        known: dict[str, Any] = {"usage": most, "micros": worst, "gateway": self.ledger.gateway}
        names = set(RequestReserved.__struct_fields__) - known.keys()
        return RequestReserved(**{name: getattr(template, name) for name in names}, **known)

    async def check_embedding(self, provider: EmbeddingProvider, tokens: int, payer: Payer) -> None:
        """Check that texts of about this many tokens may be embedded within the budgets. Nothing is reserved: the charge
        follows at once.

        Raises:
            BudgetSpent: It does not.
            BudgetUnknown: The ledger cannot be used, and a budget limits the request.
        """
        config = self._settings.current
        rate = self._rate(price_of(provider, provider.model() or "", config.prices, self.currency))
        limits = limits_of(config, payer, self.ledger.now(), Zones.of(config))
        if rate is None or not limits:
            return
        try:
            await self.ledger.ready()
            sums = self.ledger.state or await self.ledger.sums()
        except (SessionsError, InvalidLine) as error:
            raise BudgetUnknown(f"A budget limits this request, and what was spent is not known: {error}") from error
        check_limits(limits, sums, self.currency, micros_of(rate, Usage(input=tokens)))

    def charge_embedding(self, provider: EmbeddingProvider, tokens: int, payer: Payer) -> None:
        """Charge embedded texts of about this many tokens, without waiting. Those that a model on this machine embedded cost
        nothing and are not recorded."""
        model = provider.model() or ""
        rate = self._rate(price_of(provider, model, self._settings.current.prices, self.currency))
        address = provider.address(model) if isinstance(provider, HasAddress) else ""
        if rate is None and (not address or is_loopback(urlsplit(address).hostname or "")):
            return
        counted = provider.take_counted() if isinstance(provider, CountsTokens) else None
        used = Usage(input=counted or tokens)
        charged = RequestCharged(
            request=token_hex(8),
            person=payer.person,
            agent=payer.agent,
            session="",
            purpose=EMBEDDING,
            model=f"{provider.name}:{model}",
            usage=used,
            micros=micros_of(rate, used) if rate else 0,
            rate=rate,
            currency=self.currency,
            estimated=not counted,
        )
        config = self._settings.current
        self.record(charged, limits_of(config, payer, self.ledger.now(), Zones.of(config)))

    async def _reserve(self, reserved: RequestReserved, limits: list[Limit]) -> None:
        """Reserve the most that a request may cost, so that a gateway that is killed does not forget it.

        The sync is not waited for, unless others share the ledger: a power failure that takes the reservation also ends the
        request, which was sent a few milliseconds before at most.

        Raises:
            BudgetSpent: It does not fit.
        """
        try:
            async with self.ledger.writing() as writer:
                # No await up to the append: another request must not take the same room.
                check_limits(limits, writer.state, self.currency, reserved.micros)
                seq = writer.append(reserved, urgent=True)
                if self.ledger.shared:
                    for warned in self._warnings(writer.state, limits, reserved.session):
                        seq = writer.append(warned)
                    await writer.until_durable(seq)
            await writer.until_written()
        except RequestRefused:
            raise
        except BaseException:
            self.ledger.append(RequestReleased(request=reserved.request))
            raise

    def _warnings(self, sums: Sums, limits: list[Limit], session: str) -> list[BudgetWarned]:
        """Return the warnings of the budgets of which most is spent, each once a period, and log them."""
        warnings = []
        for limit in newly_near(limits, sums, self.currency):
            spent = sums.spent[self.currency, limit.scope, limit.key]
            warning = limit.warning(self.currency, spent)
            log.warning("budget_nearly_spent", reason=warning)
            self._notices.setdefault(limit.warned_person(), []).append(warning)
            warnings.append(
                BudgetWarned(
                    scope=limit.scope,
                    period=limit.key,
                    spent=spent,
                    cap=limit.cap,
                    session=session,
                    currency=self.currency,
                )
            )
        return warnings

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
            budgets=self._budgets(sums, self._payers.get(session) or Payer(person)),
        )

    def _budgets(self, sums: Sums, payer: Payer) -> list[BudgetState]:
        config = self._settings.current
        return [
            BudgetState(
                whose=limit.whose(),
                period=limit.period,
                spent=sums.spent.get((self.currency, limit.scope, limit.key), 0),
                cap=limit.cap,
                begins=limit.begins.isoformat(),
            )
            for limit in limits_of(config, payer, self.ledger.now(), Zones.of(config))
        ]

    async def report(self, person: str | None) -> MonthReport:
        """Return the report of this month, of everybody (None) or of one person. Raises StorageFailed."""
        now = self._now(person or "")
        return month_report(await self.ledger.sums(), now.date(), self.currency, now, person=person)

    def _now(self, person: str) -> datetime:
        return self.ledger.now().astimezone(Zones.of(self._settings.current).zone(person))

    def record(self, charged: RequestCharged, limits: list[Limit]) -> None:
        """Append a charge to the ledger, count it, and warn of the budgets of which most is spent now."""
        self._counters.cost.add(charged.purpose, charged.model, by=charged.micros)
        # No money was reserved for a request without a price: its line may share a sync with the next ones.
        self.ledger.append(charged, urgent=charged.rate is not None or charged.reported)
        sums = self.ledger.state
        for warned in self._warnings(sums, limits, charged.session) if sums is not None else ():
            self.ledger.append(warned)

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
