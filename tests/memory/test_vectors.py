"""Vectors, searched by sqlite-vec and by numpy: the same answers, whichever wrote the file."""

from __future__ import annotations

import math
import random
import sqlite3
from array import array
from collections.abc import Callable, Mapping
from importlib.util import find_spec
from pathlib import Path

import pytest

from plugins.api.memory.chunks import Chunk
from plugins.api.memory.memory_backend import Identity
from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.api.memory.source import Listing, Reading
from plugins.memory.index import tables, vectors
from plugins.memory.index.indexer import refresh
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.index.vectors import VecMatrix, VecTables
from tests.memory.places import FakeSource, Place, citations

MODEL = Identity(provider="p", model="m", dimensions=16)
ODD = Identity(provider="p", model="odd", dimensions=3)
MINE = Scope(owners=frozenset({"ana"}), private=True)

WAYS = ("sqlite-vec", "numpy")


class Lines(FakeSource):
    """A source of one document whose every line is a chunk; every tenth is Ana's, the others Bo's."""

    name = "notes"

    def __init__(self, lines: int) -> None:
        self.lines = [str(number) for number in range(lines)]

    def list_documents(self, known: Mapping[str, str]) -> Listing:
        return Listing(stamps={"lines": str(hash(tuple(self.lines)))})

    def read(self, path: str, state: str) -> Reading | None:
        def chunk(number: int, line: str) -> Chunk:
            owner = "bo" if int(line) % 10 else "ana"
            return Chunk(path=path, first=number, last=number, headings=(), text=line, owner=owner)

        return Reading(chunks=[chunk(*each) for each in enumerate(self.lines, 1)])


def vector_of(text: str, dimensions: int) -> list[float]:
    """Some vector, always the same for a text, not of length 1."""
    chance = random.Random(text)
    return [chance.gauss(0, 3) for _ in range(dimensions)]


def embed_all(index: MemoryIndex, identity: Identity) -> None:
    while texts := index.unembedded(identity, 500):
        made = {digest: vector_of(text.split("\n")[1], identity.dimensions) for digest, text in texts.items()}
        index.store_vectors(identity, made)


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    return use(request.param, monkeypatch)


def use(way: str, monkeypatch: pytest.MonkeyPatch) -> str:
    if way == "numpy":
        if find_spec("numpy") is None:
            pytest.skip("the extra [local], which brings numpy, is not installed")
        monkeypatch.setattr(tables, "load_vectors", lambda _: False)
    else:
        monkeypatch.undo()
    return way


def texts(index: MemoryIndex, found: Mapping[int, float]) -> list[str]:
    chunks = index.chunks(found)
    return [chunks[key].text for key in found]


def cosine(one: list[float], other: list[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True)) / math.hypot(*one) / math.hypot(*other)


def test_each_way_is_the_one_that_it_says(way: str, tmp_path: Path) -> None:
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        assert isinstance(index._vectors, {"sqlite-vec": VecTables, "numpy": VecMatrix}[way])
        if way == "sqlite-vec":
            assert index._db.execute("SELECT vec_version()").fetchone()[0].startswith("v0.")
            index.store_vectors(ODD, {"a digest": [1, 2, 3]})
            (made,) = index._db.execute("SELECT sql FROM sqlite_master WHERE name = 'vectors_1'").fetchone()
            assert "USING vec0" in made


@pytest.mark.parametrize("identity", [MODEL, ODD], ids=lambda identity: identity.model)
def test_the_nearest_are_the_nearest_with_their_cosines(way: str, tmp_path: Path, identity: Identity) -> None:
    source, asked = Lines(300), vector_of("asked", identity.dimensions)
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        refresh(index, [source])
        embed_all(index, identity)
        true = {line: cosine(asked, vector_of(line, identity.dimensions)) for line in source.lines}
        best = sorted(true, key=lambda line: -true[line])
        found = index.nearest(identity, asked, 10)
        assert texts(index, found) == best[:10]
        assert list(found.values()) == pytest.approx([true[line] for line in best[:10]], abs=5e-3)
        mine = [line for line in best if not int(line) % 10]
        assert texts(index, index.nearest(identity, asked, 10, MINE)) == mine[:10]
        assert len(index.nearest(identity, asked, 999)) == 300
        few = dict(zip(list(found)[:3], [true[line] for line in best[:3]], strict=True))
        assert index.cosines(identity, asked, few.keys()) == pytest.approx(few, abs=5e-3)


