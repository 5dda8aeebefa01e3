"""The index is derived: after any damage to its file, searches find the same and no note is changed."""

from __future__ import annotations

import asyncio
import hashlib
import os
import random
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from plugins.api.memory.scope import EVERYTHING
from plugins.api.plugin_services import IndexUnusable
from plugins.memory.index import embedder, indexer
from plugins.memory.index.index_file import IndexFile
from plugins.memory.index.indexer import IndexRebuilt
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.memory import Memory
from plugins.testing.memory_backend_checks import document
from sessions.catalog.sqlite import Error
from tests.memory.places import Place
from tests.waiting import until

NOTES = {
    "MEMORY.md": "# Home\n\nThe door code is 4711.\n",
    "memory/2026-11-20.md": "# Morning\n\nWe fly to Lisbon.\n\n# Evening\n\nThe flight is LH-1168.\n",
    "memory/long.md": "\n\n".join(f"# Part {number}\n\nIt says {number * 7919} and more." for number in range(50)),
}
QUESTIONS = ("door code", "LH-1168", "Lisbon", "part 41")

HARMS = (
    "delete",
    "delete all",
    "delete journal",
    "truncate journal",
    "truncate",
    "garbage",
    "garbage in the middle",
    "empty",
    "other",
    "folder",
)


def harm(file: Path, how: str, chance: random.Random) -> None:
    """Do something to a file that nobody should, or to what stands beside it."""
    journal = file.with_name(file.name + "-wal")
    if how == "delete all":
        for each in file.parent.glob(file.name + "*"):
            if not each.name.endswith("-shm"):
                each.unlink()
    elif how == "delete journal":
        journal.unlink(missing_ok=True)
    elif how == "truncate journal":
        if journal.exists():
            os.truncate(journal, chance.randrange(journal.stat().st_size + 1))
    elif not file.is_file():
        return
    elif how == "delete":
        file.unlink()
    elif how == "truncate":
        os.truncate(file, chance.randrange(file.stat().st_size + 1))
    elif how == "empty":
        file.write_bytes(b"")
    elif how == "another":
        other = sqlite3.connect(file.with_name("other.sqlite"))
        other.execute("CREATE TABLE documents (path TEXT)")
        other.commit()
        other.close()
        file.with_name("other.sqlite").replace(file)
    else:
        target = chance.choice([file, *([journal] if journal.exists() else [])])
        size = target.stat().st_size
        with target.open("r+b") as opened:
            opened.seek(0 if how == "garbage" else chance.randrange(max(1, size)))
            opened.write(chance.randbytes(chance.randrange(1, 40_000)))


async def answers(memory: Memory) -> list[list[tuple[str, str]]]:
    """Return the citation and text of each result, for each question."""
    found = [await memory.search(question, EVERYTHING) for question in QUESTIONS]
    return [[(hit.citation, hit.chunk.text) for hit in each.hits] for each in found]


def digests(folder: Path) -> dict[str, str]:
    return {str(path): hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.rglob("*.md")}


@settings(max_examples=8, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(HARMS), st.booleans(), st.integers(0, 2**32)), min_size=1, max_size=4),
    st.sampled_from(["none", "counted"]),
)
@example([("truncate", False, 62)], "counted")  # what is cut off is room for vectors
def test_whatever_is_done_to_the_file_and_when_the_answers_stay_the_same(
    harms: list[tuple[str, bool, int]], provider: str
) -> None:
    async def story(place: Place) -> None:
        place.provider.letters = 99  # which of equals come first is nobody's promise
        for path, text in NOTES.items():
            place.put(path, text)
        before = digests(place.workspace)
        memory = await place.memory(provider).__aenter__()
        await memory.update(lambda _: None)
        expected = await answers(memory)
        assert all(expected)
        for how, running, seed in harms:
            if not running:
                await memory.__aexit__(None, None, None)
            harm(place.file, how, random.Random(seed))
            if not running:
                memory = await place.memory(provider).__aenter__()
            await answers(memory)
            await memory.update(lambda _: None)
            assert await answers(memory) == expected, (how, running)
        await memory.__aexit__(None, None, None)
        assert digests(place.workspace) == before

    with tempfile.TemporaryDirectory() as folder:
        asyncio.run(story(Place(Path(folder))))


