"""Ranking of the candidates: fusion, temporal decay and diversity. Pure functions over frozen values.

The order is fixed: fusion, minimum score, decay, sort, MMR, best k. The minimum applies before decay, or notes of last year
could never be found.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import date
from functools import cache
from heapq import heapify, heappop, heappush

from plugins.memory.search.candidates import Candidate, Ranked, Rules, min_max, ranked
from plugins.memory.search.fusion import fuse

POOL = 4
"""Candidates per result from which diversity chooses."""

ALIKE = 0.8
"""Jaccard index up to which texts are no near-duplicates: sections about a subject share many words, functions of a program
even more, and each may answer."""


def rank(candidates: Sequence[Candidate], rules: Rules, today: date) -> list[Ranked]:
    """Return the best candidates, best first, at most `rules.results`."""
    parts = fuse(candidates, rules)
    scored = []
    for each in candidates:
        left = decay_of(each.day, today, rules.half_life_days)
        one = ranked(each, parts[each.key], 1 - rules.decay_share + rules.decay_share * left)
        if one.fused >= rules.min_score:
            scored.append(one)
    scored.sort(key=lambda each: (-each.score, each.candidate.key))
    alike = ALIKE if rules.fusion == "measured" else 0.0
    return diverse(scored[: POOL * rules.results], rules.results, rules.mmr_lambda, alike=alike)


def decay_of(day: date | None, today: date, half_life_days: float | None) -> float:
    """Return the age factor of a score: 0.5^(age / half-life). 1 without a date, for the future, and if decay is off."""
    if day is None or half_life_days is None or half_life_days <= 0:
        return 1.0
    return math.pow(0.5, max(0, (today - day).days) / half_life_days)


def diverse(
    found: Sequence[Ranked], results: int, mmr_lambda: float | None, *, alike: float = 0.0, scaled: bool = True
) -> list[Ranked]:
    """Select by maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998).

    Each step takes the result with the largest λ × relevance − (1 − λ) × similarity, the latter being the largest Jaccard
    index with those already taken.

    Args:
        found: The candidates, best first.
        results: Number of results.
        mmr_lambda: λ from 0 to 1, None to disable.
        alike: Jaccard index that counts as 0, below 1; those above are scaled to 0–1.
        scaled: Scale the scores to 0–1 over all candidates first.
    """
    if mmr_lambda is None or mmr_lambda >= 1 or len(found) < 2:
        return list(found[:results])
    scores = [each.score for each in found]
    relevance = min_max(scores) if scaled else scores
    words = cache(lambda at: found[at].candidate.words())
    left = [(-mmr_lambda * each, at) for at, each in enumerate(relevance)]
    heapify(left)
    likeness, compared = [0.0] * len(found), [0] * len(found)
    taken: list[int] = []
    while left and len(taken) < results:
        # Similarity only grows, so an outdated value is an upper bound of the candidate's score.
        _, best = heappop(left)
        if compared[best] == len(taken):
            taken.append(best)
            continue
        nearest = max(jaccard(words(best), words(other)) for other in taken[compared[best] :])
        likeness[best] = max(likeness[best], (nearest - alike) / (1 - alike))
        compared[best] = len(taken)
        heappush(left, ((1 - mmr_lambda) * likeness[best] - mmr_lambda * relevance[best], best))
    return [found[at] for at in taken]


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """Return the Jaccard index of two sets of words, from 0 to 1."""
    both = len(one & other)
    return both / (len(one) + len(other) - both) if one or other else 0.0
