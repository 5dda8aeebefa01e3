"""The LoCoMo conversations (Maharana et al., ACL 2024) as notes.

Each session becomes a note of its day. Each turn has a heading with the speaker and the time, and its text in one line, so
that a citation refers to one turn. The data is for evaluation only and not part of the repository.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime
from typing import Any

import msgspec

from benchmarks.agent_session import DATA

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
    return [conversation_of(data) for data in json.loads(CONVERSATIONS.read_text())["conversations"][:most]]


def documentation() -> Conversation | None:
    """Load the FAQs whose questions are asked of their answers, None if the data is missing."""
    if not DOCUMENTATION.exists():
        return None
    data = json.loads(DOCUMENTATION.read_text())
    places = [(each["question"], [answer.partition("#L") for answer in each["answers"]]) for each in data["questions"]]
    questions = [
        LocomoQuestion(text, frozenset((path, int(line.partition("-")[0])) for path, _, line in answers))
        for text, answers in places
    ]
    return Conversation("documentation", data["notes"], questions, date.fromisoformat(data["today"]))


def conversation_of(data: Mapping[str, Any]) -> Conversation:
    """Convert one conversation to notes."""
    pages: dict[str, list[str]] = {}
    places: dict[str, tuple[str, int]] = {}
    days: list[date] = []
    for turn in data["turns"]:
        clock, day = _when(turn["date"])
        days.append(day)
        path = f"memory/{day.isoformat()}.md"
        page = pages.setdefault(path, [])
        page += [f"## {turn['speaker']}, {clock}", "", " ".join(turn["text"].split()), ""]
        places[turn["id"]] = (path, len(page) - 1)
    questions = [
        LocomoQuestion(each["question"], frozenset(places[turn] for turn in each["relevant"] if turn in places))
        for each in data["questions"]
    ]
    notes = {path: "\n".join(page) for path, page in pages.items()}
    return Conversation(data["id"], notes, [each for each in questions if each.answers], max(days))


def _when(text: str) -> tuple[str, date]:
    """Parse a time such as `1:56 pm on 8 May, 2023`."""
    clock, _, day = text.partition(" on ")
    return clock, datetime.strptime(re.sub(r"[,\s]+", " ", day).strip(), "%d %B %Y").date()  # noqa: DTZ007 - only the date is used
