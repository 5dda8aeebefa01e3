"""The fusion "measured": what a chunk says, what stands around it, and what the question names. Pure.

Each part lies between 0 and 1, and the weights are those of the table below. They were fitted to conversations of LoCoMo (a
softmax over the candidates of each question, large weights at a price) and rounded. Not much hangs on them: weights fitted
without a conversation rank it as well, and with all of them alike little is lost; docs/memory.md, "How well it finds".
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from plugins.memory.search.candidates import Candidate, Part, Rules, min_max

# In the order in which `measured` works them out.
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
"""What the words count at least beside vectors, though no candidate has any as it is written: it may have another form."""

BEST = 3
"""How many of a note's chunks speak for it."""

BUNDLED = 41.95

_UNRELATED: Mapping[str, float] = {"all-minilm": 0.14}
"""Up to which cosine a model puts what has nothing to do with each other. Of the bundled one: CoPaw's examples, which share
no word, have 0.144 and more wherever they stand, and recall@10 of LoCoMo's questions is the same without what is below.
It is no more than that: made-up words come as near as 0.25 to some notes."""

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
    """The cosine up to which texts have nothing in common by a model, which is known by a part of its name."""
    return next((cosine for part, cosine in _UNRELATED.items() if part in model.casefold()), 0.0)


def meaning_of(model: str) -> float:
    """What the vectors of a model count: 1 as much as those of the bundled one. It is known by a part of its name."""
    name = model.casefold()
    known = [part for part in _RETRIEVAL if part in name]
    return _RETRIEVAL[max(known, key=len)] / BUNDLED if known else 1.0


def measured(candidates: Sequence[Candidate], rules: Rules) -> dict[int, tuple[Part, ...]]:
    """The parts of each candidate's score by its key; the weights are together 1. What has no vector yet is taken for the
    worst of those that have one; where none has, only words count."""
    cosines = [each.cosine for each in candidates if each.cosine is not None]
    weights = _weights(rules.meaning if cosines else 0.0)
    worst = min(cosines, default=0.0)
    meaning = dict(_scaled(candidates, [worst if each.cosine is None else each.cosine for each in candidates]))
    # Where even the best has little of the question, as in another language, a word found by chance must not count as much.
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
    """The weights, together 1, where vectors count so much; without those that count nothing."""
    told = {name: weight * (meaning if name.startswith("meaning") else 1.0) for name, weight in WEIGHTS.items()}
    whole = sum(told.values())
    return {name: weight / whole for name, weight in told.items() if weight > 0}


def _scaled(candidates: Sequence[Candidate], values: Sequence[float]) -> zip[tuple[int, float]]:
    return zip((each.key for each in candidates), min_max(values), strict=True)


def _notes(candidates: Sequence[Candidate], own: Mapping[int, float]) -> dict[str, float]:
    """How well each note's best chunks answer by themselves; of a note with fewer chunks, the mean of all it has."""
    scores: dict[str, list[float]] = {}
    for each in candidates:
        scores.setdefault(each.note, []).append(own[each.key])
    best = {note: sorted(each, reverse=True)[:BEST] for note, each in scores.items()}
    return {note: sum(each) / len(each) for note, each in best.items()}


def _around(candidates: Sequence[Candidate]) -> dict[int, float]:
    """How much of the question each candidate has together with what stands beside it, by their keys."""
    there = {each.key: each for each in candidates}
    # One bit for each word of the question, since there are few, and many candidates.
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
    """Whether a candidate stands so far from this one, in the same note."""
    other = there.get(one.key + away)
    return other is not None and other.note == one.note
