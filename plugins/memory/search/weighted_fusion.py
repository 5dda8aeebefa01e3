"""The fusion "measured": a weighted sum of the chunk's own scores, its surroundings, and what the question mentions. Pure.

Each part is between 0 and 1. The weights were fitted to conversations of LoCoMo (a regularised softmax over the candidates
of each question) and rounded. They are not critical: weights fitted without a conversation rank it as well, and equal
weights lose little; see docs/memory.md, "How well it finds".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plugins.memory.search.candidates import Candidate, Part, Rules, min_max

# In the order in which `measured` computes them.
WEIGHTS: Mapping[str, float] = {
    # Its own vector, on a scale from the worst of the candidates to the best.
    "meaning": 1.0,
    # The vector of the chunk behind it: what is talked about goes on.
    "meaning after it": 0.5,
    # Its own bm25, on such a scale, times the largest part of the question that any candidate has.
    "words": 1.2,
    # How much of the question it has together with the two chunks before it and the one after: an answer does not repeat
    # the question's words.
    "words around it": 2.0,
    # The mean of its note's three best chunks, by their own meaning and words: the note is about the question.
    "its note": 1.5,
    "named": 1.2,
    "dated": 1.2,
    # A question answers nothing.
    "states": 0.4,
}

BEHIND, AHEAD = 2, 1
"""How many chunks before and after one are looked at for the question's words."""

_NEIGHBOURS = tuple(away for away in range(-BEHIND, AHEAD + 1) if away)

LEAST = 0.25
"""Minimum weight of keywords besides vectors, even if no candidate has an exact match: inflected forms may."""

BEST = 3
"""Number of a note's best chunks that its score is based on."""

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
    cosines = [each.cosine for each in candidates if each.cosine is not None]
    weights = _weights(rules.meaning if cosines else 0.0)
    worst = min(cosines, default=0.0)
    meaning = dict(_scaled(candidates, [worst if each.cosine is None else each.cosine for each in candidates]))
    # If even the best candidate has few of the question's words, as in another language, chance matches must count less.
    most = max((sum(sorted(share for _, share in each.bears)) for each in candidates), default=0.0) if cosines else 1.0
    trust = min(1.0, max(LEAST, most))
    words = {key: trust * value for key, value in _scaled(candidates, [each.keywords for each in candidates])}
    own = {key: (meaning[key] + words[key]) / 2 if cosines else words[key] for key in words}
    notes = _notes(candidates, own)
    around = _around(candidates)
    there = {each.key: each for each in candidates}
    known = [(name, at, weights[name]) for at, name in enumerate(WEIGHTS) if name in weights]
    parts = {}
    for each in candidates:
        values = (
            meaning[each.key],
            meaning[each.key + 1] if _beside(there, each, 1) else 0.0,
            words[each.key],
            around[each.key],
            notes[each.note],
            float(each.named),
            float(each.dated),
            float(not each.asks),
        )
        parts[each.key] = tuple([Part(name, values[at], weight) for name, at, weight in known])
    return parts


def _weights(meaning: float) -> dict[str, float]:
    """Return the weights for this weight of vectors, normalised and without zeros."""
    told = {name: weight * (meaning if name.startswith("meaning") else 1.0) for name, weight in WEIGHTS.items()}
    whole = sum(told.values())
    return {name: weight / whole for name, weight in told.items() if weight > 0}


def _scaled(candidates: Sequence[Candidate], values: Sequence[float]) -> zip[tuple[int, float]]:
    return zip((each.key for each in candidates), min_max(values), strict=True)


def _notes(candidates: Sequence[Candidate], own: Mapping[int, float]) -> dict[str, float]:
    """Return the mean score of each note's best chunks."""
    scores: dict[str, list[float]] = {}
    for each in candidates:
        scores.setdefault(each.note, []).append(own[each.key])
    best = {note: sorted(each, reverse=True)[:BEST] for note, each in scores.items()}
    return {note: sum(each) / len(each) for note, each in best.items()}


def _around(candidates: Sequence[Candidate]) -> dict[int, float]:
    """Return the share of the question's words in each candidate and its neighbours, by key."""
    there = {each.key: each for each in candidates}
    # Bit sets: there are few words and many candidates.
    bits = {word: 1 << at for at, word in enumerate({word for each in candidates for word in each.bears})}
    has = {each.key: sum([bits[word] for word in each.bears]) for each in candidates}
    worth: dict[int, float] = {}
    found = {}
    for each in candidates:
        together = has[each.key]
        for away in _NEIGHBOURS:
            if _beside(there, each, away):
                together |= has[each.key + away]
        if together not in worth:
            worth[together] = min(1.0, sum(sorted(share for (_, share), bit in bits.items() if bit & together)))
        found[each.key] = worth[together]
    return found


def _beside(there: Mapping[int, Candidate], one: Candidate, away: int) -> bool:
    """Return True if a candidate at this distance is in the same note."""
    other = there.get(one.key + away)
    return other is not None and other.note == one.note
