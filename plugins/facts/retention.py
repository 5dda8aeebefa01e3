"""What has to leave the book, as events that say so. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from plugins.api.facts.fact_events import FactsDropped
from plugins.api.facts.fact_settings import FactKeys
from plugins.api.facts.fact_values import Fact, Layer
from plugins.facts.fact_book import FactBook
from plugins.facts.scoring import duplicates, worth


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How long daily facts stay, in days, and how many the long-term log holds for each owner."""

    retention_days: float = 30.0
    cap: int = 100


def limits_of(keys: FactKeys) -> Limits:
    """Return the limits that the configuration sets."""
    return Limits(retention_days=keys.retention_days, cap=keys.cap)


def is_outdated(fact: Fact, limits: Limits, now: datetime) -> bool:
    """Return True for a daily fact that is past its time; pins never are."""
    return fact.layer == "daily" and not fact.pinned and _created(fact, now) < now - timedelta(days=limits.retention_days)


def outdated(book: FactBook, limits: Limits, now: datetime) -> FactsDropped | None:
    """The daily facts that are past their time."""
    old = [fact.id for fact in book.facts.values() if is_outdated(fact, limits, now)]
    return FactsDropped(ids=tuple(old), why="retention") if old else None


def beyond_cap(book: FactBook, limits: Limits, now: datetime) -> FactsDropped | None:
    """The least important of too many long-term facts; pins stay."""
    gone: list[str] = []
    for owner in {fact.owner: None for fact in book.layer("longterm")}:
        theirs = [fact for fact in book.layer("longterm") if fact.owner == owner]
        free = sorted(
            (fact for fact in theirs if not fact.pinned), key=lambda f: (worth(f, now), f.created, f.content, f.id)
        )
        gone += [fact.id for fact in free[: max(0, len(theirs) - limits.cap)]]
    return FactsDropped(ids=tuple(gone), why="cap") if gone else None


def repeated(book: FactBook, now: datetime, layer: Layer = "longterm") -> FactsDropped | None:
    """The facts of a layer that another one says as well."""
    found = duplicates(book.layer(layer), now)
    return FactsDropped(ids=tuple(found), why="duplicate", kept=tuple(found.values())) if found else None


def may_pin(book: FactBook, fact: Fact, limits: Limits) -> str:
    """Why a fact cannot be pinned, as a sentence; empty if it can."""
    pins = sum(each.pinned and each.layer == "longterm" and each.owner == fact.owner for each in book.facts.values())
    if fact.pinned or fact.layer == "daily" or pins < limits.cap:
        return ""
    return f"{pins} facts are pinned, and no more than {limits.cap} are kept; unpin another first."


def _created(fact: Fact, now: datetime) -> datetime:
    """When it was written; now, where that cannot be read: what is not known to be old stays."""
    try:
        return datetime.fromisoformat(fact.created)
    except ValueError:
        return now
