"""The LoCoMo conversations (Maharana et al., ACL 2024) and documentation, as notes with questions.

`gateway.cli.memory.question_sets` makes notes of conversations. The data is for evaluation only and not part of the
repository.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from pathlib import Path

import msgspec

from benchmarks.agent_session import DATA
from benchmarks.cached_vectors import CachedVectors
from gateway.cli.memory.question_sets import QuestionSet, read_questions
from plugins.api.memory.memory_backend import Identity
from plugins.memory.index.indexer import refresh
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.sources.notes import Notes

CONVERSATIONS = DATA.with_name("locomo-dev.json")
DOCUMENTATION = DATA.with_name("docs-dev.json")

IDENTITY = Identity(provider="local", model="all-minilm-l6-v2", dimensions=384)
"""The identity of the bundled model's vectors."""


class LocomoQuestion(msgspec.Struct, frozen=True):
    """A question and the places (`memory/DAY.md`, line) of the turns that answer it, at least one."""

    text: str
    answers: frozenset[tuple[str, int]]


class Conversation(msgspec.Struct, frozen=True):
    """A conversation as notes by path, with its questions and its last day, on which they are asked."""

    name: str
    notes: Mapping[str, str]
    questions: Sequence[LocomoQuestion]
    today: date


def conversations(most: int) -> list[Conversation]:
    """Load at most `most` conversations, none if the data is missing."""
    if not CONVERSATIONS.exists():
        return []
    names = [data["id"] for data in json.loads(CONVERSATIONS.read_text())["conversations"]]
    return [_named(name, found) for name, found in zip(names, read_questions(CONVERSATIONS), strict=True)][:most]


def documentation() -> Conversation | None:
    """Load the FAQs whose questions are asked of their answers, None if the data is missing."""
    if not DOCUMENTATION.exists():
        return None
    (found,) = read_questions(DOCUMENTATION)
    return _named("documentation", found)


def _named(name: str, found: QuestionSet) -> Conversation:
    questions = (
        LocomoQuestion(each.question, frozenset((place.path, place.first) for place in each.answers))
        for each in found.questions
        if each.answers
    )
    assert found.notes is not None
    assert found.today is not None
    return Conversation(name, found.notes, list(questions), found.today)


def index_of(notes: Mapping[str, str], place: Path) -> MemoryIndex:
    """Write notes to a folder and index them there, without vectors."""
    for path, text in notes.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    index = MemoryIndex(place / "memory.sqlite")
    with index:
        refresh(index, [Notes(place)])
    return index


@contextlib.contextmanager
def indexed(one: Conversation, model: CachedVectors, folder: Path) -> Iterator[MemoryIndex]:
    """Index the notes of a set with vectors in a temporary folder."""
    with tempfile.TemporaryDirectory(dir=folder) as place, index_of(one.notes, Path(place)) as index:
        while texts := index.unembedded(IDENTITY, 64):
            index.store_vectors(IDENTITY, dict(zip(texts, model.embed(list(texts.values())), strict=True)))
        yield index
