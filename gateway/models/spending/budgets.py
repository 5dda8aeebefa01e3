"""Budgets: what a person, an agent and everybody together may spend in a day, a week or a month.

A request is admitted only if what was spent, what is reserved, and the most that it may cost fit into each of its budgets.
A period is part of the key under which amounts are summed, so that nothing has to be reset when it ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from datetime import date, datetime, timedelta
from typing import Literal, TypeAlias

import msgspec

from gateway.config.keys import BudgetKeys, Config
from gateway.models.spending.spending_log import Payer, Period, Sums, Zones, agent_scope, period_key, person_scope
from plugins.commands.markdown import amount
from plugins.support.errors import ProviderError
from plugins.support.workspace import OWNER

EVERYBODY = "*"
"""The name of the budget of each person."""

AGENT = "agent:"
"""The prefix of the names of the budgets of agents."""

ALL = "all"
"""The scope of everybody together."""

WARN_AT = 0.8
"""The share of a budget at which a person is warned."""

COUNTED = frozenset({"answer", "api", "what_if", "transcription"})
"""The purposes of the requests that rates limit: those that people cause directly."""

RateUnit: TypeAlias = Literal["minute", "hour"]

_SECONDS: Mapping[RateUnit, float] = {"minute": 60.0, "hour": 3600.0}
_PERIODS: tuple[Period, ...] = ("day", "week", "month")
_NOW: Mapping[Period, str] = {"day": "today", "week": "this week", "month": "this month"}


class RequestRefused(ProviderError):
    """A request to a model is not admitted. It was not sent, and says nothing about the provider."""


class BudgetSpent(RequestRefused):
    """A request does not fit into a budget. `instead` is the `provider:model` that may be asked instead, or empty."""

    code = "budget_spent"

    def __init__(self, sentence: str, *, instead: str = "") -> None:
        super().__init__(sentence)
        self.instead = instead


class TooManyRequests(RequestRefused):
    """A person sends more requests than their budget admits."""

    code = "too_many_requests"


class Limit(msgspec.Struct, frozen=True, kw_only=True):
    """The budget of a scope in the current period: `cap` in millionths of the currency, `key` names the period. `begins` is
    the day on which it resets, `zone` the name of the time zone, `model` the model to be asked instead."""

    scope: str
    period: Period
    key: str
    cap: int
    begins: date
    zone: str
    model: str = ""

    def whose(self) -> str:
        """Return whose budget it is, as the beginning of a sentence."""
        if self.scope == ALL:
            return "The budget of everybody together"
        kind, _, name = self.scope.partition(":")
        return f"The budget of the agent {name}" if kind == "agent" else f"The budget of {name}"

    def warned_person(self) -> str:
        """Return the person who is warned when most is spent: the owner, if the budget is not that of one person."""
        kind, _, name = self.scope.partition(":")
        return name if kind == "person" else OWNER

    def refusal(self, currency: str, spent: int, reserved: int, worst: int) -> str:
        """Return why a request that may cost `worst` is refused."""
        held = f" and {amount(reserved, currency)} are reserved for requests that run" if reserved else ""
        zone = f" ({self.zone})" if self.zone else ""
        return (
            f"{self.whose()} for {_NOW[self.period]} is {amount(self.cap, currency)}:"
            f" {amount(spent, currency)} are spent{held}, and this request may cost {amount(worst, currency)}."
            f" It resets on {self.begins.isoformat()} at 00:00{zone}."
        )

    def warning(self, currency: str, spent: int) -> str:
        """Return the sentence that most of it is spent."""
        return (
            f"{self.whose()} for {_NOW[self.period]} is spent to {spent * 100 // self.cap} %: {amount(spent, currency)} of"
            f" {amount(self.cap, currency)}. It resets on {self.begins.isoformat()}."
        )


def limits_of(config: Config, payer: Payer, now: datetime, zones: Zones) -> list[Limit]:
    """Return the limits in force for a payer's requests at a time."""
    return [
        limit
        for scope, zone, keys in _budgets(config, payer)
        if any(getattr(keys, period) is not None for period in _PERIODS)  # mostly none: then no day is computed
        for limit in _limits(scope, keys, zones.day(now, zone), zones.name(zone))
    ]


