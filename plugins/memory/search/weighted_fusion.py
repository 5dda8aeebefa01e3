"""The fusion "measured": a weighted sum of the chunk's own scores, its surroundings, and what the question mentions. Pure.

Each part is between 0 and 1. What a part is worth depends on the length of the texts: the vector and the words of a short
turn of a conversation say little, and what is around it says much; a section of a document stands for itself. The weights
were found by a search over questions about conversations, documentation, code and encyclopedia articles together, and
rounded; see docs/memory.md, "How a search ranks".
"""

from __future__ import annotations

import math
import operator
from collections.abc import Mapping, Sequence

from plugins.memory.search.candidates import Candidate, Part, Rules, min_max

# In the order in which `measured` computes them: the weights among turns, and among sections.
WEIGHTS: Mapping[str, tuple[float, float]] = {
    # Its own vector, on a scale from the worst of the candidates to the best.
    "meaning": (3.0, 10.0),
    # Its own bm25, on a scale up to the best, times the largest part of the question that any candidate has.
    "words": (5.0, 5.5),
    # How much of the question it and the chunks around it have, less with each step away, also in related words: an answer
    # does not repeat the question's words.
    "words around it": (10.0, 0.3),
    # The mean meaning of the two chunks before it, itself and the one after.
    "meaning around it": (7.0, 1.5),
    # How much of the question the chunk before it has, if that asks something.
    "answers": (4.0, 0.0),
    # That of its note's best chunk, by its own meaning and words: the note is about the question.
    "its note": (3.5, 7.0),
    "named": (4.3, 0.0),
    # A long turn tells more than a short one.
    "length": (3.4, 0.0),
    "dated": (4.5, 3.0),
    # A question when something was is answered by a turn that contains a time.
    "tells when": (3.4, 0.0),
    # A question answers nothing, and a list of questions, such as the contents of an FAQ, even less.
    "states": (1.5, 6.0),
}

MEANING, AROUND, MEANING_AROUND, NOTE = "meaning", "words around it", "meaning around it", "its note"

TURN, SECTION = 150.0, 256.0
"""Median length in bytes of candidates or of turns in them: up to TURN they count as turns, from SECTION as sections."""

_SYMBOLS, _CODE = "(){}[]=_;<>$\\", 0.02
"""Symbols of programs, and their minimum share of the characters of code. A function stands for itself, however short."""

SHORTEST, LONGEST = 64.0, 1024.0
"""Bytes of a text: up to SHORTEST its part for length is 0, from LONGEST it is 1."""

QUESTIONS = 6
"""The number of question marks that makes a text a list of questions, which answers nothing."""

CHANCE, AGREEMENT = 0.2, 0.33
"""Correlation of cosines with the question's words: up to CHANCE vectors do not count, from AGREEMENT they count fully."""

FADING = 0.8
"""What the question's words are worth in the next chunk, relative to this one; and again for each further step."""

_NEIGHBOURS = (-2, -1, 1)
"""Distances of the chunks whose meaning counts for "meaning around it"."""

LEAST = 0.25
"""Minimum weight of keywords besides vectors, even if no candidate has an exact match: one may have an inflected form."""

BUNDLED = 41.95

_UNRELATED: Mapping[str, float] = {"all-minilm": 0.14}
"""Cosine up to which a model rates unrelated texts.

For the bundled model: CoPaw's examples without common words have at least 0.144, and recall@10 on LoCoMo does not change
without what is below. It is only a lower bound: made-up words reach 0.25 with some notes.
"""

_RETRIEVAL: Mapping[str, float] = {
    "all-minilm": BUNDLED,
    "all-mpnet-base-v2": 43.8,
    "bge-large-en": 54.3,
    "mistral-embed": 55.3,
    "multilingual-e5-small": 46.6,
    "mxbai-embed-large": 54.4,
    "nomic-embed-text": 53.0,
    "text-embedding-3-large": 55.4,
    "text-embedding-3-small": 51.1,
    "text-embedding-ada-002": 49.3,
}


def unrelated_up_to(model: str) -> float:
    """Return the cosine up to which texts are unrelated, by a part of the model's name."""
    return next((cosine for part, cosine in _UNRELATED.items() if part in model.casefold()), 0.0)


def meaning_of(model: str) -> float:
    """Return the weight of a model's vectors relative to the bundled one, by a part of the model's name."""
    name = model.casefold()
    known = [part for part in _RETRIEVAL if part in name]
    return _RETRIEVAL[max(known, key=len)] / BUNDLED if known else 1.0


def measured(candidates: Sequence[Candidate], rules: Rules) -> dict[int, tuple[Part, ...]]:
    """Return the parts of each candidate's score by key; the weights sum to 1.

    A chunk without a vector gets the lowest cosine; without any vectors only words count.
    """
    if not candidates:
        return {}
    cosines = [each.cosine for each in candidates if each.cosine is not None]
    worst = min(cosines, default=0.0)
    meant = [worst if each.cosine is None else each.cosine for each in candidates]
    shares = [min(1.0, math.fsum(share for _, share in each.bears)) for each in candidates]
    # If even the best candidate has few of the question's words, as in another language, chance matches must count less.
    most = max(shares)
    trust = min(1.0, max(LEAST, most)) if cosines else 1.0
    # If many words match and vectors disagree, as in a language that the model does not know, vectors must count less.
    vectors = 1 - most * (1 - _agreement(meant, shares)) if cosines else 0.0
    lengths = [len(each.text.encode()) for each in candidates]
    weights = _weights(rules.meaning if cosines else 0.0, vectors, between(turn_length(candidates, lengths), TURN, SECTION))
    largest = max(each.keywords for each in candidates) or 1.0
    meaning = {each.key: value for each, value in zip(candidates, min_max(meant), strict=True)}
    words = {each.key: trust * each.keywords / largest for each in candidates}
    relied = vectors * rules.meaning
    notes = _notes(candidates, {key: (relied * meaning[key] + words[key]) / (1 + relied) for key in words})
    there = {each.key: each for each in candidates}
    around = _around(there)
    meant_around = _meant_around(there, meaning)
    known = [(name, at, weights[name]) for at, name in enumerate(WEIGHTS) if name in weights]
    parts = {}
    for each, length in zip(candidates, lengths, strict=True):
        values = (
            meaning[each.key],
            words[each.key],
            around[each.key],
            meant_around[each.key],
            _share_of_question_before(there, each),
            notes[each.note],
            float(each.named),
            between(length, SHORTEST, LONGEST),
            float(each.dated),
            float(each.timed),
            1 - min(each.asks, QUESTIONS) / QUESTIONS,
        )
        parts[each.key] = tuple([Part(name, values[at], weight) for name, at, weight in known])
    return parts


