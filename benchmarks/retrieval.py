"""How well the memory finds the turn of a long conversation that answers a question: LoCoMo (Maharana et al., ACL 2024).

Each session becomes a note of its day, as a gateway would write it: a heading for each turn with who spoke, then the text.
What is measured is the real index. The data is for evaluation only and is not part of the repository; without it, or without
the bundled model, this is left out.
"""

from __future__ import annotations

import json
import math
import random
import re
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from datetime import date, datetime
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.agent_session import DATA
from benchmarks.figures import Figure, figure
from benchmarks.setting import Setting
from plugins.embeddings.local import installed_weights
from plugins.memory.backend import Identity
from plugins.memory.candidates import Rules
from plugins.memory.changes import refresh
from plugins.memory.index import MemoryIndex
from plugins.memory.notes import Notes
from plugins.memory.searching import Question, search

CONVERSATIONS = DATA.with_name("locomo-dev.json")

AIM = {"recall@5": 0.65, "recall@10": 0.74}
"""What the memory must reach with its default ranking."""

BASELINE = {"recall@5": 0.618, "recall@10": 0.714}
"""The best recipe before this one, on the same five conversations."""

WAYS = {
    "measured": Rules(results=10, half_life_days=None, mmr_lambda=None),
    "measured, decay": Rules(results=10, mmr_lambda=None),
    "measured, MMR": Rules(results=10, half_life_days=None),
    "measured, both": Rules(results=10),
    "openclaw": Rules(results=10, fusion="openclaw", half_life_days=None, mmr_lambda=None),
    "copaw": Rules(results=10, fusion="copaw", half_life_days=None, mmr_lambda=None),
    "rrf": Rules(results=10, fusion="rrf", half_life_days=None, mmr_lambda=None),
}


class Asked(msgspec.Struct, frozen=True):
    """A question, and the places (`memory/DAY.md`, first line) of the turns that answer it."""

    text: str
    relevant: frozenset[tuple[str, int]]


class Story(msgspec.Struct, frozen=True):
    """A conversation as notes by their paths, its questions, and the day on which they are asked."""

    name: str
    notes: Mapping[str, str]
    questions: Sequence[Asked]
    today: date


def run(setting: Setting) -> list[Figure]:
    """Recall of each way to rank, and how long a search by words takes among generated notes."""
    figures = list(_speed(setting))
    if not setting.conversations:
        return figures
    if not CONVERSATIONS.exists() or installed_weights() is None:
        print(f"  {CONVERSATIONS.name} or the bundled model is not there: left out", file=sys.stderr)
        return figures
    told = json.loads(CONVERSATIONS.read_text())["conversations"][: setting.conversations]
    scores: dict[str, list[dict[str, float]]] = {}
    for story in map(story_of, told):
        for way, found in _asked(story, setting.folder).items():
            scores.setdefault(way, []).extend(found)
            scores.setdefault(f"{way}, {story.name}", []).extend(found)
    for way, found in scores.items():
        for measure in found[0] if way in WAYS else ("recall@10",):
            mean = sum(each[measure] for each in found) / len(found)
            best = way == "measured" and measure in AIM
            figures.append(
                Figure(
                    benchmark="retrieval",
                    measure=f"{way}: {measure}",
                    unit="%",
                    median=100 * mean,
                    runs=len(found),
                    against=f"aim {100 * AIM[measure]:.0f}; the best recipe before" if best else "",
                    reference=100 * BASELINE[measure] if best else None,
                )
            )
    return figures