@pytest.mark.parametrize("running", [True, False], ids=["running", "closed"])
async def test_harm_that_no_page_shows_is_found_and_the_vectors_that_are_well_are_kept(
    tmp_path: Path, running: bool
) -> None:
    place = Place(tmp_path)
    place.put("memory/long.md", NOTES["memory/long.md"])
    memory = await place.memory("counted").__aenter__()
    await memory.update(lambda _: None)
    embedded = len(place.provider.texts)
    await memory.__aexit__(None, None, None)
    if running:
        memory = await place.memory("counted").__aenter__()
        assert (await memory.search("Part 41", EVERYTHING)).hits
    content = place.file.read_bytes()
    place.file.write_bytes(content.replace(b"It says 324679", b"It says 999999"))
    if not running:
        memory = await place.memory("counted").__aenter__()
    await memory.search("Part 41", EVERYTHING)
    await memory.update(lambda _: None)
    assert {"It says 324679 and more."} == {
        hit.chunk.text for hit in (await memory.search("Part 41", EVERYTHING)).hits if hit.chunk.headings == ("Part 41",)
    }
    assert len(place.provider.texts) == embedded
    await memory.__aexit__(None, None, None)


@pytest.mark.parametrize("harmed", ["zeroblob(9)", "zeroblob(length(vectors))"], ids=["cut", "emptied"])
@pytest.mark.parametrize("dimensions", [31, 32], ids=["vectors", "bits"])
async def test_what_the_tables_of_the_vectors_lost_is_made_anew_of_what_was_embedded(
    tmp_path: Path, harmed: str, dimensions: int
) -> None:
    place = Place(tmp_path)
    place.provider.size = dimensions
    place.provider.letters = 99
    place.put("memory/long.md", NOTES["memory/long.md"])
    async with place.memory("counted") as memory:
        await memory.update(lambda _: None)
        expected = await answers(memory)
    embedded = len(place.provider.texts)
    db = sqlite3.connect(place.file)
    db.execute(f"UPDATE vectors_1_vector_chunks00 SET vectors = {harmed}")
    db.commit()
    db.close()
    async with place.memory("counted") as memory:
        assert await answers(memory) == expected
        assert memory._backend
        assert isinstance(memory._backend._opened, IndexFile)
        assert memory._backend._opened.rebuilds == 1
    assert len(place.provider.texts) == embedded


async def test_an_index_that_was_closed_in_order_is_believed_without_looking_it_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = Place(tmp_path)
    place.put("MEMORY.md", NOTES["MEMORY.md"])
    async with place.memory() as memory:
        await memory.update(lambda _: None)
    looked: list[None] = []

    def look(_: object) -> bool:
        looked.append(None)
        return True

    monkeypatch.setattr("plugins.memory.index.sqlite_backend.is_intact", look)
    async with place.memory() as memory:
        assert (await memory.search("door", EVERYTHING)).hits
    assert not looked
    os.utime(place.file)
    async with place.memory() as memory:
        assert (await memory.search("door", EVERYTHING)).hits
    assert looked


