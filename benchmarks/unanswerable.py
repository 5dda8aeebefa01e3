"""Questions that notes do not answer, and the share of them for which a search finds nothing.

The questions are those of other notes of the same kind and of another kind, words that nobody uses, and everyday questions.
Of the questions with an answer, recall@10 is measured with and without the cut (`plugins.memory.search.relevance`).
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec

from benchmarks.cached_vectors import CachedVectors
from benchmarks.figures import Figure
from benchmarks.locomo import IDENTITY, Conversation, indexed
from plugins.api.memory_settings import SearchKeys
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.search.candidates import Ranked
from plugins.memory.search.eval_metrics import judge
from plugins.memory.search.ranking import rank
from plugins.memory.search.relevance import answering
from plugins.memory.search.search import Question, asked_words, found_for, rules_of

AIM = 80.0
"""Minimum share of these questions, in per cent."""

FROM_SAME, FROM_OTHER, INVENTED = 30, 10, 15
"""Questions of each other set of the same kind and of another kind that are asked of a set, and of invented words."""

GENERAL = (
    "What is the boiling point of nitrogen?",
    "How tall is the tower of our town hall?",
    "How do I fold a fitted sheet?",
    "Which vaccine did the cat get?",
    "What is the password of the router?",
    "recipe for lentil soup",
    "What does the landlord charge for the garage?",
    "Which dentist did we choose?",
    "flight number to Toronto",
    "What did the plumber say about the boiler?",
    "train times to Basel",
    "How do I descale the coffee machine?",
    "size of the kitchen window",
    "Which visa do I need for Vietnam?",
    "how to prune roses in spring",
    "When is the tax return due?",
)

RULES = rules_of(SearchKeys(max_results=10), model=IDENTITY.model)


class Asking(msgspec.Struct, frozen=True):
    """A question that a set does not answer, and where it comes from."""

    text: str
    origin: str


def unanswerable(one: Conversation, sets: Mapping[str, Sequence[Conversation]], kind: str) -> Iterator[Asking]:
    """Yield questions that a set of a kind does not answer, the same ones in each run."""
    draw = random.Random(one.name)
    for other_kind, others in sets.items():
        same = other_kind == kind
        for other in others:
            if other.name != one.name:
                chosen = draw.sample(other.questions, min(FROM_SAME if same else FROM_OTHER, len(other.questions)))
                yield from (Asking(each.text, f"of other {kind}" if same else "of another kind") for each in chosen)
    for _ in range(INVENTED):
        yield Asking(" ".join(_invented(draw) for _ in range(draw.randint(1, 3))), "invented words")
    yield from (Asking(text, "everyday") for text in GENERAL)


def _invented(draw: random.Random) -> str:
    return "".join(draw.choice("bcdfgklmnprstvwz") + draw.choice("aeiou") for _ in range(draw.randint(2, 4)))


def parts_of(documents: Conversation) -> list[Conversation]:
    """Split documentation into the parts that the names of notes begin with, such as `memory/django-`."""
    parts: dict[str, dict[str, str]] = {}
    for path, text in documents.notes.items():
        parts.setdefault(re.split(r"[-.]", path.rpartition("/")[2])[0], {})[path] = text
    return [
        msgspec.structs.replace(
            documents,
            name=name,
            notes=notes,
            questions=[each for each in documents.questions if any(path in notes for path, _ in each.answers)],
        )
        for name, notes in parts.items()
    ]


def figures_without_answers(
    loaded: Sequence[Conversation], documents: Conversation | None, model: CachedVectors, folder: Path
) -> Iterator[Figure]:
    """Measure conversations and documentation, with vectors and by words."""
    sets = {"conversations": loaded, "documentation": parts_of(documents) if documents else []}
    whole = {"conversations": loaded, "documentation": [documents] if documents else []}
    for vectors, way in ((model, "with the bundled model"), (None, "by words")):
        origins: dict[str, list[bool]] = {}
        for kind, some in sets.items():
            nothing: dict[str, list[bool]] = {}
            for one in some:
                asked = list(unanswerable(one, sets, kind))
                with indexed(one, model, folder) as index:
                    for each in asked:
                        found = not _searched(index, each.text, one, vectors)[1]
                        nothing.setdefault(each.origin, []).append(found)
                        origins.setdefault("", []).append(found)
            for origin, found_none in sorted(nothing.items()):
                yield _share(f"{kind}, {way}: nothing found for questions {origin}", found_none)
            yield from _recall(f"{kind}, {way}", whole[kind], model, vectors, folder)
        yield _share(f"{way}: nothing found for questions without an answer", origins[""], AIM)


def _share(measure: str, samples: Sequence[bool], aim: float | None = None) -> Figure:
    share = 100 * sum(samples) / len(samples)
    return Figure(
        benchmark="retrieval",
        measure=measure,
        unit="%",
        median=share,
        runs=len(samples),
        against="aim" if aim else "",
        reference=aim,
    )


def _recall(
    name: str, sets: Sequence[Conversation], model: CachedVectors, vectors: CachedVectors | None, folder: Path
) -> Iterator[Figure]:
    """Measure recall@10 of the questions with an answer, with the cut and without."""
    whole: list[float] = []
    cut: list[float] = []
    for one in sets:
        with indexed(one, model, folder) as index:
            for each in one.questions:
                every, some, places = _searched(index, each.text, one, vectors)
                for results, recalls in ((every, whole), (some, cut)):
                    matched = [{places[hit.candidate.key]} for hit in results]
                    recalls.append(judge(matched, each.answers, (10,)).recall[10])
    if whole:
        uncut = 100 * sum(whole) / len(whole)
        yield Figure(
            benchmark="retrieval",
            measure=f"{name}: recall@10 with the cut",
            unit="%",
            median=100 * sum(cut) / len(cut),
            runs=len(cut),
            against="without the cut",
            reference=uncut,
        )


def _searched(
    index: MemoryIndex, text: str, one: Conversation, model: CachedVectors | None
) -> tuple[list[Ranked], list[Ranked], dict[int, tuple[str, int]]]:
    """Return the results without and with the cut, and the places of the candidates."""
    question = Question(text=text, identity=IDENTITY if model else None, vector=model.embed([text])[0] if model else None)
    chunks, candidates = found_for(index, question, results=10, multiplier=4, today=one.today)
    whole = rank(candidates, RULES, one.today)
    cut = answering(whole, candidates, asked_words(index, text), IDENTITY.model if model else "", index.size()[1])
    return whole, cut, {key: (chunk.path, chunk.first) for key, chunk in chunks.items()}
