"""Events that enforce the retention limits of facts. Pure."""

from __future__ import annotations

from datetime import datetime, timedelta

from plugins.api.fact_values import Fact
from plugins.api.memory_settings import FactKeys
from plugins.facts.fact_book import FactBook
from plugins.facts.fact_events import FactsDropped
from plugins.facts.scoring import current_importance, duplicates


def is_outdated(fact: Fact, keys: FactKeys, now: datetime) -> bool:
    """Return True for a daily fact beyond its retention; pinned facts never expire."""
    return fact.layer == "daily" and not fact.pinned and _created(fact, now) < now - timedelta(days=keys.retention_days)


def drop_outdated(book: FactBook, keys: FactKeys, now: datetime) -> FactsDropped | None:
    """Return the event that drops expired daily facts, None for none."""
    old = [fact.id for fact in book.facts.values() if is_outdated(fact, keys, now)]
    return FactsDropped(ids=tuple(old), why="retention") if old else None


def drop_beyond_cap(book: FactBook, keys: FactKeys, now: datetime) -> FactsDropped | None:
    """Return the event that drops the least important long-term facts beyond the cap, edited ones last; None for none."""
    gone: list[str] = []
    for owner in {fact.owner: None for fact in book.layer("longterm")}:
        theirs = [fact for fact in book.layer("longterm") if fact.owner == owner]
        free = sorted(
            (fact for fact in theirs if not fact.pinned),
            key=lambda f: (bool(f.edited), current_importance(f, now), f.created, f.content, f.id),
        )
        gone += [fact.id for fact in free[: max(0, len(theirs) - keys.cap)]]
    return FactsDropped(ids=tuple(gone), why="cap") if gone else None


def drop_duplicates(book: FactBook, now: datetime) -> FactsDropped | None:
    """Return the event that drops duplicate long-term facts, None for none."""
    found = duplicates(book.layer("longterm"), now)
    return FactsDropped(ids=tuple(found), why="duplicate", kept=tuple(found.values())) if found else None


def pin_refusal(book: FactBook, fact: Fact, keys: FactKeys) -> str:
    """Return why a fact cannot be pinned, "" if it can."""
    pins = sum(each.pinned and each.layer == "longterm" and each.owner == fact.owner for each in book.facts.values())
    if fact.pinned or fact.layer == "daily" or pins < keys.cap:
        return ""
    return f"{pins} facts are pinned already, and at most {keys.cap} can be; unpin another one first."


def _created(fact: Fact, now: datetime) -> datetime:
    """Return the creation time; if it is invalid, return `now`, so that the fact does not expire."""
    try:
        return datetime.fromisoformat(fact.created)
    except ValueError:
        return now
