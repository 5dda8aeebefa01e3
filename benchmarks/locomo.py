"""Months of conversation between two people, written down as a gateway would: LoCoMo (Maharana et al., ACL 2024).

Each session becomes a note of its day with a heading for each turn, who spoke and when, and the turn's text in one line
below: so a citation names one turn. The data is for evaluation only and no part of the repository.
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


class Asked(msgspec.Struct, frozen=True):
    """A question, and the places (`memory/DAY.md`, line) of the turns that answer it, one at least."""

    text: str
    answers: frozenset[tuple[str, int]]


class Story(msgspec.Struct, frozen=True):
    """A conversation as notes by their paths, its questions, and the day on which they are asked: its last."""

    name: str
    notes: Mapping[str, str]
    questions: Sequence[Asked]
    today: date


def stories(most: int) -> list[Story]:
    """The first so many conversations; none where they are not there."""
    if not CONVERSATIONS.exists():
        return []
    return [story_of(told) for told in json.loads(CONVERSATIONS.read_text())["conversations"][:most]]


def story_of(told: Mapping[str, Any]) -> Story:
    """One of the conversations, written down."""
    pages: dict[str, list[str]] = {}
    places: dict[str, tuple[str, int]] = {}
    days: list[date] = []
    for turn in told["turns"]:
        clock, day = _when(turn["date"])
        days.append(day)
        path = f"memory/{day.isoformat()}.md"
        page = pages.setdefault(path, [])
        page += [f"## {turn['speaker']}, {clock}", "", " ".join(turn["text"].split()), ""]
        places[turn["id"]] = (path, len(page) - 1)
    questions = [
        Asked(each["question"], frozenset(places[turn] for turn in each["relevant"] if turn in places))
        for each in told["questions"]
    ]
    notes = {path: "\n".join(page) for path, page in pages.items()}
    return Story(told["id"], notes, [each for each in questions if each.answers], max(days))


def _when(text: str) -> tuple[str, date]:
    """`1:56 pm on 8 May, 2023`"""
    clock, _, day = text.partition(" on ")
    return clock, datetime.strptime(re.sub(r"[,\s]+", " ", day).strip(), "%d %B %Y").date()  # noqa: DTZ007 - a day alone
