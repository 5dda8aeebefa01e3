"""Recall of facts: retrieval by the words of a message, and selection of those that are added to the message.

The cost of retrieval grows with the facts that share a word, not with all facts.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Set
from datetime import datetime

from plugins.api.fact_values import Fact
from plugins.api.memory_settings import Formula
from plugins.facts.fact_book import FactBook
from plugins.facts.fact_log import DOCUMENT, fact_digest
from plugins.facts.scoring import RecallStats, equivalent_facts, score_fact
from plugins.support.fencing import harmless
from plugins.support.text.words import sought, word_set
from sessions.events.events import RecalledHit
from sessions.events.tokens import estimate

EPSILON = 1e-9
"""Tolerance for rounding errors of sums in a different order."""

COVERED = 0.34
"""Minimum share of the message's weight that a fact must match."""

MOST = 8
"""Maximum facts per message."""

FRAME = 20
"""Tokens of the line above a fact."""


class Recaller:
    """An inverted index over the words of a book's facts, updated incrementally."""

    def __init__(self, book: FactBook) -> None:
        self._book = book
        self._seen = -1
        self._words: dict[str, frozenset[str]] = {}
        self._text_seqs: dict[str, int] = {}
        """By fact, the sequence number of the event with the indexed text."""
        self._having: defaultdict[str, set[str]] = defaultdict(set)

    def recall(
        self,
        message: str,
        now: datetime,
        recallable: Callable[[Fact], bool],
        *,
        formula: Formula = "measured",
        stale_after_days: float = 14.0,
        least: float = 0.0,
    ) -> list[RecallStats]:
        """Return the facts that share words with a message, best first.

        `coclaw` weights all words of the message equally, like the reference implementation; `measured` weights them by
        their rarity among the facts (the idf of BM25, Robertson and Zaragoza, 2009).

        Args:
            message: The text to match.
            now: The current time, for ageing.
            recallable: Returns True for facts that may be recalled.
            formula: How words are weighted.
            stale_after_days: Days without use after which a fact scores less.
            least: Minimum share, from 0 to 1, of the message's weight that a fact must match.
        """
        self.update()
        asked = list(dict.fromkeys(sought(message)))
        weights = {word: self._weight(word) if formula == "measured" else 1.0 for word in asked}
        total = math.fsum(weights.values())
        found = []
        for fact in (self._book.facts[each] for each in self._near(weights, least * total)):
            words = self._words[fact.id]
            overlap = math.fsum(weights[word] for word in asked if word in words) / total
            if overlap >= least and recallable(fact):
                found.append(score_fact(fact, overlap, now, stale_after_days))
        return sorted(found, key=lambda each: (-each.score, each.fact.created, each.fact.content, each.fact.id))

    def _near(self, weights: Mapping[str, float], least: float) -> set[str]:
        """Return the facts that can reach this weight.

        Words are processed from the rarest on: facts without any of the rare words cannot reach it once the remaining words
        together weigh less, so the postings of common words are skipped.
        """
        left = math.fsum(weights.values())
        near: set[str] = set()
        for word in sorted(weights, key=lambda each: (-weights[each], each)):
            if left < least - EPSILON:
                break
            near |= self._having.get(word, set())
            left -= weights[word]
        return near

    def _weight(self, word: str) -> float:
        count, having = len(self._words), len(self._having.get(word, ()))
        return math.log(1 + (count - having + 0.5) / (having + 0.5))

    def update(self) -> None:
        """Index the facts added to the book, or edited, since the last call."""
        if self._seen == self._book.revision:
            return
        facts, text_seq = self._book.facts, self._book.text_seq
        for gone in [each for each in self._words if each not in facts or text_seq(each) != self._text_seqs[each]]:
            del self._text_seqs[gone]
            for word in self._words.pop(gone):
                self._having[word].discard(gone)
        for fresh in facts.keys() - self._words.keys():
            self._text_seqs[fresh] = text_seq(fresh)
            self._words[fresh] = words = word_set(f"{facts[fresh].content} {' '.join(_words_of(facts[fresh].tags))}")
            for word in words:
                self._having[word].add(fresh)
        self._seen = self._book.revision


def _words_of(tags: Iterable[str]) -> list[str]:
    """Return the tags that are words, without markers such as `ws:…`."""
    return [tag for tag in tags if ":" not in tag]


# --- selection ----------------------------------------------------------------------------------------------------------


def select_facts(
    found: Iterable[RecallStats], *, tokens: int, known: Set[str], line: Callable[[Fact], int]
) -> tuple[RecalledHit, ...]:
    """Select relevant facts that the model does not know yet, without repetitions, within a token budget.

    Args:
        found: Recalled facts, best first.
        tokens: Maximum estimated tokens.
        known: Digests of facts that the model was already shown.
        line: Returns the line of a fact's current text in its log.
    """
    hits: list[RecalledHit] = []
    selected: list[Fact] = []
    for each in found:
        text = harmless(each.fact.content)
        size = FRAME + estimate(text)
        if len(hits) == MOST or size > tokens:
            break
        digest = fact_digest(each.fact, line(each.fact))
        if each.overlap >= COVERED and digest not in known and not equivalent_facts(each.fact.content, selected):
            tokens -= size
            selected.append(each.fact)
            hits.append(_hit(each, digest, text, line(each.fact)))
    return tuple(hits)


def _hit(recalled: RecallStats, digest: str, text: str, line: int) -> RecalledHit:
    fact = recalled.fact
    return RecalledHit(
        path=DOCUMENT,
        lines=(line, line),
        digest=digest,
        text=text,
        score=round(recalled.score, 4),
        headings=(f"{fact.type}, {fact.created[:10]}",),
    )
