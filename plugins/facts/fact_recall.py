"""Which facts answer a message: found by their words at a cost of those that share one, not of all there are."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime

from plugins.api.facts.fact_settings import Formula
from plugins.api.facts.fact_values import Fact
from plugins.facts.fact_book import FactBook
from plugins.facts.scoring import RecallStats, scored
from plugins.support.text.words import sought, word_set

TINY = 1e-9
"""What adding up in another order may change."""


class Recaller:
    """The words of a book's facts. It follows the book: each fact is taken apart once."""

    def __init__(self, book: FactBook) -> None:
        self._book = book
        self._seen = -1
        self._words: dict[str, frozenset[str]] = {}
        self._having: defaultdict[str, set[str]] = defaultdict(set)

    def recall(
        self,
        message: str,
        now: datetime,
        told: Callable[[Fact], bool],
        *,
        formula: Formula = "measured",
        stale_after_days: float = 14.0,
        least: float = 0.0,
    ) -> list[RecallStats]:
        """The facts that share a word with the message, at least this part of it, and that may be `told`, best first.
        `coclaw` counts each word of the message alike, as the reference does; `measured` by how few of the facts have it
        (the idf of BM25, Robertson and Zaragoza, 2009), so that a rare word decides."""
        self.follow()
        asked = list(dict.fromkeys(sought(message)))
        weights = {word: self._weight(word) if formula == "measured" else 1.0 for word in asked}
        whole = math.fsum(weights.values())
        found = []
        for fact in (self._book.facts[each] for each in self._near(weights, least * whole)):
            words = self._words[fact.id]
            overlap = math.fsum(weights[word] for word in asked if word in words) / whole
            if overlap >= least and told(fact):
                found.append(scored(fact, overlap, now, stale_after_days))
        return sorted(found, key=lambda each: (-each.score, each.fact.created, each.fact.content, each.fact.id))

    def _near(self, weights: Mapping[str, float], least: float) -> set[str]:
        """The facts that may reach this weight. The rarest words come first: what has none of them, when all the others
        together weigh less, cannot, and the words that most facts have are not gone through."""
        left = math.fsum(weights.values())
        near: set[str] = set()
        for word in sorted(weights, key=lambda each: (-weights[each], each)):
            if left < least - TINY:
                break
            near |= self._having.get(word, set())
            left -= weights[word]
        return near

    def _weight(self, word: str) -> float:
        count, having = len(self._words), len(self._having.get(word, ()))
        return math.log(1 + (count - having + 0.5) / (having + 0.5))

    def follow(self) -> None:
        """Take apart what has come to the book since the last time."""
        if self._seen == self._book.revision:
            return
        facts = self._book.facts
        for gone in self._words.keys() - facts.keys():
            for word in self._words.pop(gone):
                self._having[word].discard(gone)
        for fresh in facts.keys() - self._words.keys():
            self._words[fresh] = words = word_set(f"{facts[fresh].content} {' '.join(_told(facts[fresh].tags))}")
            for word in words:
                self._having[word].add(fresh)
        self._seen = self._book.revision


def _told(tags: Iterable[str]) -> list[str]:
    """The tags that are words, not marks such as `ws:…`."""
    return [tag for tag in tags if ":" not in tag]
