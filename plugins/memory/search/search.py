"""One search of the memory: candidates of both legs, ranked, with what each score is made of."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from datetime import date

import msgspec

from plugins.api.memory.chunks import Chunk
from plugins.api.memory.memory_backend import Identity, MemoryBackend
from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.api.memory_settings import Fusion, SearchKeys
from plugins.memory.search.candidates import Candidate, Ranked, Rules
from plugins.memory.search.fusion import phrase_score, typed_terms
from plugins.memory.search.periods import named_period
from plugins.memory.search.ranking import rank
from plugins.memory.search.weighted_fusion import meaning_of, unrelated_up_to
from plugins.memory.sources.dialogue import only_asks
from plugins.support.bounded_cache import bounded_cache
from plugins.support.text.words import language_in, sought, words_in

MOST_CANDIDATES = 200
"""Candidates of each leg at most."""

BESIDE = 2
"""How far before and after a hit its neighbours are looked at too."""

QUESTION_MARKS = ("?", "？", "؟")
"""With what a question ends."""

_SPEAKER = re.compile(r"^[ \t*_>-]*+([^\W\d_][\w .'’-]{0,40})[*_]{0,3}[:：]", re.MULTILINE)


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
    def score(self) -> float:
        """The score by which the hits are ordered."""
        return self.ranked.score

    @property
    def citation(self) -> str:
        """Where it stands: `memory/2026-11-21.md#L3-L7`."""
        return f"{self.chunk.path}#L{self.chunk.first}-L{self.chunk.last}"


def search(index: MemoryBackend, question: Question, rules: Rules, *, multiplier: int, today: date) -> list[Hit]:
    """What answers the question best, best first. `multiplier` is how many candidates each leg gives for one result."""
    chunks, candidates = found_for(
        index, question, results=rules.results, multiplier=multiplier, today=today, fusion=rules.fusion
    )
    terms = sought(question.text) if question.by_words else []
    best = [_with_covered(each, terms, question.text) for each in rank(candidates, rules, today)]
    return [Hit(chunk=chunks[each.candidate.key], ranked=each) for each in best]


def _with_covered(one: Ranked, terms: Sequence[str], text: str) -> Ranked:
    covered = phrase_score(terms, text, one.candidate.text)
    return msgspec.structs.replace(one, candidate=msgspec.structs.replace(one.candidate, covered=covered))


def rules_of(keys: SearchKeys, results: int | None = None, model: str = "") -> Rules:
    """How to rank by the configuration, for as many results as are wanted, with vectors of this model."""
    return Rules(
        results=results or keys.max_results,
        fusion=keys.fusion,
        vector_weight=keys.vector_weight,
        text_weight=keys.text_weight,
        meaning=meaning_of(model) if keys.meaning is None else keys.meaning,
        min_score=keys.min_score,
        half_life_days=keys.temporal_decay.half_life_days if keys.wants(keys.temporal_decay.enabled) else None,
        decay_share=keys.temporal_decay.taken(keys.fusion),
        mmr_lambda=keys.mmr.weight if keys.wants(keys.mmr.enabled) else None,
    )


def found_for(
    index: MemoryBackend,
    question: Question,
    *,
    results: int,
    multiplier: int,
    today: date,
    fusion: Fusion = "measured",
) -> tuple[dict[int, Chunk], list[Candidate]]:
    """What is looked at for so many results by this fusion: the chunks of both legs and those beside them, by their keys,
    and the same as candidates to be ranked."""
    limit = min(MOST_CANDIDATES, max(1, results * multiplier))
    if fusion == "copaw":
        return _as_in_copaw(index, question, limit)
    asked = sought(question.text)
    terms = asked if question.by_words else []
    scope = question.scope
    keywords = index.keywords(terms, MOST_CANDIDATES, scope) if terms else {}
    found = set(list(keywords)[:limit])
    cosines: dict[int, float] = {}
    if question.identity and question.vector is not None:
        cosines = index.nearest(question.identity, question.vector, limit, scope)
        found |= cosines.keys()
    # What stands beside a hit may be the answer, or says what it is about.
    chunks = index.chunks(found | index.beside(found, BESIDE), scope)
    chunks = {key: chunk for key, chunk in chunks.items() if not only_asks(chunk, question.text)}
    if question.identity and question.vector is not None:
        # What only its words found has a cosine too: the true one, not zero.
        cosines |= index.cosines(question.identity, question.vector, chunks.keys() - cosines.keys())
    pieces = index.pieces(chunks.keys())
    bears = _bearing(index, terms, pieces)
    language = language_in(question.text)
    period = named_period(question.text, today)
    candidates = []
    for key, chunk in chunks.items():
        day = date.fromisoformat(chunk.day) if chunk.day else None
        names = _names(chunk, language)
        candidates.append(
            Candidate(
                key=key,
                note=chunk.path,
                text=chunk.text,
                keywords=keywords.get(key, 0.0),
                cosine=cosines.get(key),
                bears=bears.get(key, frozenset()),
                named=not names.isdisjoint(asked),
                dated=day is not None and period is not None and period.has(day),
                asks=chunk.text.endswith(QUESTION_MARKS),
                day=day,
                pieces=pieces.get(key, ""),
                names=names,
            )
        )
    related = _in_common(candidates, unrelated_up_to(question.identity.model if question.identity else ""), BESIDE)
    return {each.key: chunks[each.key] for each in related}, related


def _in_common(candidates: Sequence[Candidate], unrelated: float, beside: int = 0) -> list[Candidate]:
    """Those that have a cosine above what is `unrelated`, a word of the question, or stand so near one that has a word."""
    worded = {
        each.key: each.note
        for each in candidates
        if each.bears or each.keywords > 0 or each.phrase > 0 or each.named or each.dated
    }
    near = range(-beside, beside + 1)
    return [
        each
        for each in candidates
        if (each.cosine or 0.0) > unrelated or any(worded.get(each.key + away) == each.note for away in near)
    ]


def _as_in_copaw(index: MemoryBackend, question: Question, limit: int) -> tuple[dict[int, Chunk], list[Candidate]]:
    """What CoPaw looks at: the best of each leg by that leg's own score, and nothing beside them. What the vectors did not
    recall has no cosine, and what the words did not recall none of their score."""
    words = sought(question.text) if question.by_words else []
    keywords = index.keywords(words, MOST_CANDIDATES, question.scope) if words else {}
    cosines: dict[int, float] = {}
    if question.identity and question.vector is not None:
        cosines = index.nearest(question.identity, question.vector, limit, question.scope)
    chunks = index.chunks(keywords.keys() | cosines.keys(), question.scope)
    chunks = {key: chunk for key, chunk in chunks.items() if not only_asks(chunk, question.text)}
    terms = typed_terms(question.text) if question.by_words else []
    phrases = {key: phrase_score(terms, question.text, chunk.text) for key, chunk in chunks.items()}
    by_words = set(sorted((key for key in phrases if phrases[key]), key=lambda key: (-phrases[key], key))[:limit])
    recalled = cosines.keys() | by_words
    chunks = {key: chunk for key, chunk in chunks.items() if key in recalled}
    candidates = [
        Candidate(
            key=key,
            note=chunk.path,
            text=chunk.text,
            keywords=keywords.get(key, 0.0),
            phrase=phrases[key] if key in by_words else 0.0,
            cosine=cosines.get(key),
            day=date.fromisoformat(chunk.day) if chunk.day else None,
        )
        for key, chunk in chunks.items()
    ]
    related = _in_common(candidates, 0.0)
    return {each.key: chunks[each.key] for each in related}, related


def _bearing(
    index: MemoryBackend, terms: Sequence[str], pieces: Mapping[int, str]
) -> dict[int, frozenset[tuple[str, float]]]:
    """Which words of the question each chunk has, by its pieces, and the share of the question that each is worth: the rarer
    the more, one that nobody has the most."""
    size, counts = index.counts(terms)
    # A word that stands nowhere by itself was looked for inside of words.
    sought_as = {term: f" {term} " if counts[term] else term for term in terms}
    there = {term: {key for key, text in pieces.items() if form in text} for term, form in sought_as.items()}
    worth = {term: math.log1p(size / (1 + counts[term])) for term in terms}
    whole = sum(worth.values()) or 1.0  # 0 where there are no chunks
    shares = {term: value / whole for term, value in worth.items()}
    return {key: frozenset((term, share) for term, share in shares.items() if key in there[term]) for key in pieces}


def _names(chunk: Chunk, language: str) -> frozenset[str]:
    """The words of its headings, and of the names of those who speak in it, as a question of this language has them."""
    told = _SPEAKER.findall(chunk.text) if ":" in chunk.text or "：" in chunk.text else ()
    return _words_of("\n".join((*chunk.headings, *chunk.senders, *told)), language)


@bounded_cache(2000)
def _words_of(names: str, language: str) -> frozenset[str]:
    """Many chunks stand under the same headings."""
    return words_in(names, language)
