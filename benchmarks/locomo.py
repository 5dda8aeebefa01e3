"""The LoCoMo conversations (Maharana et al., ACL 2024) and documentation, as notes with questions.

`gateway.cli.memory.question_sets` makes notes of conversations. The data is for evaluation only and not part of the
repository.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date

import msgspec

from benchmarks.agent_session import DATA
from gateway.cli.memory.question_sets import QuestionSet, read_questions

CONVERSATIONS = DATA.with_name("locomo-dev.json")
DOCUMENTATION = DATA.with_name("docs-dev.json")


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
