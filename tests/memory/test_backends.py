"""Every backend keeps the contract, and the answers of all are the same."""

from __future__ import annotations

from pathlib import Path

import pytest

from plugins.memory.backends.chroma import ChromaBackend
from plugins.memory.backends.local import LocalBackend
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.support.text.words import sought
from plugins.testing.memory_backend_checks import MemoryBackendConformance, document
from tests.memory.languages.notes import read_notes


class TestSQLite(MemoryBackendConformance):
    backend = MemoryIndex


class TestLocal(MemoryBackendConformance):
    backend = LocalBackend


@pytest.mark.skipif(bool(ChromaBackend.why_not()), reason="chromadb is not installed: `make test-backends` does that")
class TestChroma(MemoryBackendConformance):
    backend = ChromaBackend


def test_the_local_backend_ranks_words_exactly_as_sqlite_does(tmp_path: Path) -> None:
    notes = [document(each.path, each.text) for each in read_notes()]
    with LocalBackend(tmp_path / "memory.local") as local, MemoryIndex(tmp_path / "memory.sqlite") as index:
        for backend in (local, index):
            backend.store(iter(notes))
        for question in [asked for each in read_notes() for asked in (each.exact, each.cross) if asked]:
            words = sought(question)
            here, there = local.keywords(words, 20), index.keywords(words, 20)
            assert here == pytest.approx(there, rel=0.02), question
