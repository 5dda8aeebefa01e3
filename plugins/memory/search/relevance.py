"""Which results answer the question, and are not just the best of what there is. Pure.

The evidence of an answer is the logarithm of its odds, by logistic regression over questions that notes answer and questions
about other notes, invented words and general knowledge. See docs/memory.md, "Questions without an answer".
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence

import msgspec

from plugins.memory.search.candidates import Candidate, Ranked
from plugins.memory.search.weighted_fusion import AROUND, SECTION, TURN, between, is_code, turn_length
from plugins.support.text.words import language_in, words_in


class Evidence(msgspec.Struct, frozen=True, kw_only=True):
    """What speaks for an answer in the notes, or the weights of these parts."""

    cosine: float = 0.0
    """The largest cosine."""
    share: float
    """The largest share of the question's words in a candidate."""
    around: float
    """The largest share of them, or of related words, in a result and around it."""
    named: float
    """The share of candidates whose headings or speakers the question names."""
    unseen: float
    """The share of the question's words that no note contains; half as much in few and short notes, which have few words."""
    stranger: float
    """1 if the question names somebody or something that no note contains."""
    code: float
    """The share of results that are code, whose words are those of no question."""
    chunks: float = 0.0
    """The logarithm of the number of chunks, up to `MOST_CHUNKS`: the largest of many cosines is larger by chance."""

    def weighted(self, weights: Evidence) -> float:
        """Return the sum of the weighted parts."""
        return math.fsum(getattr(self, part) * getattr(weights, part) for part in self.__struct_fields__)


class Cut(msgspec.Struct, frozen=True, kw_only=True):
    """The weights of the evidence, and its minimum for a question that is answered."""

    weights: Evidence
    least: float


CUTS: Mapping[str, Cut] = {
    "all-minilm": Cut(
        weights=Evidence(cosine=17, share=2.3, around=0.9, named=2.5, unseen=-0.5, stranger=-2.3, code=1.5, chunks=-0.4),
        least=3.8,
    ),
}
"""With vectors, by a part of the model's name. Cosines of other models are not comparable."""

BY_WORDS = Cut(
    weights=Evidence(share=2.7, around=2.6, named=4.0, unseen=-2.4, stranger=-1.4, code=1.5),
    least=0.32,
)
"""For chunks without vectors."""

MOST_CHUNKS = 500

FEW, ENOUGH = 12_000.0, 40_000.0
"""Bytes of short notes: up to FEW, a word that none of them contains counts half; from ENOUGH on fully."""

WHOLE = 0.85
"""Share of the question's words from which on a chunk answers without other evidence, such as an identifier."""

WORDS = 0.3
"""The worth of all words of the question in one result, relative to a cosine."""

RELATIVE, RELATIVE_TO_WORD = 0.24, 0.3
"""Minimum worth of a result relative to the largest of the candidates; and if one contains a question of one word."""

_FORMS = 2
"""Search terms of one word: itself and its stem."""

AROUND_IT = 0.4
"""The worth of words around a result, relative to its own words."""

SHARE, MANY = 0.1, 3
"""The share of the question's words in a chunk without a vector, or their number, that makes it a result."""

_CAPITALISED = re.compile(r"[^\W\d_][\w-]*")
_ENDS = frozenset(".!?:")
"""The ends of sentences."""
_GERMAN = "german"  # capitalises every noun


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """The words of a question: the share that no note contains, and whether a name is among them."""

    unseen: float = 0.0
    stranger: bool = False


def asked(text: str, shares: Mapping[str, float], absent: Collection[str]) -> Asked:
    """Return what is known about the words of a question.

    Args:
        text: The question.
        shares: Its search terms with their weights, which sum to 1.
        absent: The terms that no note contains.
    """
    unseen = math.fsum(shares[term] for term in absent)
    return Asked(unseen=unseen, stranger=bool(absent) and any(map(frozenset(absent).issuperset, _names(text))))


def _names(text: str) -> list[frozenset[str]]:
    """Return the search terms of each capitalised word that is not capitalised as the first of a sentence, or as all are."""
    language = language_in(text)
    words = list(_CAPITALISED.finditer(text))
    if language == _GERMAN or all(word[0][0].isupper() for word in words):
        return []
    inside: list[str] = []
    end = 0
    for word in words:
        tail = text[end : word.start()].rstrip(" \"'“‘«(")[-1:]
        begins = tail in _ENDS or (not tail and not end)
        if word[0][0].isupper() and not begins:
            inside.append(word[0])
        end = word.end()
    return [terms for word in inside if (terms := words_in(word, language))]


