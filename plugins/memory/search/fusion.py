"""Fusion of keyword and vector scores. Pure."""

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
"""Upper bound of a plausible bm25."""

Parts = dict[int, tuple[Part, ...]]


def fuse(candidates: Sequence[Candidate], rules: Rules) -> Parts:
    """Return the parts of each candidate's score by key, before decay. NaN and out-of-range values are clamped."""
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
    """OpenClaw's fusion: the cosine, and r/(1+r) of the keyword score r."""
    vector, text = weights(rules)
    return {
        each.key: (
            Part("meaning", max(0.0, each.cosine or 0.0), vector),
            Part("words", each.keywords / (1 + each.keywords), text),
        )
        for each in candidates
    }


def _copaw(candidates: Sequence[Candidate], rules: Rules) -> Parts:
    """CoPaw's fusion: the cosine, and the share of the question's terms in the text."""
    vector, text = weights(rules)
    return {
        each.key: (Part("meaning", max(0.0, each.cosine or 0.0), vector), Part("share of the words", each.phrase, text))
        for each in candidates
    }


def _rrf(candidates: Sequence[Candidate], rules: Rules) -> Parts:
    """Reciprocal rank fusion: uses the ranks, not the scores."""
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
    """Return the normalised weights of vectors and keywords in the fusions `openclaw`, `copaw` and `rrf`."""
    whole = rules.vector_weight + rules.text_weight
    return (rules.vector_weight / whole, rules.text_weight / whole) if whole > 0 else (0.5, 0.5)


def typed_terms(question: str) -> list[str]:
    """Return the terms of a question as CoPaw counts them: split at spaces, without punctuation around them."""
    return [term for each in question.split() if (term := each.strip(_AROUND))] or question.split()


def phrase_score(terms: Sequence[str], phrase: str, text: str) -> float:
    """Return CoPaw's keyword score: the share of the terms in the text, plus 0.2 for the whole phrase, at most 1."""
    there = text.casefold()
    if not terms:
        return 0.0
    hits = sum(term.casefold() in there for term in terms) / len(terms)
    whole = 0.2 if len(terms) > 1 and phrase.casefold().strip(_AROUND) in there else 0.0
    return min(1.0, hits + whole)
