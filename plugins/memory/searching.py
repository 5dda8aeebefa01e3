"""One search of the memory: candidates of both legs, ranked, with what each score is made of."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

import msgspec

from plugins.memory.chunks import Chunk
from plugins.memory.index import Identity, MemoryIndex
from plugins.memory.ranking import Candidate, Ranked, Rules, phrase_score, rank
from plugins.memory.scope import EVERYTHING, Scope
from plugins.memory.settings import SearchKeys
from plugins.memory.words import sought, word_set

MOST_CANDIDATES = 200
"""Candidates of each leg at most."""


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What is looked for, and where: words, and their vector where a model made one."""

    text: str
    scope: Scope = EVERYTHING
    by_words: bool = True
    identity: Identity | None = None
    vector: Sequence[float] | None = None


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A chunk that was found."""

    chunk: Chunk
    ranked: Ranked

    @property
    def citation(self) -> str:
        """Where it stands: `memory/2026-11-21.md#L3-L7`."""
        return f"{self.chunk.path}#L{self.chunk.first}-L{self.chunk.last}"


def search(index: MemoryIndex, question: Question, rules: Rules, *, multiplier: int, today: date) -> list[Hit]:
    """What answers the question best, best first. `multiplier` is how many candidates each leg gives for one result."""
    limit = min(MOST_CANDIDATES, max(1, rules.results * multiplier))
    chunks, candidates = _candidates(index, question, limit)
    return [Hit(chunk=chunks[each.candidate.key], ranked=each) for each in rank(candidates, rules, today)]


def rules_of(keys: SearchKeys, results: int | None = None) -> Rules:
    """How to rank by the configuration, for as many results as are wanted."""
    return Rules(
        results=results or keys.max_results,
        fusion=keys.fusion,
        vector_weight=keys.vector_weight,
        text_weight=keys.text_weight,
        min_score=keys.min_score,
        half_life_days=keys.temporal_decay.half_life_days if keys.temporal_decay.enabled else None,
        mmr_lambda=keys.mmr.weight if keys.mmr.enabled else None,
    )


def _candidates(index: MemoryIndex, question: Question, limit: int) -> tuple[dict[int, Chunk], list[Candidate]]:
    terms = sought(question.text)
    scope = question.scope
    keywords = index.keywords(terms, MOST_CANDIDATES, scope) if terms and question.by_words else {}
    found = set(list(keywords)[:limit])
    cosines: dict[int, float] = {}
    if question.identity and question.vector is not None:
        cosines = index.nearest(question.identity, question.vector, limit, scope)
        found |= cosines.keys()
    found |= {key + away for key in found for away in (-2, -1, 1, 2)}
    chunks = index.chunks(found, scope)
    if question.identity and question.vector is not None:
        # What only its words found has a cosine too: the true one, not zero.
        cosines |= index.cosines(question.identity, question.vector, chunks.keys() - cosines.keys())
    asked = set(terms)
    candidates = [
        Candidate(
            key=key,
            note=chunk.path,
            named=not asked.isdisjoint(word_set(chunk.headings[-1] if chunk.headings else "")),
            keywords=keywords.get(key, 0.0),
            phrase=phrase_score(terms, question.text, chunk.text),
            cosine=cosines.get(key),
            day=date.fromisoformat(chunk.day) if chunk.day else None,
            words=word_set(chunk.text),
        )
        for key, chunk in chunks.items()
    ]
    return chunks, candidates