def test_what_changes_is_searched_as_it_is(way: str, tmp_path: Path) -> None:
    source = Lines(20)
    path = tmp_path / "memory.sqlite"
    with MemoryIndex(path) as index, MemoryIndex(path) as reader:
        refresh(index, [source])
        embed_all(index, MODEL)
        asked = vector_of("7", 16)
        assert texts(reader, reader.nearest(MODEL, asked, 1)) == ["7"]
        source.lines.remove("7")
        source.lines.append("77")
        refresh(index, [source])
        assert "7" not in texts(reader, reader.nearest(MODEL, asked, 99))
        assert len(reader.nearest(MODEL, asked, 99)) == 19, "what is new has no vector yet"
        embed_all(index, MODEL)
        assert texts(reader, reader.nearest(MODEL, vector_of("77", 16), 1)) == ["77"]


def test_vectors_that_the_cache_no_longer_holds_are_missing_again(way: str, tmp_path: Path) -> None:
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        refresh(index, [Lines(30)])
        for identity in (MODEL, ODD):
            embed_all(index, identity)
            assert index.count_unembedded(identity) == 0
        index.trim_cache(ODD, 10)
        assert (index.count_unembedded(MODEL), index.count_unembedded(ODD)) == (20, 0)
        assert len(index.nearest(MODEL, vector_of("question", MODEL.dimensions), 30)) == 10
        assert index.is_intact()
        embed_all(index, MODEL)
        assert index.count_unembedded(MODEL) == 0
        assert index.is_intact()


@pytest.mark.parametrize("first", WAYS)
def test_either_goes_on_with_what_the_other_wrote(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, first: str) -> None:
    source, path = Lines(30), tmp_path / "memory.sqlite"
    second = next(way for way in WAYS if way != first)
    for turn, way in enumerate((first, second, first, second)):
        use(way, monkeypatch)
        with MemoryIndex(path) as index:
            source.lines = [str(number) for number in range(turn, 30 + turn)]
            refresh(index, [source])
            embed_all(index, MODEL)
            near = index.nearest(MODEL, vector_of("25", 16), 99)
            assert (texts(index, near)[0], len(near)) == ("25", 30)


def test_among_many_the_bits_choose_what_is_compared_in_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, asked = Lines(2000), vector_of("1230", 64)
    identity = Identity(provider="p", model="m", dimensions=64)
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        refresh(index, [source])
        embed_all(index, identity)
        monkeypatch.setattr(vectors, "EXACT_LIMIT", 2000)
        exactly, mine = index.nearest(identity, asked, 20), index.nearest(identity, asked, 20, MINE)
        monkeypatch.setattr(vectors, "EXACT_LIMIT", 0)
        monkeypatch.setattr(vectors, "RESCORED", 8)  # these lie in all directions alike, which those of texts do not
        roughly = index.nearest(identity, asked, 20)
        assert texts(index, roughly)[0] == "1230"
        assert len(roughly.keys() & exactly.keys()) >= 15
        assert all(roughly[key] == pytest.approx(exactly[key]) for key in roughly.keys() & exactly.keys())
        assert len(index.nearest(identity, asked, 20, MINE).keys() & mine.keys()) >= 15
        assert len(index.nearest(identity, asked, 20, MINE)) == 20