def turn_length(candidates: Sequence[Candidate], lengths: Sequence[int]) -> float:
    """Return the median length of a turn in bytes, where a chunk without speakers counts as one, and code as a section."""
    turns = sorted([_turn_length(each, length) for each, length in zip(candidates, lengths, strict=True)])
    half = len(turns) // 2
    return turns[half] if len(turns) % 2 else (turns[half - 1] + turns[half]) / 2  # `statistics` takes long to import


def _turn_length(one: Candidate, length: int) -> float:
    turn = length / max(1, one.turns)
    return SECTION if turn < SECTION and is_code(one.text) else turn


def is_code(text: str) -> bool:
    """Return True if a text has as many symbols as a program."""
    return sum(map(text.count, _SYMBOLS)) > _CODE * len(text)


def _weights(meaning: float, vectors: float, sections: float) -> dict[str, float]:
    """Return the weights, normalised.

    Args:
        meaning: The weight of the model's vectors relative to the bundled model; 0 without vectors.
        vectors: How far vectors are trusted for this question.
        sections: 0 if the candidates are turns, 1 if they are sections.
    """
    told = {name: turn + (section - turn) * sections for name, (turn, section) in WEIGHTS.items()}
    for part in (MEANING, MEANING_AROUND):
        told[part] *= meaning * vectors
        if not meaning:
            del told[part]
    told[NOTE] *= (1 + min(1.0, meaning * vectors)) / 2  # without vectors it is made of words alone
    whole = sum(told.values())
    return {name: weight / whole for name, weight in told.items()}


def _agreement(cosines: Sequence[float], shares: Sequence[float]) -> float:
    """Return how far cosines agree with the shares of the question's words, from 0 to 1.

    A correlation that is large enough within its standard error is full agreement.
    """
    count = len(cosines)
    mean, half = math.fsum(cosines) / count, math.fsum(shares) / count
    near, worded = [value - mean for value in cosines], [value - half for value in shares]
    spread = math.sqrt(_dot(near, near) * _dot(worded, worded))
    if not spread > 0:
        return 1.0
    correlation = _dot(near, worded) / spread + 1 / math.sqrt(count)
    return min(1.0, max(0.0, (correlation - CHANCE) / (AGREEMENT - CHANCE)))


def _dot(one: Sequence[float], other: Sequence[float]) -> float:
    return math.fsum(map(operator.mul, one, other))


def between(length: float, low: float, high: float) -> float:
    """Return where a length is between two others on a logarithmic scale, from 0 to 1."""
    return min(1.0, max(0.0, math.log(max(length, 1.0) / low) / math.log(high / low)))


def _notes(candidates: Sequence[Candidate], own: Mapping[int, float]) -> dict[str, float]:
    """Return the score of each note's best chunk."""
    best: dict[str, float] = {}
    for each in candidates:
        best[each.note] = max(own[each.key], best.get(each.note, 0.0))
    return best


def _around(there: Mapping[int, Candidate]) -> dict[int, float]:
    """Return the share of the question's words, or of related ones, in each candidate and those around it, by key.

    A word counts `FADING` to the power of its distance in chunks, where it is closest.
    """
    upwards, downwards = _faded(there, -1), _faded(there, 1)
    return {key: min(1.0, math.fsum(map(max, upwards[key], downwards[key]))) for key in there}


def _faded(there: Mapping[int, Candidate], towards: int) -> dict[int, Sequence[float]]:
    """Return for each candidate the closeness of each word in it, or in those on one side of it, which count less."""
    found: dict[int, Sequence[float]] = {}
    for key in sorted(there, reverse=towards > 0):
        one = there[key]
        if _beside(there, one, towards):
            found[key] = [max(own, FADING * other) for own, other in zip(one.closest, found[key + towards], strict=True)]
        else:
            found[key] = one.closest
    return found


def _meant_around(there: Mapping[int, Candidate], meaning: Mapping[int, float]) -> dict[int, float]:
    """Return the mean `meaning` of each candidate and its neighbours, by key."""
    found = {}
    for key, each in there.items():
        near = [key, *(key + away for away in _NEIGHBOURS if _beside(there, each, away))]
        found[key] = sum([meaning[other] for other in near]) / len(near)
    return found


def _share_of_question_before(there: Mapping[int, Candidate], one: Candidate) -> float:
    """Return how much of the question the chunk before a candidate has, if that asks something, else 0."""
    if not _beside(there, one, -1) or not there[one.key - 1].asks:
        return 0.0
    return min(1.0, math.fsum(there[one.key - 1].closest))


def _beside(there: Mapping[int, Candidate], one: Candidate, away: int) -> bool:
    """Return True if a candidate at this distance is in the same note."""
    other = there.get(one.key + away)
    return other is not None and other.note == one.note