def budget_of(config: Config, person: str) -> BudgetKeys:
    """Return the budget of a person: each key of their own, else that of everybody."""
    own, every = config.budgets.get(person), config.budgets.get(EVERYBODY)
    if own is None or every is None:
        return own or every or BudgetKeys()
    chosen = {name: getattr(own, name) for name in own.__struct_fields__}
    return BudgetKeys(**{name: getattr(every, name) if value is None else value for name, value in chosen.items()})


def _budgets(config: Config, payer: Payer) -> Iterator[tuple[str, str, BudgetKeys]]:
    """Yield the scopes of a payer, each with the person in whose time zone it is and its budget."""
    if payer.person and config.budgets:
        yield person_scope(payer.person), payer.person, budget_of(config, payer.person)
    if (keys := config.budgets.get(f"{AGENT}{payer.agent}")) is not None:
        yield agent_scope(payer.agent), OWNER, keys
    usage = config.usage
    yield ALL, OWNER, BudgetKeys(day=usage.day, week=usage.week, month=usage.month)


def _limits(scope: str, keys: BudgetKeys, today: date, zone: str) -> Iterator[Limit]:
    for period in _PERIODS:
        cap = getattr(keys, period)
        if cap is not None:
            yield Limit(
                scope=scope,
                period=period,
                key=period_key(period, today),
                cap=round(cap * 1_000_000),
                begins=_next(period, today),
                zone=zone,
                model=keys.model or "",
            )


def _next(period: Period, today: date) -> date:
    """Return the first day of the period after that of a day."""
    match period:
        case "day":
            return today + timedelta(days=1)
        case "week":
            return today + timedelta(days=7 - today.weekday())
        case "month":
            return (today.replace(day=1) + timedelta(days=31)).replace(day=1)


def check_limits(limits: list[Limit], sums: Sums, currency: str, worst: int) -> None:
    """Check that a request that costs at most `worst` fits into all limits. One that costs nothing always does.

    Raises:
        BudgetSpent: It does not.
    """
    if not worst:
        return
    for limit in limits:
        place = currency, limit.scope, limit.key
        spent, reserved = sums.spent.get(place, 0), sums.reserved.get(place, 0)
        if spent + reserved + worst > limit.cap:
            raise BudgetSpent(limit.refusal(currency, spent, reserved, worst), instead=limit.model)


def newly_near(limits: list[Limit], sums: Sums, currency: str) -> list[Limit]:
    """Return the limits of which most is spent, and of which nobody was warned yet in this period. A limit of 0, of which
    nothing can be spent on purpose, is none of them."""
    return [
        limit
        for limit in limits
        if limit.cap
        and (place := (currency, limit.scope, limit.key)) not in sums.warned
        and (spent := sums.spent.get(place, 0))
        and spent >= WARN_AT * limit.cap
    ]


class RequestRates:
    """The times of each person's recent requests, on a monotonic clock in seconds. A restart begins anew."""

    def __init__(self) -> None:
        self._times: dict[str, deque[float]] = {}

    def take(self, person: str, keys: BudgetKeys, now: float) -> None:
        """Count a request. Raises TooManyRequests if the person must wait."""
        units: tuple[tuple[RateUnit, int | None], ...] = (
            ("minute", keys.requests_per_minute),
            ("hour", keys.requests_per_hour),
        )
        times = self._times.setdefault(person, deque())
        while times and times[0] <= now - _SECONDS["hour"]:
            times.popleft()
        for unit, most in units:
            within = [] if most is None else [time for time in times if time > now - _SECONDS[unit]]
            if most is not None and len(within) >= most:
                wait = within[-most] + _SECONDS[unit] - now
                many = "1 request" if most == 1 else f"{most:,} requests"
                raise TooManyRequests(
                    f"At most {many} to models a{'n' if unit == 'hour' else ''} {unit} are allowed to {person}; the next is"
                    f" possible in {wait:.0f} s.",
                    retry_after=max(wait, 1.0),
                )
        if any(most is not None for _, most in units):
            times.append(now)
