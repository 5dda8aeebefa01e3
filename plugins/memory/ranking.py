"""Which of the candidates answer best: fusion, temporal decay, diversity. Pure functions over frozen values.

The order is fixed: minimum score, fusion, decay, sort, MMR, the best k. The minimum comes before decay, or a note of last
year could never be found.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from datetime import date

import msgspec

from plugins.memory.settings import Fusion

NEIGHBOURS = ((1, 0.3), (2, 0.1))
"""How much of the scores of what stands one and two chunks away counts for a chunk: an answer follows its question."""

NAMED = 0.15
"""What it is worth that the question names the heading, such as who spoke."""

RRF_DAMPING = 60
"""The k of reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """What one of the legs found. `keywords` is the negated bm25 (larger is better, 0 for no match); `phrase` is CoPaw's
    score of the words; `cosine` is None where no vector is known. `day` is None for what never grows old, `words` are
    those of its text. Keys that follow each other in one `note` stand beside each other in it. `named` says that the
    question has a word of its heading."""

    key: int
    note: str = ""
    named: bool = False
    keywords: float = 0.0
    phrase: float = 0.0
    cosine: float | None = None
    day: date | None = None
    words: frozenset[str] = frozenset()


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its score, and what that is made of."""

    candidate: Candidate
    score: float
    fused: float
    decay: float = 1.0


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How to rank. `min_score` is compared with the fused score, `half_life_days` None switches decay off, and
    `mmr_lambda` None the search for diversity."""

    results: int = 6
    fusion: Fusion = "measured"
    vector_weight: float = 0.7
    text_weight: float = 0.3
    measured_weight: float = 0.5
    min_score: float = 0.0
    half_life_days: float | None = 30.0
    mmr_lambda: float | None = 0.7


def rank(candidates: Sequence[Candidate], rules: Rules, today: date) -> list[Ranked]:
    """The best of the candidates, best first; at most `rules.results`."""
    fused = fuse(candidates, rules)
    kept = [each for each in candidates if fused[each.key] >= rules.min_score]
    ranked = []
    for each in kept:
        decay = decay_of(each.day, today, rules.half_life_days)
        ranked.append(Ranked(candidate=each, score=fused[each.key] * decay, fused=fused[each.key], decay=decay))
    ranked.sort(key=lambda each: (-each.score, each.candidate.key))
    return diverse(ranked, rules.results, rules.mmr_lambda)


# --- fusion -----------------------------------------------------------------------------------------------------------


def fuse(candidates: Sequence[Candidate], rules: Rules) -> Mapping[int, float]:
    """The score of each candidate by its key, before decay."""
    return _FUSIONS[rules.fusion](candidates, rules)


def _measured(candidates: Sequence[Candidate], rules: Rules) -> dict[int, float]:
    """Both legs on one scale, from the worst to the best candidate, then what stands beside it and whether it is named; at
    most 1 for a candidate that has everything. Chosen on LoCoMo: see `python -m benchmarks retrieval`."""
    own = _own(candidates, rules)
    notes = {each.key: each.note for each in candidates}
    full = 1 + 2 * sum(weight for _, weight in NEIGHBOURS) + NAMED
    scores = {}
    for each in candidates:
        beside = [(each.key + side * away, weight) for away, weight in NEIGHBOURS for side in (-1, 1)]
        around = sum(weight * own[key] for key, weight in beside if notes.get(key) == each.note)
        scores[each.key] = (own[each.key] + around + NAMED * each.named) / full
    return scores


def _own(candidates: Sequence[Candidate], rules: Rules) -> dict[int, float]:
    text = min_max([each.keywords for each in candidates])
    cosines = [each.cosine for each in candidates if each.cosine is not None]
    if not cosines:
        return {each.key: score for each, score in zip(candidates, text, strict=True)}
    # One whose vector is not made yet is taken for the worst, not for the opposite.
    vectors = min_max([min(cosines) if each.cosine is None else each.cosine for each in candidates])
    share = rules.measured_weight
    return {each.key: share * v + (1 - share) * t for each, v, t in zip(candidates, vectors, text, strict=True)}


def _openclaw(candidates: Sequence[Candidate], rules: Rules) -> dict[int, float]:
    """OpenClaw's: the cosine as it is, and r/(1+r) of the keywords' rank r."""
    vector, text = weights(rules)
    return {
        each.key: vector * max(0.0, each.cosine or 0.0) + text * each.keywords / (1 + each.keywords) for each in candidates
    }


