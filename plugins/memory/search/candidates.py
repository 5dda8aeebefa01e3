"""Search candidates and ranking rules, as frozen values."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import msgspec

from plugins.api.memory_settings import Fusion
from plugins.support.text.words import word_set


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk found by keywords or vector, or a neighbour of one.

    `keywords` is the negated bm25 (larger is better, 0 for no match), `phrase` CoPaw's keyword score (for its fusion only),
    and `cosine` None if there is no vector. `covered` is the share of the question's words in the chunk, plus 0.2 for the
    whole phrase; it is computed for results only. `bears` are the question's words in the chunk with their weights, which
    sum to 1 over all words of the question; `closest` has for each word of the question its weight times the closeness of
    the chunk's closest word. Consecutive keys in one `note` are neighbours. `named` is True if the question has a word of
    the headings or a speaker's name, `dated` if the chunk is from the period the question mentions, `timed` if the question
    asks for a time and the chunk contains one. `turns` is the number of lines that begin with a speaker, `asks` that of
    question marks if it ends with one. `day` is None for chunks that do not age. `pieces` are the indexed words of text and
    headings, separated by spaces; `names` are those of the headings.
    """

    key: int
    note: str = ""
    text: str = ""
    keywords: float = 0.0
    phrase: float = 0.0
    covered: float = 0.0
    cosine: float | None = None
    bears: frozenset[tuple[str, float]] = frozenset()
    closest: tuple[float, ...] = ()
    named: bool = False
    dated: bool = False
    timed: bool = False
    turns: int = 0
    asks: int = 0
    day: date | None = None
    pieces: str = ""
    names: frozenset[str] = frozenset()

    def words(self) -> frozenset[str]:
        """Return the words of the text, for comparison with another text."""
        return frozenset(self.pieces.split()) - self.names if self.pieces else word_set(self.text)


class Part(msgspec.Struct, frozen=True):
    """A part of a score: a value and its weight."""

    name: str
    value: float
    weight: float

    @property
    def worth(self) -> float:
        """The contribution to the score."""
        return self.value * self.weight


class Ranked(msgspec.Struct, frozen=True, kw_only=True):
    """A candidate with its score: `fused`, the sum of the parts, times the age factor."""

    candidate: Candidate
    parts: tuple[Part, ...] = ()
    fused: float = 0.0
    decay: float = 1.0

    @property
    def score(self) -> float:
        """The fused score times the age factor."""
        return self.fused * self.decay


def ranked(candidate: Candidate, parts: tuple[Part, ...], decay: float = 1.0) -> Ranked:
    """Return a candidate with the sum of its parts."""
    return Ranked(candidate=candidate, parts=parts, fused=sum([part.value * part.weight for part in parts]), decay=decay)


class Rules(msgspec.Struct, frozen=True, kw_only=True):
    """The ranking rules.

    `min_score` applies to the fused score. `half_life_days` None disables decay; a score never decays below `1 -
    decay_share` of its value. `mmr_lambda` None disables diversity. `meaning` is the weight of vectors in the fusion
    "measured", 1 for the bundled model.
    """

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
    """Scale values linearly to 0–1. Equal values become 1 if positive, else 0."""
    if not values:
        return []
    low, high = min(values), max(values)
    if high <= low:
        return [1.0 if high > 0 else 0.0] * len(values)
    return [(value - low) / (high - low) for value in values]
