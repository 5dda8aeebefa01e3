"""What facts are worth now, and which say the same. Pure: functions of values and the time."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime

import msgspec

from plugins.api.facts.fact_values import LEAST, Fact
from plugins.support.bounded_cache import bounded_cache

UNUSED_DAYS = 30.0
"""Days without use after which importance begins to decay, and in which it halves from there on."""

FADED = 0.1
"""What importance does not decay below."""

STALE = 0.5
"""What a fact counts that was not used for `stale_after_days`, against one that was."""

RECENT_DAYS = 7.0
"""Days in which recency halves."""

OUTDATED = 0.5
"""What is left of the importance of a fact that a newer one supersedes."""

DUPLICATE = 0.6
"""The share of the union of two facts' words above which they say the same, unless their numbers differ."""


class RecallStats(msgspec.Struct, frozen=True, kw_only=True):
    """A fact that answers a message, and what its score is made of: score = overlap × importance × (0.5 + 0.5 × recency) ×
    staleness."""

    fact: Fact
    score: float
    overlap: float
    importance: float
    recency: float
    staleness: float


def idle_days(fact: Fact, now: datetime) -> float:
    """Days since it was last used, or written where it never was; never negative, 0 where the log's time cannot be read."""
    last = _moment(max(fact.used, fact.created))
    return 0.0 if last is None else max(0.0, (now - last).total_seconds() / 86400)


@bounded_cache(4096)
def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return None
    return moment if moment.tzinfo else moment.replace(tzinfo=UTC)


def worth(fact: Fact, now: datetime) -> float:
    """The importance of a fact now: as it was written for `UNUSED_DAYS` without use, then half as much in each so many days
    more. Pins keep theirs. A function of the time alone: to ask twice changes nothing."""
    if fact.pinned:
        return fact.importance
    late = max(0.0, idle_days(fact, now) - UNUSED_DAYS)
    return float(max(min(FADED, fact.importance), fact.importance * 0.5 ** (late / UNUSED_DAYS)))


def scored(fact: Fact, overlap: float, now: datetime, stale_after_days: float) -> RecallStats:
    """The score of a fact that has this share, from 0 to 1, of what a message asks for."""
    idle = idle_days(fact, now)
    importance = max(worth(fact, now), min(LEAST, fact.importance))
    recency = 0.5 ** (idle / RECENT_DAYS)
    staleness = 1.0 if fact.pinned or idle <= stale_after_days else STALE
    score = overlap * importance * (0.5 + 0.5 * recency) * staleness
    return RecallStats(fact=fact, score=score, overlap=overlap, importance=importance, recency=recency, staleness=staleness)


def superseded(fact: Fact) -> float:
    """The importance that is left to a fact of which a newer one says otherwise."""
    return max(FADED, round(fact.importance * OUTDATED, 4))


def saying(content: str, facts: Iterable[Fact]) -> list[Fact]:
    """The facts that say what a text says."""
    from plugins.support.text.words import word_set  # noqa: PLC0415 - what is known of languages: not at the start

    words = word_set(content)
    return [fact for fact in facts if _says(words, word_set(fact.content))]


def similarity(one: frozenset[str], other: frozenset[str]) -> float:
    """Jaccard's index: the share of the words of both that each of them has."""
    return len(one & other) / len(union) if (union := one | other) else 0.0


def numbers_differ(one: frozenset[str], other: frozenset[str]) -> bool:
    """Whether each has a word with a digit that the other has not: another port, day or version says something else."""
    return bool(_numbers(one - other) and _numbers(other - one))


def _numbers(words: frozenset[str]) -> list[str]:
    return [word for word in words if any(character.isdigit() for character in word)]


def duplicates(facts: Iterable[Fact], now: datetime) -> dict[str, str]:
    """The facts that another one says as well, each with the one that stays: pins, then the more important, then the newer.
    Only facts of the same owner and workspaces are compared. What is a duplicate of one that leaves stays."""
    from plugins.support.text.words import word_set  # noqa: PLC0415 - what is known of languages: not at the start

    best = sorted(facts, key=lambda fact: (fact.pinned, worth(fact, now), fact.created, fact.content, fact.id), reverse=True)
    kept: list[tuple[Fact, frozenset[str]]] = []
    gone: dict[str, str] = {}
    for fact in best:
        words = word_set(fact.content)
        same = next((other for other, known in kept if _comparable(fact, other) and _says(known, words)), None)
        if same is not None and not fact.pinned:
            gone[fact.id] = same.id
        else:
            kept.append((fact, words))
    return gone


def _says(one: frozenset[str], other: frozenset[str]) -> bool:
    return similarity(one, other) > DUPLICATE and not numbers_differ(one, other)


def _comparable(one: Fact, other: Fact) -> bool:
    return one.owner == other.owner and one.workspaces() == other.workspaces()
