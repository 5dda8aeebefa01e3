"""Facts for tests."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any

from plugins.api.fact_values import Fact
from plugins.facts.fact_book import FactBook
from plugins.facts.fact_events import FactEvent, LoggedFactEvent

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)


def ago(days: float) -> str:
    """The time so many days before `NOW`."""
    return (NOW - timedelta(days=days)).isoformat()


def fact(content: str, **fields: Any) -> Fact:
    """A fact that was written now, with an id made of its words."""
    usual: dict[str, Any] = {"id": content.replace(" ", "-"), "created": ago(0), "source": "auto-extracted"}
    return Fact(content=content, **{**usual, **fields})


def build_book(events: Iterable[FactEvent], at: str) -> FactBook:
    """Return the state after these events, all at the same time."""
    book = FactBook()
    for seq, event in enumerate(events, 1):
        book.apply(LoggedFactEvent(seq=seq, at=at, event=event))
    return book