def _copaw(candidates: Sequence[Candidate], rules: Rules) -> dict[int, float]:
    """CoPaw's: the cosine as it is, and the share of the question's words that the text has."""
    vector, text = weights(rules)
    return {each.key: vector * max(0.0, each.cosine or 0.0) + text * each.phrase for each in candidates}


def _rrf(candidates: Sequence[Candidate], rules: Rules) -> dict[int, float]:
    """Reciprocal ranks: what counts is the place in each leg, not the score."""
    scores = dict.fromkeys((each.key for each in candidates), 0.0)
    vector, text = weights(rules)
    legs: tuple[tuple[float, Callable[[Candidate], float]], ...] = (
        (vector, lambda each: each.cosine or 0.0),
        (text, lambda each: each.keywords),
    )
    for weight, value in legs:
        found = sorted((each for each in candidates if value(each) > 0), key=lambda each: (-value(each), each.key))
        for place, each in enumerate(found, 1):
            scores[each.key] += weight / (RRF_DAMPING + place)
    return scores


_FUSIONS: Mapping[str, Callable[[Sequence[Candidate], Rules], dict[int, float]]] = {
    "measured": _measured,
    "openclaw": _openclaw,
    "copaw": _copaw,
    "rrf": _rrf,
}


def weights(rules: Rules) -> tuple[float, float]:
    """The weights of vectors and keywords, together 1."""
    whole = rules.vector_weight + rules.text_weight
    return (rules.vector_weight / whole, rules.text_weight / whole) if whole > 0 else (0.5, 0.5)


def phrase_score(terms: Sequence[str], phrase: str, text: str) -> float:
    """CoPaw's keyword score: the share of the terms that the text contains, 0.2 more if it contains a phrase of several
    words as a whole; at most 1. Case does not matter."""
    there = text.casefold()
    if not terms:
        return 0.0
    hits = sum(term.casefold() in there for term in terms) / len(terms)
    whole = 0.2 if len(terms) > 1 and phrase.casefold() in there else 0.0
    return min(1.0, hits + whole)


def min_max(values: Sequence[float]) -> list[float]:
    """The values between 0 (the least) and 1 (the largest); all the same are 1 if they are positive, else 0."""
    if not values:
        return []
    low, high = min(values), max(values)
    if high <= low:
        return [1.0 if high > 0 else 0.0] * len(values)
    return [(value - low) / (high - low) for value in values]


# --- decay and diversity ----------------------------------------------------------------------------------------------


def decay_of(day: date | None, today: date, half_life_days: float | None) -> float:
    """What is left of a score: 0.5^(age / half-life). 1 for what has no date, for the future, and where decay is off."""
    if day is None or half_life_days is None or half_life_days <= 0:
        return 1.0
    return math.pow(0.5, max(0, (today - day).days) / half_life_days)


def diverse(ranked: Sequence[Ranked], results: int, mmr_lambda: float | None, *, scaled: bool = True) -> list[Ranked]:
    """The best by maximal marginal relevance (Carbonell and Goldstein, SIGIR 1998): each time the one with the largest
    λ × relevance − (1 − λ) × likeness to the most alike of those already taken: the Jaccard index of their words.

    It chooses from all of `ranked`, sorted best first; `scaled` puts their scores between 0 and 1 first, over that same
    pool. The seeds' example is on raw scores."""
    if mmr_lambda is None or mmr_lambda >= 1:
        return list(ranked[:results])
    relevance = min_max([each.score for each in ranked]) if scaled else [each.score for each in ranked]
    left = list(range(len(ranked)))
    likeness = [0.0] * len(ranked)
    taken: list[Ranked] = []
    while left and len(taken) < results:
        best = max(left, key=lambda at: mmr_lambda * relevance[at] - (1 - mmr_lambda) * likeness[at])
        left.remove(best)
        taken.append(ranked[best])
        for at in left:
            likeness[at] = max(likeness[at], jaccard(ranked[at].candidate.words, ranked[best].candidate.words))
    return taken


def jaccard(one: frozenset[str], other: frozenset[str]) -> float:
    """How alike two sets of words are, from 0 to 1."""
    return len(one & other) / len(one | other) if one or other else 0.0
