"""The memory index: chunks of the sources' documents, found by their words and by their vectors. Derived.

Every method blocks: those on an event loop call it in a thread, one at a time.
"""

from __future__ import annotations

import array
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import msgspec

from plugins.memory.chunks import Chunk
from plugins.memory.scope import EVERYTHING, Scope
from plugins.memory.sources import Reading, Source
from plugins.memory.tables import open_tables
from plugins.memory.words import indexed, quoted
from sessions.sqlite import reading

PART = 3
"""Characters that a part of a word has at least: the index of parts knows no shorter ones."""

_COLUMNS = ("path", "source", "first", "last", "headings", "text", "day", "owner", "senders", "private")
_MARKS = ", ".join("?" * len(_COLUMNS))


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What made vectors. Vectors of two identities are never compared."""

    provider: str
    model: str
    dimensions: int


class Refreshed(msgspec.Struct, frozen=True, kw_only=True):
    """What a look at the sources found: how many documents there are, which were read anew, which are gone, which could not
    be read, how many are left for the next look, and what the sources remark."""

    documents: int
    read: tuple[str, ...]
    gone: tuple[str, ...]
    unreadable: tuple[str, ...]
    left: int = 0
    remarks: tuple[str, ...] = ()


class MemoryIndex:
    """The index of the documents of some sources, in the file `path`. Use as a context manager.

    `searches_vectors` is False where this Python's SQLite loads no extensions; then keywords alone are searched.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: Any = None
        self.searches_vectors = False

    def __enter__(self) -> Self:
        self._db, self.searches_vectors = open_tables(self._path)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._db.close()

    # --- the documents ------------------------------------------------------------------------------------------------

    def refresh(self, sources: Sequence[Source], most: int | None = None) -> Refreshed:
        """Read the documents that changed, at most so many, and forget those that are gone, with all of other sources. Each
        is taken in as a whole or not at all."""
        known = {path: (stamp, state) for path, stamp, state in self._db.execute("SELECT path, stamp, state FROM documents")}
        stamps = {path: stamp for path, (stamp, _) in known.items()}
        listings = [(source, source.there(stamps)) for source in sources]
        there = {path: (source, stamp) for source, each in reversed(listings) for path, stamp in each.stamps.items()}
        changed = [path for path, (_, stamp) in there.items() if stamps.get(path) != stamp]
        read, unreadable = [], []
        for path in changed[:most]:
            source, stamp = there[path]
            reading = source.read(path, known[path][1] if path in known else "")
            if reading is None:
                unreadable.append(path)
            else:
                self._take(path, source.name, stamp, reading)
                read.append(path)
        gone = [path for path in known if path not in there or path in unreadable]
        for path in gone:
            self._take(path, "", None, Reading(chunks=()))
        return Refreshed(
            documents=len(there),
            read=tuple(read),
            gone=tuple(gone),
            unreadable=tuple(unreadable),
            left=len(changed) - len(read) - len(unreadable),
            remarks=tuple(remark for _, each in listings for remark in each.remarks),
        )

    def _take(self, path: str, source: str, stamp: str | None, reading: Reading) -> None:
        """Have this be what is known of a document; without a stamp it is gone."""
        db = self._db
        db.execute("BEGIN IMMEDIATE")
        try:
            old = db.execute("SELECT id FROM chunks WHERE path = ? AND first >= ?", (path, reading.since)).fetchall()
            tables = ["words", "parts", *self._vector_tables()]
            for table, key in [("chunks", "id"), *((table, "rowid") for table in tables)]:
                db.executemany(f"DELETE FROM {table} WHERE {key} = ?", old)  # noqa: S608 - names of ours
            db.execute("DELETE FROM documents WHERE path = ?", (path,))
            if stamp is not None:
                db.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", (path, source, stamp, reading.state))
                for chunk in reading.chunks:
                    self._add(msgspec.structs.replace(chunk, source=source))
            db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                db.execute("ROLLBACK")
            raise

    def _add(self, chunk: Chunk) -> None:
        db = self._db
        added = db.execute(f"INSERT INTO chunks ({', '.join(_COLUMNS)}, digest) VALUES ({_MARKS}, ?)", _row(chunk))  # noqa: S608
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

    def chunks(self, keys: Collection[int], scope: Scope = EVERYTHING) -> dict[int, Chunk]:
        """The chunks with these ids, of those that exist and are in the scope."""
        marks = ", ".join("?" * len(keys))
        condition, values = scope.condition()
        rows = self._db.execute(
            f"SELECT id, {', '.join(_COLUMNS)} FROM chunks WHERE id IN ({marks})"  # noqa: S608 - names of ours
            + (f" AND {condition}" if condition else ""),
            (*keys, *values),
        )
        return {key: _chunk(row) for key, *row in rows}

    def size(self) -> tuple[int, int]:
        """How many documents and how many chunks there are."""
        (documents,) = self._db.execute("SELECT count(*) FROM documents").fetchone()
        (chunks,) = self._db.execute("SELECT count(*) FROM chunks").fetchone()
        return documents, chunks

    # --- keywords -----------------------------------------------------------------------------------------------------

    def keywords(self, words: Sequence[str], limit: int, scope: Scope = EVERYTHING) -> dict[int, float]:
        """The chunks in the scope that have the most telling of these words, and how well: the negated bm25, larger is
        better. A word that no chunk has is looked for inside of words."""
        lone = [word for word in words if not self._has(word, scope)]
        query = " OR ".join(quoted(word) for word in words if word not in lone)
        found = self._ranked("words", query, limit, scope) if query else {}
        parts = [word for word in lone if len(word) >= PART]
        if parts:
            for key, score in self._ranked("parts", " OR ".join(map(quoted, parts)), limit, scope).items():
                found[key] = found.get(key, 0.0) + score
        return dict(sorted(found.items(), key=lambda each: -each[1])[:limit])

    def _has(self, word: str, scope: Scope) -> bool:
        joined, values = _joined("words", scope)
        query = f"SELECT 1 FROM words{joined} words MATCH ? LIMIT 1"  # noqa: S608 - names of ours
        return self._db.execute(query, (*values, quoted(word))).fetchone() is not None

    def _ranked(self, table: str, query: str, limit: int, scope: Scope) -> dict[int, float]:
        joined, values = _joined(table, scope)
        rows = self._db.execute(
            f"SELECT {table}.rowid, -bm25({table}) FROM {table}{joined} {table} MATCH ? ORDER BY rank LIMIT ?",  # noqa: S608
            (*values, query, limit),
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

    def nearest(
        self, identity: Identity, vector: Sequence[float], limit: int, scope: Scope = EVERYTHING
    ) -> dict[int, float]:
        """The chunks in the scope that are nearest to a vector, with their cosines."""
        condition, values = scope.condition()
        within = f" AND rowid IN (SELECT id FROM chunks WHERE {condition})" if condition else ""  # noqa: S608 - of ours
        rows = self._db.execute(
            f"SELECT rowid, 1 - distance FROM vectors_{self._number(identity)}"  # noqa: S608 - a name of ours
            f" WHERE embedding MATCH ? AND k = ?{within}",
            (_packed(vector), limit, *values),
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


def behind(path: Path, sources: Sequence[Source]) -> list[str]:
    """The documents that an index does not know as they are now, and those that it knows and that are gone; the index is
    not touched. Raises what `sessions.sqlite` calls `Error` where it cannot be read."""
    db = reading(path)
    try:
        known = dict(db.execute("SELECT path, stamp FROM documents"))
    finally:
        db.close()
    there = {path: stamp for source in sources for path, stamp in source.there(known).stamps.items()}
    return sorted(path for path in there.keys() | known.keys() if there.get(path) != known.get(path))


def _row(chunk: Chunk) -> tuple[str | int, ...]:
    """A chunk as its columns, and its digest."""
    headings = msgspec.json.encode(chunk.headings).decode()
    senders = "".join(f"\n{sender}\n" for sender in chunk.senders)
    where = (chunk.path, chunk.source, chunk.first, chunk.last)
    return *where, headings, chunk.text, chunk.day, chunk.owner, senders, int(chunk.private), chunk.digest()


def _chunk(row: Sequence[Any]) -> Chunk:
    path, source, first, last, headings, text, day, owner, senders, private = row
    return Chunk(
        path=path,
        source=source,
        first=first,
        last=last,
        headings=msgspec.json.decode(headings, type=tuple[str, ...]),
        text=text,
        day=day,
        owner=owner,
        senders=tuple(sender for sender in senders.split("\n") if sender),
        private=bool(private),
    )


def _joined(table: str, scope: Scope) -> tuple[str, tuple[str, ...]]:
    """How a table of words is narrowed to a scope: what stands between its name and its own condition, and the values."""
    condition, values = scope.condition()
    # CROSS JOIN: the words first, then the chunk of each that has them; never the other way round.
    joined = f" CROSS JOIN chunks ON chunks.id = {table}.rowid WHERE {condition} AND" if condition else " WHERE"
    return joined, values


def _packed(vector: Sequence[float]) -> bytes:
    return array.array("f", vector).tobytes()
