"""English words that mean nearly the same, such as "kids" and "children": an answer seldom repeats the question's words.

The table is derived from the word embeddings of all-MiniLM-L6-v2 (`python -m benchmarks.related_words` writes it): for each
word the nearest others by cosine, after the mean was subtracted. It needs no model, no numpy and no network.
"""

from __future__ import annotations

import array
import sys
from bisect import bisect_left
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import accumulate
from pathlib import Path

from plugins.support.text.stemming import ENGLISH, porter_stem

TABLE = Path(__file__).with_name("related_words.bin")
"""Two 32-bit counts: words, and bytes of the words; the words, sorted, one on each line; for each word the number of related
ones (a byte); for each of these its number (16 bits); for each its closeness (a byte). Numbers are little-endian."""


class RelatedWords:
    """The words of a table and how closely others are related to them."""

    def __init__(self, table: bytes) -> None:
        count, size = _numbers("I", table[:8])
        begin = 8 + size
        self._words = table[8:begin].decode("ascii").split("\n")
        self._ends = array.array("I", accumulate(table[begin : begin + count]))
        pairs = self._ends[-1]
        begin += count
        self._related = _numbers("H", table[begin : begin + 2 * pairs])
        self._closeness = table[begin + 2 * pairs :]

    def of(self, word: str) -> dict[str, float]:
        """Return the words related to a lower-case word, closest first, with their closeness above 0 and up to 1."""
        at = bisect_left(self._words, word)
        if at == len(self._words) or self._words[at] != word:
            return {}
        pairs = range(self._ends[at - 1] if at else 0, self._ends[at])
        return {self._words[self._related[pair]]: self._closeness[pair] / 255 for pair in pairs}


def _numbers(kind: str, raw: bytes) -> array.array[int]:
    numbers = array.array(kind, raw)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers


@lru_cache(1)
def related_words() -> RelatedWords:
    """Load the table: 1.2 MB, kept for the next question."""
    return RelatedWords(TABLE.read_bytes())


def closeness(
    shares: Mapping[str, float],
    texts: Mapping[int, str],
    bears: Mapping[int, Iterable[tuple[str, float]]],
    language: str,
) -> dict[int, tuple[float, ...]]:
    """Return how much of the question each text has, in these or, in English, in related words.

    Args:
        shares: The words of the question and their weights, which sum to 1.
        texts: The words of each text by key, separated by spaces.
        bears: The words of the question in each text, with their weights.
        language: The language of the question.

    Returns:
        For each key and each word of the question, in order, its weight times the closeness of the text's closest word.
    """
    near = _near(shares) if language == ENGLISH else {}
    places = {term: at for at, term in enumerate(shares)}
    found = {}
    for key, text in texts.items():
        values = [0.0] * len(shares)
        for word in near.keys() & text.split():
            for at, value in near[word]:
                values[at] = max(values[at], value)
        for term, share in bears[key]:
            values[places[term]] = share
        found[key] = tuple(values)
    return found


def _near(shares: Mapping[str, float]) -> dict[str, list[tuple[int, float]]]:
    """Return each word related to words of the question: their places, and their weights times its closeness to them."""
    table = related_words()
    near: dict[str, list[tuple[int, float]]] = {}
    for at, (term, share) in enumerate(shares.items()):
        stem = porter_stem(term)
        for word, close in table.of(term).items():
            near.setdefault(word, []).append((at, share if porter_stem(word) == stem else close * share))
    return near
