"""What is ranked, and by which rules: frozen values that the index and the configuration fill in."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import msgspec

from plugins.api.memory_settings import Fusion
from plugins.support.text.words import word_set


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that one of the legs found, or that stands beside one.

    `keywords` is the negated bm25 (larger is better, 0 for no match), `phrase` CoPaw's score of the words (for its fusion
    alone), `cosine` is None where no vector is known. `covered` is the share of the question's words that it has, and 0.2
    more for all of them in a row; it is worked out for results alone. `bears` are the words of the question that it has,
    each with the share of the question that it is worth: all of them together are 1. Keys that follow each other in one
    `note` stand beside each other in it. `named` says that the question has a word of its heading or the name of who speaks
    in it, `dated` that it was written at the time that the question names, `asks` that it ends as a question. `day` is None
    for what never grows old. `pieces` are the words of the text with those of its headings, a space between them, as the
    index has them; `names` are the latter."""

    key: int
    note: str = ""
    text: str = ""
    keywords: float = 0.0
    phrase: float = 0.0
    covered: float = 0.0
    cosine: float | None = None
    bears: frozenset[tuple[str, float]] = frozenset()
    named: bool = False
    dated: bool = False
    asks: bool = False
    day: date | None = None
    pieces: str = ""
    names: frozenset[str] = frozenset()

    def words(self) -> frozenset[str]:
        """The words of the text, for comparing it with another."""
        return frozenset(self.pieces.split()) - self.names if self.pieces else word_set(self.text)


class Part(msgspec.Struct, frozen=True):
    """A part of a score: what was found and how much that counts."""

    name: str
    value: float
    weight: float

    @property
    def worth(self) -> float:
        """What it adds to the score."""
        return self.value * self.weight


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its score: `fused`, the sum of the parts, times what age leaves of it."""

    candidate: Candidate
    parts: tuple[Part, ...] = ()
    fused: float = 0.0
    decay: float = 1.0

    @property
    def score(self) -> float:
        """The score."""
        return self.fused * self.decay


def ranked(candidate: Candidate, parts: tuple[Part, ...], decay: float = 1.0) -> Ranked:
    """A candidate with the sum of its parts."""
    return Ranked(candidate=candidate, parts=parts, fused=sum([part.value * part.weight for part in parts]), decay=decay)


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """How to rank. `min_score` is compared with the fused score. `half_life_days` None switches decay off; of a score that
    is infinitely old `1 - decay_share` is left. `mmr_lambda` None switches the search for diversity off. `meaning` is how
    much vectors count in the fusion "measured": 1 as much as those of the bundled model."""

    results: int = 6
    fusion: Fusion = "measured"
    vector_weight: float = 0.7
    text_weight: float = 0.3
    meaning: float = 1.0
    min_score: float = 0.0
    half_life_days: float | None = 30.0
    decay_share: float = 1.0
    mmr_lambda: float | None = 0.7


def min_max(values: Sequence[float]) -> list[float]:
    """The values between 0 (the least) and 1 (the largest); all the same are 1 if they are positive, else 0."""
    if not values:
        return []
    low, high = min(values), max(values)
    if high <= low:
        return [1.0 if high > 0 else 0.0] * len(values)
    return [(value - low) / (high - low) for value in values]
