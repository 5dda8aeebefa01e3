"""An inverted index ranked by bm25 exactly like SQLite's FTS5 with its `porter` stemmer."""

from __future__ import annotations

import heapq
import math
from array import array
from collections import Counter
from collections.abc import Callable, Iterable

from plugins.support.text.stemming import porter_stem

K1, B = 1.2, 0.75
"""The constants of bm25 in FTS5 (https://www.sqlite.org/fts5.html#the_bm25_function)."""

_TIMES = 16
"""Bits of an entry that store the number of occurrences; the others store the key."""
_MOST = (1 << _TIMES) - 1

Allowed = Callable[[int], bool]
"""Returns True for the key of a text that may be found."""


class Postings:
    """An inverted index of texts by positive, unique keys."""

    def __init__(self) -> None:
        self._having: dict[str, array[int]] = {}
        self._sizes: dict[int, int] = {}
        self._total = 0

    def add(self, key: int, words: Iterable[str]) -> None:
        """Add a text as its words, repetitions included."""
        counted = _counted(words)
        for word, times in counted.items():
            self._having.setdefault(word, array("Q")).append(key << _TIMES | min(times, _MOST))
        self._sizes[key] = counted.total()
        self._total += self._sizes[key]

    def drop(self, key: int, words: Iterable[str]) -> None:
        """Remove a text; `words` are those it was added with."""
        for word, times in _counted(words).items():
            self._having[word].remove(key << _TIMES | min(times, _MOST))
            if not self._having[word]:
                del self._having[word]
        self._total -= self._sizes.pop(key)

    def has(self, word: str, allowed: Allowed) -> bool:
        """Return True if an allowed text contains a word."""
        return any(allowed(entry >> _TIMES) for entry in self._having.get(porter_stem(word), ()))

    def count(self, word: str) -> int:
        """Return the number of texts that contain a word."""
        return len(self._having.get(porter_stem(word), ()))

    def ranked(self, words: Iterable[str], limit: int, allowed: Allowed) -> dict[int, float]:
        """Return the best allowed texts that contain any of the words, with their scores (larger is better)."""
        scores: dict[int, float] = {}
        for word in words:
            entries = self._having.get(porter_stem(word), ())
            weight = inverse_frequency(len(self._sizes), len(entries))
            average = self._total / max(1, len(self._sizes))
            for entry in entries:
                key, times = entry >> _TIMES, entry & _MOST
                scores[key] = scores.get(key, 0.0) + weight * saturated(times, self._sizes[key] / average)
        return best({key: score for key, score in scores.items() if allowed(key)}, limit)


def inverse_frequency(texts: int, having: int) -> float:
    """Return the inverse document frequency of a word."""
    return max(1e-6, math.log((texts - having + 0.5) / (having + 0.5)))


def saturated(times: float, length: float) -> float:
    """Return the term frequency part of bm25; `length` is the text's length relative to the average."""
    return times * (K1 + 1) / (times + K1 * (1 - B + B * length))


def best(scores: dict[int, float], limit: int) -> dict[int, float]:
    """Return the largest scores in descending order, equal ones by key."""
    return dict(heapq.nsmallest(limit, scores.items(), key=lambda each: (-each[1], each[0])))


def _counted(words: Iterable[str]) -> Counter[str]:
    return Counter(map(porter_stem, words))
