"""The memory index: the notes' chunks, found by their words and by their vectors. Derived; one thread at a time.

Every method blocks: those on an event loop call it in a thread.
"""

from __future__ import annotations

import array
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from plugins.memory.chunks import Chunk, chunks_of
from plugins.memory.notes import find_notes, read_note
from plugins.memory.tables import open_tables
from plugins.memory.words import indexed, quoted
from sessions.sqlite import reading

PART = 3
"""Characters that a part of a word has at least: the index of parts knows no shorter ones."""


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What made vectors. Vectors of two identities are never compared."""

    provider: str
    model: str
    dimensions: int


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the notes found: how many there are, which were read anew, which are gone, which could not be
    read, and how many are left for the next look."""

    notes: int
    read: tuple[str, ...]
    gone: tuple[str, ...]
    unreadable: tuple[str, ...]
    left: int = 0


class MemoryIndex:
    """The index of the notes of one workspace, in the file `path`. Use as a context manager.

    `searches_vectors` is False where this Python's SQLite loads no extensions; then keywords alone are searched.
    """

    def __init__(self, path: Path, workspace: Path) -> None:
        self._path = path
        self._workspace = workspace
        self._db: Any = None
        self.searches_vectors = False

    def __enter__(self) -> Self:
        self._db, self.searches_vectors = open_tables(self._path)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._db.close()

    # --- the notes ----------------------------------------------------------------------------------------------------

    def refresh(self, most: int | None = None) -> Refreshed:
        """Read the notes that changed, at most so many, and forget those that are gone. Each note is taken in as a whole or
        not at all."""
        there = find_notes(self._workspace)
        known = dict(self._db.execute("SELECT path, stamp FROM notes"))
        read, unreadable = [], []
        changed = {path: stamp for path, stamp in there.items() if known.get(path) != stamp}
        now = dict(list(changed.items())[:most])
        for path, stamp in now.items():
            text = read_note(self._workspace, path)
            if text is None:
                unreadable.append(path)
            else:
                self._take(path, stamp, chunks_of(path, text))
                read.append(path)
        gone = [path for path in known if path not in there or path in unreadable]
        for path in gone:
            self._take(path, None, ())
        return Refreshed(
            notes=len(there),
            read=tuple(read),
            gone=tuple(gone),
            unreadable=tuple(unreadable),
            left=len(changed) - len(now),
        )

    def _take(self, path: str, stamp: str | None, chunks: Sequence[Chunk]) -> None:
        """Have these chunks be all there is of a note; without a stamp the note is gone."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            old = [row[0] for row in db.execute("SELECT id FROM chunks WHERE path = ?", (path,))]
            tables = ["words", "parts", *self._vector_tables()]
            for table, key in [("chunks", "id"), *((table, "rowid") for table in tables)]:
                db.executemany(f"DELETE FROM {table} WHERE {key} = ?", [(each,) for each in old])  # noqa: S608 - names of ours
            db.execute("DELETE FROM notes WHERE path = ?", (path,))
            if stamp is not None:
                db.execute("INSERT INTO notes VALUES (?, ?)", (path, stamp))
                for chunk in chunks:
                    self._add(chunk)
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _add(self, chunk: Chunk) -> None:
        db = self._db
        row = (chunk.path, chunk.first, chunk.last, msgspec.json.encode(chunk.headings).decode(), chunk.text, chunk.digest())
        added = db.execute("INSERT INTO chunks (path, first, last, headings, text, digest) VALUES (?, ?, ?, ?, ?, ?)", row)
        text = chunk.embedded()
        db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (added.lastrowid, indexed(text)))
        db.execute("INSERT INTO parts (rowid, text) VALUES (?, ?)", (added.lastrowid, text))
        for table, identity in self._vector_tables().items():
            # What was embedded before, under whatever path and line, is not embedded again.
            db.execute(
                f"INSERT INTO {table} (rowid, embedding)"  # noqa: S608 - a name of ours
                " SELECT ?, vector FROM embeddings WHERE identity = ? AND digest = ?",
                (added.lastrowid, identity, chunk.digest()),
            )

    def chunks(self, keys: Collection[int]) -> dict[int, Chunk]:
        """The chunks with these ids, of those that exist."""
        marks = ", ".join("?" * len(keys))
        rows = self._db.execute(
            f"SELECT id, path, first, last, headings, text FROM chunks WHERE id IN ({marks})",  # noqa: S608 - marks alone
            tuple(keys),
        )
        return {
            key: Chunk(
                path=path, first=first, last=last, headings=msgspec.json.decode(headings, type=tuple[str, ...]), text=text
            )
            for key, path, first, last, headings, text in rows
        }

    def size(self) -> tuple[int, int]:
        """How many notes and how many chunks there are."""
        (notes,) = self._db.execute("SELECT count(*) FROM notes").fetchone()
        (chunks,) = self._db.execute("SELECT count(*) FROM chunks").fetchone()
        return notes, chunks

    # --- keywords -----------------------------------------------------------------------------------------------------

    def keywords(self, words: Sequence[str], limit: int) -> dict[int, float]:
        """The chunks that have the most telling of these words, and how well: the negated bm25, larger is better. A word
        that no chunk has is looked for inside of words."""
        lone = [word for word in words if not self._has(word)]
        query = " OR ".join(quoted(word) for word in words if word not in lone)
        found = self._ranked("words", query, limit) if query else {}
        parts = [word for word in lone if len(word) >= PART]
        if parts:
            for key, score in self._ranked("parts", " OR ".join(map(quoted, parts)), limit).items():
                found[key] = found.get(key, 0.0) + score
        return dict(sorted(found.items(), key=lambda each: -each[1])[:limit])

    def _has(self, word: str) -> bool:
        found = self._db.execute("SELECT 1 FROM words WHERE words MATCH ? LIMIT 1", (quoted(word),)).fetchone()
        return found is not None

    def _ranked(self, table: str, query: str, limit: int) -> dict[int, float]:
        rows = self._db.execute(
            f"SELECT rowid, -bm25({table}) FROM {table} WHERE {table} MATCH ? ORDER BY rank LIMIT ?",  # noqa: S608 - of ours
            (query, limit),
        )
        return dict(rows)

    # --- vectors ------------------------------------------------------------------------------------------------------

    def unembedded(self, identity: Identity, limit: int) -> dict[str, str]:
        """Texts that have no vector of this identity yet, by their digests."""
        rows = self._db.execute(
            "SELECT min(id), digest FROM chunks WHERE digest NOT IN (SELECT digest FROM embeddings WHERE identity = ?)"
            " GROUP BY digest ORDER BY 1 DESC LIMIT ?",
            (self._number(identity), limit),
        ).fetchall()
        chunks = self.chunks([key for key, _ in rows])
        return {digest: chunks[key].embedded() for key, digest in rows}

    def count_unembedded(self, identity: Identity) -> int:
        """How many texts `unembedded` would give without a limit."""
        found = self._db.execute(
            "SELECT count(DISTINCT digest) FROM chunks"
            " WHERE digest NOT IN (SELECT digest FROM embeddings WHERE identity = ?)",
            (self._number(identity),),
        ).fetchone()
        return int(found[0])

    def embed(self, identity: Identity, vectors: Mapping[str, Sequence[float]]) -> None:
        """Keep vectors by the digests of what was embedded, and give them to the chunks that say so."""
        number = self._number(identity)
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            for digest, vector in vectors.items():
                if len(vector) != identity.dimensions:
                    raise ValueError(f"{identity.model} gave {len(vector)} dimensions instead of {identity.dimensions}")
                packed = _packed(vector)
                db.execute("INSERT OR REPLACE INTO embeddings VALUES (?, ?, ?)", (number, digest, packed))
                keys = db.execute("SELECT id FROM chunks WHERE digest = ?", (digest,)).fetchall()
                table = f"vectors_{number}"
                db.executemany(f"DELETE FROM {table} WHERE rowid = ?", keys)  # noqa: S608 - a name of ours
                db.executemany(
                    f"INSERT INTO {table} (rowid, embedding) VALUES (?, ?)",  # noqa: S608 - a name of ours
                    [(key, packed) for (key,) in keys],
                )
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def nearest(self, identity: Identity, vector: Sequence[float], limit: int) -> dict[int, float]:
        """The chunks nearest to a vector, with their cosines."""
        rows = self._db.execute(
            f"SELECT rowid, 1 - distance FROM vectors_{self._number(identity)}"  # noqa: S608 - a name of ours
            " WHERE embedding MATCH ? AND k = ?",
            (_packed(vector), limit),
        )
        return dict(rows)

    def cosines(self, identity: Identity, vector: Sequence[float], keys: Collection[int]) -> dict[int, float]:
        """The cosines of these chunks, of those that have a vector."""
        marks = ", ".join("?" * len(keys))
        rows = self._db.execute(
            "SELECT chunks.id, 1 - vec_distance_cosine(vector, ?) FROM chunks JOIN embeddings USING (digest)"  # noqa: S608
            f" WHERE identity = ? AND chunks.id IN ({marks})",
            (_packed(vector), self._number(identity), *keys),
        )
        return dict(rows)

    def _number(self, identity: Identity) -> int:
        """The number of an identity, whose table is made when it is first met."""
        row = (identity.provider, identity.model, identity.dimensions)
        query = "SELECT id FROM identities WHERE provider = ? AND model = ? AND dimensions = ?"
        found = self._db.execute(query, row).fetchone()
        if found is None:
            self._db.execute("INSERT INTO identities (provider, model, dimensions) VALUES (?, ?, ?)", row)
            found = self._db.execute(query, row).fetchone()
            self._db.execute(
                f"CREATE VIRTUAL TABLE vectors_{found[0]} USING vec0"
                f" (embedding float[{identity.dimensions:d}] distance_metric=cosine)"
            )
        return int(found[0])

    def _vector_tables(self) -> dict[str, int]:
        """The tables of all identities with their numbers; none where they cannot be opened."""
        if not self.searches_vectors:
            return {}
        return {f"vectors_{number}": number for (number,) in self._db.execute("SELECT id FROM identities")}


def behind(path: Path, workspace: Path) -> list[str]:
    """The notes that an index does not know as they are now, and those that it knows and that are gone; the index is not
    touched. Raises what `sessions.sqlite` calls `Error` where it cannot be read."""
    there = find_notes(workspace)
    db = reading(path)
    try:
        known = dict(db.execute("SELECT path, stamp FROM notes"))
    finally:
        db.close()
    return sorted(note for note in there.keys() | known.keys() if there.get(note) != known.get(note))


def _packed(vector: Sequence[float]) -> bytes:
    return array.array("f", vector).tobytes()
