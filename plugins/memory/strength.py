"""How much the vectors of a model count in the fusion "measured", compared with the bundled one. Pure.

Of the bundled model the weight was measured (docs/memory.md). Of others it is reckoned from how much better they find by
themselves: the mean nDCG@10 of MTEB's fifteen English retrieval tasks (Muennighoff and others, EACL 2023), as their makers
or the leaderboard tell it. A model that is not known counts as the bundled one; `memory.search.meaning` says otherwise.
"""

from __future__ import annotations

from collections.abc import Mapping

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