LAYOUT_7 = """
CREATE TABLE documents (path TEXT PRIMARY KEY, source TEXT NOT NULL, stamp TEXT NOT NULL, state TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE identities (
    id INTEGER PRIMARY KEY, provider TEXT NOT NULL, model TEXT NOT NULL, dimensions INTEGER NOT NULL,
    UNIQUE (provider, model, dimensions)
);
CREATE TABLE embeddings (
    identity INTEGER NOT NULL, digest TEXT NOT NULL, vector BLOB NOT NULL, sum INTEGER NOT NULL, used INTEGER NOT NULL,
    PRIMARY KEY (identity, digest)
) WITHOUT ROWID;
CREATE INDEX embeddings_by_digest ON embeddings (digest);
PRAGMA user_version = 7;
"""


def test_a_file_with_vectors_as_floats_is_converted_without_embedding_again(way: str, tmp_path: Path) -> None:
    source, asked, path = Lines(1200), vector_of("asked", MODEL.dimensions), tmp_path / "memory.sqlite"
    with MemoryIndex(tmp_path / "other.sqlite") as index:
        refresh(index, [source])
        digests = index.unembedded(MODEL, 9999)
        embed_all(index, MODEL)
        expected = texts(index, index.nearest(MODEL, asked, 10))
    db = sqlite3.connect(path)
    db.executescript(LAYOUT_7)
    db.execute("INSERT INTO identities VALUES (5, ?, ?, ?)", (MODEL.provider, MODEL.model, MODEL.dimensions))
    for digest, text in digests.items():
        vector = array("f", vector_of(text.split("\n")[1], MODEL.dimensions)).tobytes()
        checked = tables.checksum(MODEL.provider, MODEL.model, MODEL.dimensions, digest, vector)
        db.execute("INSERT INTO embeddings VALUES (5, ?, ?, ?, 0)", (digest, vector, checked + (text.endswith("\n7"))))
    db.commit()
    db.close()
    with MemoryIndex(path) as index:
        assert index.known() == {}, "the notes are read again"
        refresh(index, [source])
        assert [text.split("\n")[1] for text in index.unembedded(MODEL, 10).values()] == ["7"], "the only damaged one"
        embed_all(index, MODEL)
        assert index.is_intact()
        assert texts(index, index.nearest(MODEL, asked, 10)) == expected
    assert sorted(each.name for each in tmp_path.iterdir()) == ["memory.sqlite", "other.sqlite"]


def test_vectors_whose_copying_was_interrupted_are_copied_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    source, path = Lines(50), tmp_path / "memory.sqlite"
    with MemoryIndex(path) as index:
        refresh(index, [source])
        embed_all(index, MODEL)
    tables.set_aside(path)
    monkeypatch.setattr(tables, "COPIED_AT_ONCE", 20)
    with monkeypatch.context() as patch:
        patch.setattr(tables, "checksum", interrupted_after(70, tables.checksum))
        with pytest.raises(KeyboardInterrupt):
            MemoryIndex(path).__enter__()
    with MemoryIndex(path) as index:
        refresh(index, [source])
        assert index.unembedded(MODEL, 99) == {}
        assert index.is_intact()
    assert [each.name for each in tmp_path.iterdir()] == ["memory.sqlite"]


def interrupted_after(calls: int, function: Callable[..., int]) -> Callable[..., int]:
    """Return the function, which raises KeyboardInterrupt after so many calls."""
    left = iter(range(calls))

    def call(*arguments: str | int | bytes) -> int:
        if next(left, None) is None:
            raise KeyboardInterrupt
        return function(*arguments)

    return call


async def test_words_are_compared_where_there_is_neither(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tables, "load_vectors", lambda _: False)
    monkeypatch.setattr(VecMatrix, "__init__", lambda self, db: exec("raise ImportError"))
    place = Place(tmp_path)
    place.put("MEMORY.md", "the door code is 4711\n")
    async with place.memory("counted") as memory:
        assert await citations(memory, "door") == ["MEMORY.md#L1-L1"]
        assert place.provider.texts == [], "nobody pays for vectors that cannot be searched"
        found = await memory.search("door", EVERYTHING)
        assert found.remarks[0].startswith("Only keywords were compared: neither sqlite-vec")
