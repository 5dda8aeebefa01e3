"""One search of the memory: candidates by keywords and vectors, ranked, with the parts of each score."""

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
from plugins.memory.search.periods import asks_when, mentions_time, named_period
from plugins.memory.search.ranking import rank
from plugins.memory.search.related_words import closeness
from plugins.memory.search.relevance import Asked, answering, asked
from plugins.memory.search.weighted_fusion import meaning_of, unrelated_up_to
from plugins.memory.sources.dialogue import QUESTION_MARKS, only_asks
from plugins.support.text.bounded_cache import bounded_cache
from plugins.support.text.words import language_in, sought, words_in

MOST_CANDIDATES = 200
"""Maximum candidates by keywords, and by vectors."""

BESIDE = 2
"""The number of neighbours before and after each hit that become candidates too."""

_TURN = re.compile(r"^[ \t*_>-]*+[^\W\d_][\w .'’-]{0,40}[*_]{0,3}[:：][*_]{0,3}[ \t]*+\S", re.MULTILINE)
_SPEAKER = re.compile(r"^[ \t*_>-]*+([^\W\d_][\w .'’-]{0,40})[*_]{0,3}[:：]", re.MULTILINE)


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """A query with its scope, and its vector if there is one."""

    text: str
    scope: Scope = EVERYTHING
    by_words: bool = True
    identity: Identity | None = None
    vector: Sequence[float] | None = None


class Hit(msgspec.Struct, frozen=True, kw_only=True):
    """A search result."""

    chunk: Chunk
    ranked: Ranked

    @property
    def score(self) -> float:
        """The score that orders the hits."""
        return self.ranked.score

    @property
    def citation(self) -> str:
        """The place of the chunk, such as `memory/2026-11-21.md#L3-L7`."""
        return f"{self.chunk.path}#L{self.chunk.first}-L{self.chunk.last}"


def search(index: MemoryBackend, question: Question, rules: Rules, *, multiplier: int, today: date) -> list[Hit]:
    """Return the best results, best first. `multiplier` is the number of candidates per result."""
    chunks, candidates = found_for(
        index, question, results=rules.results, multiplier=multiplier, today=today, fusion=rules.fusion
    )
    found = rank(candidates, rules, today)
    if rules.fusion == "measured":
        model = question.identity.model if question.identity else ""
        found = answering(found, candidates, asked_words(index, question.text), model, index.size()[1])
    terms = sought(question.text) if question.by_words else []
    best = [_with_covered(each, terms, question.text) for each in found]
    return [Hit(chunk=chunks[each.candidate.key], ranked=each) for each in best]


def asked_words(index: MemoryBackend, text: str) -> Asked:
    """Return what the index knows about the words of a question."""
    return asked(text, *_shares(index, sought(text)))


def _with_covered(one: Ranked, terms: Sequence[str], text: str) -> Ranked:
    covered = phrase_score(terms, text, one.candidate.text)
    return msgspec.structs.replace(one, candidate=msgspec.structs.replace(one.candidate, covered=covered))


def rules_of(keys: SearchKeys, results: int | None = None, model: str = "") -> Rules:
    """Return the ranking rules for a configuration, a number of results and an embedding model."""
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
    """Return the chunks found by keywords and vectors with their neighbours, by key, and the same as candidates."""
    limit = min(MOST_CANDIDATES, max(1, results * multiplier))
    if fusion == "copaw":
        return _as_in_copaw(index, question, limit)
    words = sought(question.text)
    terms = words if question.by_words else []
    scope = question.scope
    keywords = index.keywords(terms, MOST_CANDIDATES, scope) if terms else {}
    found = set(list(keywords)[:limit])
    cosines: dict[int, float] = {}
    if question.identity and question.vector is not None:
        cosines = index.nearest(question.identity, question.vector, limit, scope)
        found |= cosines.keys()
    # A neighbour of a hit may contain the answer, or say what it is about.
    chunks = index.chunks(found | index.neighbours(found, BESIDE), scope)
    chunks = {key: chunk for key, chunk in chunks.items() if not only_asks(chunk, question.text)}
    if question.identity and question.vector is not None:
        # Chunks found only by keywords get their actual cosine, not zero.
        cosines |= index.cosines(question.identity, question.vector, chunks.keys() - cosines.keys())
    pieces = index.indexed_words(chunks.keys())
    shares, absent = _shares(index, terms)
    bears = _bearing(shares, absent, pieces)
    language = language_in(question.text)
    closest = closeness(shares, pieces, bears, language)
    period, when = named_period(question.text, today), asks_when(question.text)
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
                closest=closest.get(key, ()),
                named=not names.isdisjoint(words),
                dated=day is not None and period is not None and period.has(day),
                timed=when and mentions_time(chunk.text),
                turns=len(_TURN.findall(chunk.text)) if ":" in chunk.text or "：" in chunk.text else 0,
                asks=sum(map(chunk.text.count, QUESTION_MARKS)) if chunk.text.endswith(QUESTION_MARKS) else 0,
                day=day,
                pieces=pieces.get(key, ""),
                names=names,
            )
        )
    related = _in_common(candidates, unrelated_up_to(question.identity.model if question.identity else ""), BESIDE)
    return {each.key: chunks[each.key] for each in related}, related


def _in_common(candidates: Sequence[Candidate], unrelated: float, beside: int = 0) -> list[Candidate]:
    """Return the candidates related to the question: by their cosine, by a word, or as neighbours of one with a word."""
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
    """Return the candidates as CoPaw does: the best by keywords and by vectors, each with the scores it was found by."""
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


def _shares(index: MemoryBackend, terms: Sequence[str]) -> tuple[dict[str, float], frozenset[str]]:
    """Return the weight of each term of the question, larger for rarer ones, and the terms that no text has as a word."""
    size, counts = index.word_counts(terms)
    worth = {term: math.log1p(size / (1 + counts[term])) for term in terms}
    whole = sum(worth.values()) or 1.0  # 0 without chunks
    return {term: value / whole for term, value in worth.items()}, frozenset(term for term in terms if not counts[term])


def _bearing(
    shares: Mapping[str, float], absent: frozenset[str], pieces: Mapping[int, str]
) -> dict[int, frozenset[tuple[str, float]]]:
    """Return the terms of the question in each chunk, with their weights."""
    # A term that matches no whole word is searched as a part of words.
    sought_as = {term: term if term in absent else f" {term} " for term in shares}
    there = {term: {key for key, text in pieces.items() if form in text} for term, form in sought_as.items()}
    return {key: frozenset((term, share) for term, share in shares.items() if key in there[term]) for key in pieces}


def _names(chunk: Chunk, language: str) -> frozenset[str]:
    """Return the words of a chunk's headings and speakers, as a question of this language spells them."""
    told = _SPEAKER.findall(chunk.text) if ":" in chunk.text or "：" in chunk.text else ()
    return _words_of("\n".join((*chunk.headings, *chunk.senders, *told)), language)


@bounded_cache(2000)
def _words_of(names: str, language: str) -> frozenset[str]:
    """Cached, since many chunks have the same headings."""
    return words_in(names, language)
