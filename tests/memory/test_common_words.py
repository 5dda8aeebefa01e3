"""In a large index words that most chunks have take no time, and count all the same."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from plugins.api.memory.scope import Scope
from plugins.memory.index import keywords
from plugins.memory.index.indexer import refresh
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.sources.notes import Notes


@pytest.fixture
def notes(tmp_path: Path) -> Notes:
    """60 notes about crabs, every fourth about shells, every twelfth about moulting."""
    (tmp_path / "memory").mkdir()
    for number in range(60):
        text = ["The crab walks", "sideways " * (number % 3)]
        text += ["and has a shell"] * (number % 4 == 0)
        text += ["that it moults"] * (number % 12 == 0)
        (tmp_path / f"memory/2026-01-{number % 28 + 1:02d}-{number}.md").write_text(" ".join(text) + "\n")
    return Notes(tmp_path)


def test_the_best_are_the_same_with_the_same_scores(notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    question = ["crab", "shell", "moults"]
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        refresh(index, [notes])
        whole = index.keywords(question, 12)
        monkeypatch.setattr(keywords, "MANY", 15)
        assert index.keywords(question, 12) == pytest.approx(whole)
        assert list(index.keywords(question, 12)) == list(whole)


def test_words_that_only_others_have_hide_nothing(notes: Notes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(keywords, "MANY", 16)
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        refresh(index, [notes])
        first = Scope(owners=None, private=True, since=date(2026, 1, 2), until=date(2026, 1, 5))
        found = index.keywords(["crab", "shell"], 12, first)
        assert len(found) == 11, "two of which have a shell"


def test_what_somebody_else_wrote_is_counted_at_once(notes: Notes, tmp_path: Path) -> None:
    with MemoryIndex(tmp_path / "memory.sqlite") as writer, MemoryIndex(tmp_path / "memory.sqlite") as reader:
        refresh(writer, [notes])
        assert (
            reader.word_counts(["shell", "whale"])
            == writer.word_counts(["shell", "whale"])
            == (60, {"shell": 15, "whale": 0})
        )
        (tmp_path / "memory/whale.md").write_text("A whale has no shell.\n")
        refresh(writer, [notes])
        assert (
            reader.word_counts(["shell", "whale"])
            == writer.word_counts(["shell", "whale"])
            == (61, {"shell": 16, "whale": 1})
        )
        assert len(reader.keywords(["whale"], 5)) == 1