@pytest.fixture
def rebuilt(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times of the rebuilds of the index."""
    times: list[float] = []
    rebuild = IndexFile._rebuild

    def count(file: IndexFile) -> IndexRebuilt:
        times.append(time.monotonic())
        return rebuild(file)

    monkeypatch.setattr(IndexFile, "_rebuild", count)
    return times


def pauses(seconds: float, monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (indexer, embedder):
        monkeypatch.setattr(module, "PAUSE_SECONDS", seconds)


def fail(*_: object) -> None:
    raise Error[0]("disk I/O error")


WRITES = pytest.mark.parametrize(
    ("write", "effect"),
    [("store", "The index is not up to date"), ("store_vectors", "Notes are found by keywords only")],
    ids=["notes", "vectors"],
)


@WRITES
async def test_an_index_whose_writes_always_fail_is_not_rebuilt_without_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rebuilt: list[float], write: str, effect: str
) -> None:
    place = Place(tmp_path)
    place.put("MEMORY.md", NOTES["MEMORY.md"])
    pauses(10_000, monkeypatch)
    monkeypatch.setattr(MemoryIndex, write, fail)
    async with place.memory("counted") as memory:
        await memory.refresh()
        await until(memory.problems)
        problem = f"{effect}: The memory index is damaged again after each rebuild: disk I/O error."
        assert memory.problems() == [problem]
        for number in range(10):
            place.put("memory/more.md", f"the window number {number}\n")
            found = await memory.search("window", EVERYTHING)
            assert [hit.chunk.text for hit in found.hits] == ([] if write == "store" else [f"the window number {number}"])
            assert found.remarks == ((problem, "No note is indexed.") if write == "store" else found.remarks)
            assert found.remarks.count(problem) == 1
        assert len(rebuilt) == indexer.TRIES
        with pytest.raises(IndexUnusable, match=r"damaged again after each rebuild: disk I/O error\.$"):
            await memory.update(lambda _: None)
        assert len(rebuilt) == 2 * indexer.TRIES


@WRITES
async def test_an_index_whose_writes_failed_is_tried_again_less_and_less_often_and_complete_once_they_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rebuilt: list[float], write: str, effect: str
) -> None:
    place = Place(tmp_path)
    place.put("MEMORY.md", NOTES["MEMORY.md"])
    pauses(0.05, monkeypatch)
    async with place.memory("counted") as memory:
        with monkeypatch.context() as patch:
            patch.setattr(MemoryIndex, write, fail)
            await memory.refresh()
            await until(lambda: len(rebuilt) > 3 * indexer.TRIES)
            assert memory.problems()[0].startswith(effect)
        attempts = rebuilt[:: indexer.TRIES]
        assert [later - before >= 0.05 * 2**n for n, (before, later) in enumerate(pairwise(attempts))] == [True] * 3
        await until(lambda: memory.state.chunks == 1 and not memory.state.unembedded and not memory.problems())
        assert (await memory.search("door", EVERYTHING)).remarks == ()


@pytest.mark.parametrize("gone", ["", "-wal", "-shm"])
async def test_a_file_that_is_deleted_while_it_is_written_is_missed(tmp_path: Path, gone: str) -> None:
    """Not only one that is deleted between two writes."""
    path = tmp_path / "memory.sqlite"
    file = IndexFile(path)
    await file.write(lambda index: index.store([document("memory/a.md", "We fly to Lisbon.")]))
    await file.write(lambda _: path.with_name(path.name + gone).unlink())
    with pytest.raises(IndexRebuilt):
        await file.read(lambda index: index.size())
    with pytest.raises(IndexRebuilt):
        await file.write(lambda index: index.size())
    assert path.exists()
    assert await file.write(lambda index: index.size()) == await file.read(lambda index: index.size())
    await file.close()


@pytest.mark.parametrize("after", ["the writer", "the reader"])
async def test_a_file_that_is_deleted_while_it_is_opened_is_missed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, after: str
) -> None:
    path = tmp_path / "memory.sqlite"
    file = IndexFile(path)
    enter, opened = MemoryIndex.__enter__, list[MemoryIndex]()

    def enter_and_delete(index: MemoryIndex) -> MemoryIndex:
        opened.append(enter(index))
        if len(opened) == ["the writer", "the reader"].index(after) + 1:
            path.unlink()
        return index

    monkeypatch.setattr(MemoryIndex, "__enter__", enter_and_delete)
    with pytest.raises(IndexRebuilt):
        await file.write(lambda index: index.size())
    await file.write(lambda index: index.store([document("memory/a.md", "We fly to Lisbon.")]))
    assert await file.read(lambda index: index.size()) == (1, 1)
    assert path.exists()
    await file.close()


async def test_two_processes_may_write_to_one_index(tmp_path: Path) -> None:
    place = Place(tmp_path)
    place.put("MEMORY.md", NOTES["MEMORY.md"])
    async with place.memory("counted") as one, place.memory("counted") as other:
        await one.update(lambda _: None)
        for number in range(5):
            place.put("memory/more.md", f"the window number {number}\n")
            await other.update(lambda _: None)
            assert (await one.search("window", EVERYTHING)).hits
            place.put("memory/more.md", f"the chimney number {number}\n")
            await one.update(lambda _: None)
            assert (await other.search("chimney", EVERYTHING)).hits
        assert one._backend
        assert isinstance(one._backend._opened, IndexFile)
        assert one._backend._opened.rebuilds == 0
        embedded = len(place.provider.texts)
        for memory in (one, other):
            await memory.update(lambda _: None)
        assert len(place.provider.texts) == embedded, "neither embeds what the other has"
        # Both may embed a chunk that is new to both at the same moment, which costs a request and harms nothing.
        assert len(set(place.provider.texts)) == 11
        assert max(Counter(place.provider.texts).values()) <= 2


CUT = """
import asyncio, os, sys
from pathlib import Path
from plugins.testing.memory_backend_checks import document
from plugins.memory.index.indexer import IndexRebuilt
from plugins.memory.index.index_file import IndexFile

async def asked(file):
    for _ in range(3):
        try:
            return await file.read(lambda index: len(index.keywords(["lisbon"], 5)))
        except IndexRebuilt:
            try:
                await file.write(lambda index: index.store([document("memory/a.md", "We fly to Lisbon.")]))
            except IndexRebuilt:
                pass

async def main(path):
    shared = path.with_name(path.name + "-shm")
    file = IndexFile(path)
    assert await asked(file) == 1
    for harm in (
        lambda: os.truncate(shared, 0),
        lambda: os.truncate(shared, 100),
        lambda: os.truncate(shared, 5000),
        lambda: shared.write_bytes(b"nothing"),
        lambda: shared.unlink(),
        lambda: os.pwrite(os.open(shared, os.O_WRONLY), bytes(range(256)), 0),
    ):
        harm()
        assert await asked(file) == 1
    os.truncate(shared, 0)
    await file.close()
    assert file.rebuilds == 0
    print("well")

asyncio.run(main(Path(sys.argv[1])))
"""


def test_what_is_cut_off_of_the_memory_that_processes_share_ends_no_process(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CUT, tmp_path / "memory.sqlite"], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "well\n"), done.stderr