def is_calibrated(model: str) -> bool:
    """Return True if the minimum evidence for vectors of this model is known."""
    return _cut(model) is not None


def _cut(model: str) -> Cut | None:
    return next((cut for part, cut in CUTS.items() if part in model.casefold()), None)


def answering(
    found: Sequence[Ranked], candidates: Sequence[Candidate], question: Asked, model: str, size: int
) -> list[Ranked]:
    """Return the results that may answer the question, in their order.

    Args:
        found: The ranked results.
        candidates: All candidates of the search.
        question: The question's words.
        model: The model of the vectors, "" without.
        size: The number of chunks in the index.
    """
    near = [each for each in candidates if each.cosine is not None]
    cut = _cut(model)
    if near and cut is None:
        return list(found)
    by_meaning = cut is not None and _is_answered(cut, found, near, question, size)
    bare = [each for each in candidates if each.cosine is None]
    by_words = _is_answered(BY_WORDS, found, bare, question, size)
    exact = any(each.bears for each in candidates)
    best = max(map(_worth, candidates), default=0.0)
    word = any(_share(each) >= WHOLE and len(each.bears) <= _FORMS for each in candidates)
    enough = best * (RELATIVE_TO_WORD if word else RELATIVE)
    return [
        each
        for each in found
        if _is_plain(each.candidate, question, exact=exact)
        or ((by_words if each.candidate.cosine is None else by_meaning) and _is_comparable(each, enough))
    ]


def _is_answered(cut: Cut, found: Sequence[Ranked], candidates: Sequence[Candidate], question: Asked, size: int) -> bool:
    """Return True if there is enough evidence in these candidates that the notes answer the question."""
    return bool(candidates) and evidence_in(found, candidates, question, size).weighted(cut.weights) >= cut.least


def evidence_in(found: Sequence[Ranked], candidates: Sequence[Candidate], question: Asked, size: int) -> Evidence:
    """Return the evidence in candidates, at least one, and the results of their ranking."""
    return Evidence(
        cosine=max(each.cosine or 0.0 for each in candidates),
        share=max(map(_share, candidates)),
        around=max(map(_around, found), default=0.0),
        named=sum(each.named for each in candidates) / len(candidates),
        unseen=question.unseen * (1 - _scarcity(candidates, size) / 2),
        stranger=float(question.stranger),
        code=sum(is_code(each.candidate.text) for each in found) / len(found) if found else 0.0,
        chunks=math.log(min(max(1, size), MOST_CHUNKS)),
    )


def _scarcity(candidates: Sequence[Candidate], size: int) -> float:
    """Return 1 if the notes are few and short, as far as candidates show, 0 if they are many or long."""
    length = turn_length(candidates, [len(each.text.encode()) for each in candidates])
    return (1 - between(length, TURN, SECTION)) * (1 - between(length * size, FEW, ENOUGH))


def _is_plain(one: Candidate, question: Asked, *, exact: bool) -> bool:
    """Return True if a chunk is from the time that the question names, or contains all of it.

    A chunk that matches keywords but contains none of the words as they are has inflected forms, whose share is unknown.
    Without other evidence they count only if no chunk has a word as it is, `exact`.
    """
    inflected = _is_inflected(one) and not exact
    return (one.dated and not question.stranger) or inflected or _share(one) >= WHOLE


def _is_inflected(one: Candidate) -> bool:
    return one.keywords > 0 and not one.bears


def _is_comparable(one: Ranked, enough: float) -> bool:
    """Return True if a result is worth enough; by words alone, some words or inflected forms of them are enough."""
    found = one.candidate
    if found.cosine is None and (_share(found) >= SHARE or len(found.bears) >= MANY or _is_inflected(found)):
        return True
    return _worth_around(one) >= enough


def _share(one: Candidate) -> float:
    return math.fsum(share for _, share in one.bears)


def _around(one: Ranked) -> float:
    return sum(part.value for part in one.parts if part.name == AROUND)


def _worth(one: Candidate) -> float:
    return (one.cosine or 0.0) + WORDS * _share(one)


def _worth_around(one: Ranked) -> float:
    return (one.candidate.cosine or 0.0) + WORDS * max(_share(one.candidate), AROUND_IT * _around(one))
