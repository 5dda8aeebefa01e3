"""The backend `sqlite`: chunks searched by keywords and vectors, derived from the sources.

Every method blocks and must be called in a thread, one at a time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import msgspec

from plugins.api.memory.chunks import Chunk
from plugins.api.memory.memory_backend import Document, Identity
from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.memory.index.keywords import LISTED, Keywords, listed, version
from plugins.memory.index.tables import checksum, is_intact, is_sealed, mark_closed, open_tables, packed
from plugins.memory.index.vectors import Vectors, vectors_in
from plugins.support.text.words import indexed
from sessions.catalog.sqlite import lacks_full_text

_HEADINGS = msgspec.json.Decoder(tuple[str, ...])
_COLUMNS = ("path", "source", "first", "last", "headings", "text", "day", "owner", "senders", "private")
_INSERT = f"INSERT INTO chunks ({', '.join(_COLUMNS)}, digest, sum) VALUES ({', '.join('?' * len(_COLUMNS))}, ?, ?)"  # noqa: S608


class MemoryIndex:
    """A `MemoryBackend` in a SQLite file, used as a context manager.

    `searches_vectors` is False if SQLite loads no extensions and numpy is not installed.
    """

    name: ClassVar[str] = "sqlite"

    @classmethod
    def why_not(cls) -> str:
        return lacks_full_text()

    def __init__(self, path: Path) -> None:
        self._path = path
        self._db: Any = None
        self._vectors: Vectors | None = None
        self._words: Keywords

    def __enter__(self) -> Self:
        self._db, extension = open_tables(self._path)
        self._words = Keywords(self._db)
        try:
            self._vectors = vectors_in(self._db, extension=extension)
        except BaseException:
            self._db.close()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._db.close()

    @property
    def searches_vectors(self) -> bool:
        return self._vectors is not None

    def is_intact(self) -> bool:
        """Verify the file, see `tables.is_intact`.

        Raises:
            Error: The vectors cannot be read (`sessions.catalog.sqlite.Error`).
        """
        return is_intact(self._db) and (self._vectors is None or self._vectors.are_intact())

    def is_sealed(self) -> bool:
        """Return True if the file was not written since it was closed."""
        return is_sealed(self._db, self._path)

    def mark_closed(self) -> int:
        """Mark the file as being closed, see `tables.mark_closed`."""
        return mark_closed(self._db)

    def version(self) -> int:
        """Return a number that changes only when another connection has written."""
        return version(self._db)

    # --- the documents ------------------------------------------------------------------------------------------------

    def known(self) -> dict[str, tuple[str, str]]:
        rows = self._db.execute("SELECT path, stamp, state FROM documents")
        return {path: (stamp, state) for path, stamp, state in rows}

    def store(self, documents: Iterable[Document]) -> None:
        """Store documents, all of them or none."""
        with self._transaction():
            for document in documents:
                self._store(document)

    def remove(self, paths: Sequence[str]) -> None:
        with self._transaction():
            for path in paths:
                self._remove(path)

    def _store(self, document: Document) -> None:
        self._remove(document.path, document.reading.since)
        row = (document.path, document.source, document.stamp, document.reading.state)
        self._db.execute("INSERT INTO documents VALUES (?, ?, ?, ?)", row)
        for chunk in document.reading.chunks:
            self._add(msgspec.structs.replace(chunk, source=document.source))

    def _remove(self, path: str, since: int = 0) -> None:
        """Remove a document with its chunks from this line on."""
        db = self._db
        old = db.execute("SELECT id FROM chunks WHERE path = ? AND first >= ?", (path, since)).fetchall()
        # FTS5 removes the trigrams of a text that it does not store by that text, so before the chunks.
        db.executemany("INSERT INTO parts (parts, rowid, text) SELECT 'delete', id, text FROM parts_text WHERE id = ?", old)
        for table, key in (("chunks", "id"), ("words", "rowid")):
            db.executemany(f"DELETE FROM {table} WHERE {key} = ?", old)  # noqa: S608 - names of ours
        if self._vectors:
            self._vectors.remove([key for (key,) in old])
        db.execute("DELETE FROM documents WHERE path = ?", (path,))

    def _add(self, chunk: Chunk) -> None:
        db = self._db
        key = db.execute(_INSERT, _row(chunk)).lastrowid
        db.execute("INSERT INTO words (rowid, text) VALUES (?, ?)", (key, indexed(chunk.embedded())))
        db.execute("INSERT INTO parts (rowid, text) SELECT id, text FROM parts_text WHERE id = ?", (key,))
        # Reuse existing vectors of the same text.
        db.execute("UPDATE embeddings SET used = ? WHERE digest = ?", (round(time.time()), chunk.digest()))
        if self._vectors:
            self._vectors.assign(key, chunk.digest())

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[None]:
        self._db.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise

    def optimize(self) -> None:
        """Merge the segments of the FTS5 indexes, all of which each search reads. Segments and the write-ahead log keep what
        was removed until then."""
        for table in ("words", "parts"):
            self._db.execute(f"INSERT INTO {table} ({table}) VALUES ('optimize')")  # noqa: S608 - names of ours
        self._db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()

    def chunks(self, keys: Collection[int], scope: Scope = EVERYTHING) -> dict[int, Chunk]:
        condition, values = scope.condition()
        rows = self._db.execute(
            f"SELECT id, {', '.join(_COLUMNS)} FROM chunks WHERE id IN {LISTED}"  # noqa: S608 - names of ours
            + (f" AND {condition}" if condition else ""),
            (listed(keys), *values),
        )
        return {key: _chunk(row) for key, *row in rows}

    def neighbours(self, keys: Collection[int], distance: int) -> set[int]:
        rows = self._db.execute(
            "SELECT other.id FROM json_each(?) AS it CROSS JOIN chunks AS one ON one.id = it.value"
            " CROSS JOIN chunks AS other ON other.id BETWEEN one.id - ? AND one.id + ? AND other.path = one.path",
            (listed(keys), distance, distance),
        )
        return {key for (key,) in rows}

    def size(self) -> tuple[int, int]:
        return self._words.size()

    # --- keywords -----------------------------------------------------------------------------------------------------

    def keywords(self, words: Sequence[str], limit: int, scope: Scope = EVERYTHING) -> dict[int, float]:
        return self._words.found(words, limit, scope)

    def word_counts(self, words: Collection[str]) -> tuple[int, dict[str, int]]:
        return self.size()[1], self._words.word_counts(words)

    def indexed_words(self, keys: Collection[int]) -> dict[int, str]:
        return self._words.indexed_words(keys)

    # --- vectors ------------------------------------------------------------------------------------------------------

    def unembedded(self, identity: Identity, limit: int) -> dict[str, str]:
        rows = self._db.execute(
            "SELECT min(id), digest FROM chunks WHERE NOT EXISTS (SELECT 1 FROM embeddings INDEXED BY embeddings_by_digest"
            " WHERE embeddings.digest = chunks.digest AND identity = ?)"
            " GROUP BY digest ORDER BY 1 DESC LIMIT ?",
            (self._number(identity), limit),
        ).fetchall()
        chunks = self.chunks([key for key, _ in rows])
        return {digest: chunks[key].embedded() for key, digest in rows}

    def count_unembedded(self, identity: Identity) -> int:
        number = self._number(identity)
        if number and self._vectors and self._vectors.has_all(number, self.size()[1]):
            return 0
        found = self._db.execute(
            # The index has no vectors, which would be read with the table.
            "SELECT count(*) FROM (SELECT digest FROM chunks"
            " EXCEPT SELECT digest FROM embeddings INDEXED BY embeddings_by_digest WHERE identity = ?)",
            (number,),
        ).fetchone()
        return int(found[0])

    def store_vectors(self, identity: Identity, vectors: Mapping[str, Sequence[float]]) -> None:
        db = self._db
        with self._transaction():
            number = self._number(identity) or self._begin(identity)
            for digest, vector in vectors.items():
                if len(vector) != identity.dimensions:
                    raise ValueError(f"{identity.model} gave {len(vector)} dimensions instead of {identity.dimensions}")
                self._keep(number, identity, digest, packed(vector))
                for (key,) in db.execute("SELECT id FROM chunks WHERE digest = ?", (digest,)).fetchall():
                    if self._vectors:
                        self._vectors.assign(key, digest, number)

    def _keep(self, number: int, identity: Identity, digest: str, vector: bytes) -> None:
        checked = checksum(identity.provider, identity.model, identity.dimensions, digest, vector)
        self._db.execute(
            "INSERT OR REPLACE INTO embeddings (identity, digest, vector, sum, used) VALUES (?, ?, ?, ?, ?)",
            (number, digest, vector, checked, round(time.time())),
        )

    def trim_cache(self, identity: Identity | None, limit: int) -> None:
        number = self._number(identity) if identity else None
        (stored,) = self._db.execute("SELECT count(*) FROM embeddings").fetchone()
        if stored <= limit or stored - (self._count_needed(identity) if identity else 0) <= limit:
            return
        needed = "(identity = ? AND digest IN (SELECT digest FROM chunks))"
        with self._transaction():
            self._db.execute(
                "DELETE FROM embeddings WHERE (identity, digest) IN (SELECT identity, digest FROM embeddings"  # noqa: S608
                f" WHERE NOT {needed} ORDER BY used DESC, digest LIMIT -1 OFFSET ?)",
                (number or 0, limit),
            )
            spent = "SELECT id FROM identities WHERE id <> ? AND id NOT IN (SELECT identity FROM embeddings)"
            for (each,) in self._db.execute(spent, (number or 0,)).fetchall():
                if self._vectors:
                    self._vectors.remove_identity(each)
                self._db.execute("DELETE FROM identities WHERE id = ?", (each,))
            if self._vectors:
                self._vectors.remove_trimmed()

    def _count_needed(self, identity: Identity) -> int:
        """Return the number of the chunks' texts that have a vector of an identity."""
        (texts,) = self._db.execute("SELECT count(DISTINCT digest) FROM chunks").fetchone()
        return int(texts) - self.count_unembedded(identity)

    def nearest(
        self, identity: Identity, vector: Sequence[float], limit: int, scope: Scope = EVERYTHING
    ) -> dict[int, float]:
        number = self._number(identity)
        return self._vectors.nearest(number, packed(vector), limit, scope) if self._vectors and number else {}

    def cosines(self, identity: Identity, vector: Sequence[float], keys: Collection[int]) -> dict[int, float]:
        number = self._number(identity)
        return self._vectors.cosines(number, packed(vector), keys) if self._vectors and number else {}

    def _number(self, identity: Identity) -> int | None:
        """Return the number of an identity, None if it is unknown."""
        row = (identity.provider, identity.model, identity.dimensions)
        query = "SELECT id FROM identities WHERE provider = ? AND model = ? AND ? IN (dimensions, 0) ORDER BY id DESC"
        found = self._db.execute(query, row).fetchone()
        return int(found[0]) if found else None

    def _begin(self, identity: Identity) -> int:
        row = (identity.provider, identity.model, identity.dimensions)
        made = self._db.execute("INSERT INTO identities (provider, model, dimensions) VALUES (?, ?, ?)", row)
        number = int(made.lastrowid)
        if self._vectors:
            self._vectors.add_identity(number, identity.dimensions)
        return number


def _row(chunk: Chunk) -> tuple[str | int, ...]:
    """Return a chunk as its columns, with digest and checksum."""
    headings = msgspec.json.encode(chunk.headings).decode()
    senders = "".join(f"\n{sender}\n" for sender in chunk.senders)
    where = (chunk.path, chunk.source, chunk.first, chunk.last)
    row = (*where, headings, chunk.text, chunk.day, chunk.owner, senders, int(chunk.private), chunk.digest())
    return *row, checksum(*row)


def _chunk(row: Sequence[Any]) -> Chunk:
    path, source, first, last, headings, text, day, owner, senders, private = row
    return Chunk(
        path=path,
        source=source,
        first=first,
        last=last,
        headings=_HEADINGS.decode(headings),
        text=text,
        day=day,
        owner=owner,
        senders=tuple(sender for sender in senders.split("\n") if sender),
        private=bool(private),
    )
