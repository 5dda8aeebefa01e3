"""The ways to put words and vectors together. Pure: candidates in, the parts of their scores out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import msgspec

from plugins.api.memory_settings import Fusion
from plugins.memory.search.candidates import Candidate, Part, Rules
from plugins.memory.search.weighted_fusion import measured

RRF_DAMPING = 60
"""The k of reciprocal rank fusion (Cormack, Clarke and Büttcher, SIGIR 2009)."""

_AROUND = ".,;:!?…\"'“”‘’()[]{}<>«»。，！？；：、（）「」"

LARGEST = 1e9
"""The largest bm25 that is believed."""

Parts = dict[int, tuple[Part, ...]]


def fuse(candidates: Sequence[Candidate], rules: Rules) -> Parts:
    """The parts of each candidate's score by its key, before decay. Numbers that are none, or beyond all measure, are taken
    for nothing found or for the largest there is."""
    return _FUSIONS[rules.fusion]([_sane(each) for each in candidates], rules)


def _sane(one: Candidate) -> Candidate:
    cosine = one.cosine
    if cosine is not None:
        cosine = None if cosine != cosine else min(1.0, max(-1.0, cosine))  # noqa: PLR0124 - NaN alone is not itself
    keywords = min(LARGEST, one.keywords) if one.keywords > 0 else 0.0
    phrase = min(1.0, one.phrase) if one.phrase > 0 else 0.0
    if (cosine, keywords, phrase) == (one.cosine, one.keywords, one.phrase):
        return one
    return msgspec.structs.replace(one, cosine=cosine, keywords=keywords, phrase=phrase)


def _openclaw(candidates: Sequence[Candidate], rules: Rules) -> Parts:
    """OpenClaw's: the cosine as it is, and r/(1+r) of the keywords' rank r."""
    vector, text = weights(rules)
    return {
        each.key: (
            Part("meaning", max(0.0, each.cosine or 0.0), vector),
            Part("words", each.keywords / (1 + each.keywords), text),
        )
        for each in candidates
    }


def _copaw(candidates: Sequence[Candidate], rules: Rules) -> Parts:
    """CoPaw's: the cosine as it is, and the share of the question's terms that the text has."""
    vector, text = weights(rules)
    return {
        each.key: (Part("meaning", max(0.0, each.cosine or 0.0), vector), Part("share of the words", each.phrase, text))
        for each in candidates
    }


def _rrf(candidates: Sequence[Candidate], rules: Rules) -> Parts:
    """Reciprocal ranks: what counts is the place in each leg, not the score."""
    vector, text = weights(rules)
    legs: tuple[tuple[str, float, Callable[[Candidate], float]], ...] = (
        ("place by meaning", vector, lambda each: each.cosine or 0.0),
        ("place by words", text, lambda each: each.keywords),
    )
    parts: Parts = {each.key: () for each in candidates}
    for name, weight, value in legs:
        found = sorted((each for each in candidates if value(each) > 0), key=lambda each: (-value(each), each.key))
        for place, each in enumerate(found, 1):
            parts[each.key] += (Part(name, 1 / (RRF_DAMPING + place), weight),)
    return parts


_FUSIONS: Mapping[Fusion, Callable[[Sequence[Candidate], Rules], Parts]] = {
    "measured": measured,
    "openclaw": _openclaw,
    "copaw": _copaw,
    "rrf": _rrf,
}


def weights(rules: Rules) -> tuple[float, float]:
    """The weights of vectors and keywords in the seeds' fusions, together 1."""
    whole = rules.vector_weight + rules.text_weight
    return (rules.vector_weight / whole, rules.text_weight / whole) if whole > 0 else (0.5, 0.5)


def typed_terms(question: str) -> list[str]:
    """Return the terms of a question as CoPaw counts them: what stands between spaces, here without the punctuation around
    it."""
    return [term for each in question.split() if (term := each.strip(_AROUND))] or question.split()


def phrase_score(terms: Sequence[str], phrase: str, text: str) -> float:
    """CoPaw's keyword score: the share of the terms that the text contains, 0.2 more if it contains a phrase of several
    words as a whole; at most 1. Case does not matter."""
    there = text.casefold()
    if not terms:
        return 0.0
    hits = sum(term.casefold() in there for term in terms) / len(terms)
    whole = 0.2 if len(terms) > 1 and phrase.casefold().strip(_AROUND) in there else 0.0
    return min(1.0, hits + whole)