def story_of(told: Mapping[str, Any]) -> Story:
    """One of LoCoMo's conversations, written down."""
    pages: dict[str, list[str]] = {}
    places: dict[str, tuple[str, int]] = {}
    days: list[date] = []
    for turn in told["turns"]:
        clock, day = _when(turn["date"])
        days.append(day)
        path = f"memory/{day.isoformat()}.md"
        page = pages.setdefault(path, [])
        # One line of text for each turn, so that a citation names one.
        page += [f"## {turn['speaker']}, {clock}", "", " ".join(turn["text"].split()), ""]
        places[turn["id"]] = (path, len(page) - 1)
    questions = [
        Asked(each["question"], frozenset(places[turn] for turn in each["relevant"] if turn in places))
        for each in told["questions"]
    ]
    notes = {path: "\n".join(page) for path, page in pages.items()}
    return Story(told["id"], notes, [each for each in questions if each.relevant], max(days))


def _when(text: str) -> tuple[str, date]:
    """`1:56 pm on 8 May, 2023`"""
    clock, _, day = text.partition(" on ")
    return clock, datetime.strptime(re.sub(r"[,\s]+", " ", day).strip(), "%d %B %Y").date()  # noqa: DTZ007 - a day alone


def _asked(story: Story, folder: Path) -> dict[str, list[dict[str, float]]]:
    """The measures of each way for each question of a conversation."""
    from plugins.embeddings.minilm_model import MiniLM  # noqa: PLC0415 - an extra, which is looked for first

    weights = installed_weights()
    assert weights
    model = MiniLM(weights)
    identity = Identity(provider="local", model="minilm", dimensions=384)
    with tempfile.TemporaryDirectory(dir=folder) as place, _index_of(story.notes, Path(place)) as index:
        while texts := index.unembedded(identity, 64):
            index.embed(identity, dict(zip(texts, model.embed(list(texts.values())), strict=True)))
        scores: dict[str, list[dict[str, float]]] = {way: [] for way in WAYS}
        for asked in story.questions:
            question = Question(text=asked.text, identity=identity, vector=model.embed([asked.text])[0])
            for way, rules in WAYS.items():
                hits = search(index, question, rules, multiplier=4, today=story.today)
                scores[way].append(measures([(hit.chunk.path, hit.chunk.first) for hit in hits], asked.relevant))
    return scores


def measures(found: Sequence[tuple[str, int]], relevant: frozenset[tuple[str, int]]) -> dict[str, float]:
    """How good ten places are, best first, for a question that the relevant ones answer."""
    hits = [place in relevant for place in found[:10]]
    gain = sum(1 / math.log2(at + 2) for at, hit in enumerate(hits) if hit)
    ideal = sum(1 / math.log2(at + 2) for at in range(min(10, len(relevant))))
    return {
        "recall@5": sum(hits[:5]) / len(relevant),
        "recall@10": sum(hits) / len(relevant),
        "nDCG@10": gain / ideal,
        "MRR": next((1 / (at + 1) for at, hit in enumerate(hits) if hit), 0.0),
    }


def _index_of(notes: Mapping[str, str], place: Path) -> MemoryIndex:
    for path, text in notes.items():
        (place / path).parent.mkdir(parents=True, exist_ok=True)
        (place / path).write_text(text)
    index = MemoryIndex(place / "memory.sqlite")
    with index:
        refresh(index, [Notes(place)])
    return index


def _speed(setting: Setting) -> Iterator[Figure]:
    """Searches by words among generated notes."""
    lots = random.Random(7)
    words = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in "aeiou" for c in ("ran", "tel", "mon", "vik")]
    notes = {
        f"memory/2026-{day % 12 + 1:02d}-{day % 28 + 1:02d}-{day}.md": "# Day\n\n" + " ".join(lots.choices(words, k=60))
        for day in range(setting.journals)
    }
    with tempfile.TemporaryDirectory(dir=setting.folder) as place, _index_of(notes, Path(place)) as index:
        samples = []
        for _ in range(50):
            question = Question(text=" ".join(lots.choices(words, k=4)))
            began = time.perf_counter()
            search(index, question, Rules(), multiplier=4, today=date(2026, 11, 21))
            samples.append((time.perf_counter() - began) * 1000)
        yield figure("retrieval", f"by words, {len(notes)} notes", "ms", samples)
