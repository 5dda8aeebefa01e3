"""Importance, recall score and similarity of facts. Pure functions of values and the time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from plugins.api.fact_values import LEAST, Fact
from plugins.support.text.bounded_cache import bounded_cache

UNUSED_DAYS = 30.0
"""Days without use after which importance starts to decay, and its half-life from then on."""

MIN_IMPORTANCE = 0.1
"""Lower bound of the decayed importance."""

STALE_FACTOR = 0.5
"""Score factor of a fact that was not used for `stale_after_days`."""

RECENT_DAYS = 7.0
"""Half-life of recency in days."""

SUPERSEDED_FACTOR = 0.5
"""Factor of the importance of a superseded fact."""

DUPLICATE_SIMILARITY = 0.6
"""Jaccard index of the words above which two facts are duplicates, unless their numbers differ."""


class RecallStats(msgspec.Struct, frozen=True, kw_only=True):
    """A recalled fact with the parts of its score: overlap × importance × (0.5 + 0.5 × recency) × staleness."""

    fact: Fact
    score: float
    overlap: float
    importance: float
    recency: float
    staleness: float


def idle_days(fact: Fact, now: datetime) -> float:
    """Return the days since a fact was last used, edited or written; 0 if the time is unreadable or in the future."""
    last = _moment(max(fact.used, fact.edited, fact.created))
    return 0.0 if last is None else max(0.0, (now - last).total_seconds() / 86400)


@bounded_cache(4096)
def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def current_importance(fact: Fact, now: datetime) -> float:
    """Return the current importance of a fact.

    It stays constant for `UNUSED_DAYS` without use, then halves every `UNUSED_DAYS` down to `MIN_IMPORTANCE`. Pinned facts
    do not decay.
    """
    if fact.pinned:
        return fact.importance
    late = max(0.0, idle_days(fact, now) - UNUSED_DAYS)
    return float(max(min(MIN_IMPORTANCE, fact.importance), fact.importance * 0.5 ** (late / UNUSED_DAYS)))


def score_fact(fact: Fact, overlap: float, now: datetime, stale_after_days: float) -> RecallStats:
    """Score a fact that matches this share, from 0 to 1, of a message."""
    idle = idle_days(fact, now)
    importance = max(current_importance(fact, now), min(LEAST, fact.importance))
    recency = 0.5 ** (idle / RECENT_DAYS)
    staleness = 1.0 if fact.pinned or idle <= stale_after_days else STALE_FACTOR
    score = overlap * importance * (0.5 + 0.5 * recency) * staleness
    return RecallStats(fact=fact, score=score, overlap=overlap, importance=importance, recency=recency, staleness=staleness)


def superseded_importance(fact: Fact) -> float:
    """Return the importance of a superseded fact."""
    return max(MIN_IMPORTANCE, round(fact.importance * SUPERSEDED_FACTOR, 4))


def equivalent_facts(content: str, facts: Iterable[Fact]) -> list[Fact]:
    """Return the facts that are equivalent to a text."""
    from plugins.support.text.words import word_set  # noqa: PLC0415 - loads language data

    words = word_set(content)
    return [fact for fact in facts if _are_equivalent(words, word_set(fact.content))]


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Return Jaccard's index of two sets of words, from 0 to 1."""
    return len(one & other) / len(union) if (union := one | other) else 0.0


def numbers_differ(one: frozenset[str], other: frozenset[str]) -> bool:
    """Return True if each set has a word with a digit that the other lacks, such as another port, day or version."""
    return bool(_numbers(one - other) and _numbers(other - one))


def _numbers(words: frozenset[str]) -> list[str]:
    return [word for word in words if any(character.isdigit() for character in word)]


def duplicates(facts: Iterable[Fact], now: datetime) -> dict[str, str]:
    """Return the duplicate facts, each with the one that is kept: pinned, then edited, then more important, then newer.

    Only facts of the same owner and workspaces are compared. A duplicate of a dropped fact only is kept, and so is each
    pinned or edited fact.
    """
    from plugins.support.text.words import word_set  # noqa: PLC0415 - loads language data

    best = sorted(
        facts,
        key=lambda fact: (
            fact.pinned,
            bool(fact.edited),
            current_importance(fact, now),
            fact.created,
            fact.content,
            fact.id,
        ),
        reverse=True,
    )
    kept: list[tuple[Fact, frozenset[str]]] = []
    gone: dict[str, str] = {}
    for fact in best:
        words = word_set(fact.content)
        same = next((other for other, known in kept if _comparable(fact, other) and _are_equivalent(known, words)), None)
        if same is not None and not fact.pinned and not fact.edited:
            gone[fact.id] = same.id
        else:
            kept.append((fact, words))
    return gone


def _are_equivalent(one: frozenset[str], other: frozenset[str]) -> bool:
    return similarity(one, other) > DUPLICATE_SIMILARITY and not numbers_differ(one, other)


def _comparable(one: Fact, other: Fact) -> bool:
    return one.owner == other.owner and one.workspaces() == other.workspaces()
