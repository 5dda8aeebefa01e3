"""Which results answer the question, and are not just the best of what there is. Pure.

Calibrated with the bundled model on 1,800 questions that notes answer and 1,200 that they do not: questions about other
notes, invented words, and words that the notes do not contain. By logistic regression the log-odds that there is an answer
are 27 × cosine + 8 × share − 14, with the largest cosine and the largest share of the question's words among the candidates;
so the evidence is cosine + 0.3 × share. Its minimum grows with the number of chunks, because the largest of many cosines is
larger by chance.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from plugins.memory.search.candidates import Candidate, Ranked
from plugins.memory.search.weighted_fusion import AROUND

LEAST: Mapping[str, tuple[float, float, float]] = {"all-minilm": (0.08, 0.055, 0.42)}
"""Minimum evidence of an answer by a part of the model's name: for one chunk, its growth with the logarithm of their number,
and the largest minimum. Cosines of other models are not comparable."""

WORDS = 0.3
"""The evidence of all words of the question together."""

COVERED = 0.6
"""Share of the question's words from which on a chunk answers without any likeness, such as an identifier."""

RELATIVE = 0.3
"""Minimum evidence of a result relative to the largest of the candidates."""

AROUND_IT = 0.4
"""The weight of words around a result, relative to its own words."""

SHARE, MANY = 0.15, 3
"""The minimum share of the question's words in a chunk without a vector, or their number, since messages may be long.

Together with inflected forms, nothing is found for 43 % of the questions without an answer.
"""


def is_calibrated(model: str) -> bool:
    """Return True if the minimum evidence for vectors of this model is known."""
    return _least(model) is not None


def _least(model: str) -> tuple[float, float, float] | None:
    return next((known for part, known in LEAST.items() if part in model.casefold()), None)


def answering(found: Sequence[Ranked], candidates: Sequence[Candidate], model: str, size: int) -> list[Ranked]:
    """Return the results that may answer the question, in their order.

    Args:
        found: The ranked results.
        candidates: All candidates of the search.
        model: The model of the vectors, "" without.
        size: The number of chunks in the index.
    """
    vectors = [each.cosine for each in candidates if each.cosine is not None]
    known = _least(model)
    if vectors and known is None:
        return list(found)
    exact = any(each.bears for each in candidates)
    plain = {each.key for each in candidates if _is_plain(each, exact=exact)}
    evidence = max(vectors, default=0.0) + WORDS * max((_share(each) for each in candidates), default=0.0)
    least = min(known[0] + known[1] * math.log(size), known[2]) if known and vectors else math.inf
    if evidence < least and not plain:
        return []
    return [
        each
        for each in found
        if each.candidate.key in plain
        or ((evidence >= least or each.candidate.cosine is None) and _evidence(each) >= RELATIVE * evidence)
    ]


def _is_plain(one: Candidate, *, exact: bool) -> bool:
    """Return True if a chunk is from the time that the question names, or contains enough of its words.

    A chunk that matches keywords but contains none of the words as they are has inflected forms, whose share is unknown.
    With a vector they count only if no chunk has a word as it is, `exact`.
    """
    share, inflected = _share(one), one.keywords > 0 and not one.bears
    if one.cosine is None:
        return one.dated or inflected or share >= SHARE or len(one.bears) >= MANY
    return one.dated or (inflected and not exact) or share >= COVERED


def _share(one: Candidate) -> float:
    return sum(sorted(share for _, share in one.bears))


def _evidence(one: Ranked) -> float:
    around = sum(part.value for part in one.parts if part.name == AROUND)
    return (one.candidate.cosine or 0.0) + WORDS * max(_share(one.candidate), AROUND_IT * around)
