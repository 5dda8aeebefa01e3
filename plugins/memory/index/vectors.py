"""Vector search of the backend `sqlite`, with sqlite-vec if SQLite can load it, else with a matrix in memory.

Both give the same results. The vectors are stored in the table `embeddings`, from which sqlite-vec's tables are derived.
"""

from __future__ import annotations

import importlib
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeAlias

from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.memory.index.tables import STALE, packed

EXACT_LIMIT = 1_000
"""Maximum vectors that are compared in full. Among more, one bit per dimension is compared first."""

RESCORED, RESCORED_LIMIT = 4, 512
"""Vectors compared in full after that: this many per wanted result, up to this limit unless more results are wanted. The
time of sqlite-vec grows with their number. Measured on 2,960 turns of LoCoMo with 786 questions and six results each, 98.8 %
of the results are those of comparing all vectors in full, and recall is the same (8 per result: 99.7 %, twice the time)."""

MOST = 4096
"""The largest k of sqlite-vec."""


class VecTables:
    """Vector search with sqlite-vec: per identity a table with one bit per dimension of each vector.

    The nearest by bits are compared in full, with the vectors in `embeddings`. If the number of dimensions is
    no multiple of eight, the table has whole vectors instead. `identity` is a number, `vector` is packed (`tables.packed`).
    """

    def __init__(self, db: Any) -> None:
        self._db = db
        if db.execute("SELECT 1 FROM marks WHERE name = ?", (STALE,)).fetchone():
            self._rebuild()

    def add_identity(self, identity: int, dimensions: int) -> None:
        """Prepare for an identity's vectors."""
        whole = f"embedding int8[{dimensions:d}] distance_metric=cosine"
        column = f"bits bit[{dimensions:d}]" if _has_bits(dimensions) else whole
        self._db.execute(f"CREATE VIRTUAL TABLE IF NOT EXISTS vectors_{identity:d} USING vec0 ({column})")

    def remove_identity(self, identity: int) -> None:
        """Drop an identity."""
        self._db.execute(f"DROP TABLE IF EXISTS vectors_{identity:d}")

    def assign(self, key: int, digest: str, identity: int | None = None) -> None:
        """Assign to a chunk the stored vectors of its digest, of one identity or of all."""
        for number in self._dimensions() if identity is None else (identity,):
            if identity is not None:
                self._db.execute(f"DELETE FROM vectors_{number:d} WHERE rowid = ?", (key,))  # noqa: S608 - a name of ours
            self._insert(number, "SELECT ? AS key, vector FROM embeddings WHERE digest = ? AND identity = ?", key, digest)

    def _insert(self, identity: int, rows: str, *values: int | str) -> None:
        bits = _has_bits(self._dimensions()[identity])
        column, value = ("bits", "vec_quantize_binary(vec_int8(vector))") if bits else ("embedding", "vec_int8(vector)")
        self._db.execute(
            f"INSERT INTO vectors_{identity:d} (rowid, {column}) SELECT key, {value} FROM ({rows})",  # noqa: S608 - of ours
            (*values, identity),
        )

    def remove(self, keys: Sequence[int]) -> None:
        """Remove chunks."""
        for number in self._dimensions():
            self._db.executemany(f"DELETE FROM vectors_{number:d} WHERE rowid = ?", [(key,) for key in keys])  # noqa: S608

    def remove_trimmed(self) -> None:
        """Remove the chunks whose vectors are no longer stored."""
        for number in self._dimensions():
            gone = self._db.execute(
                f"SELECT rowid FROM vectors_{number:d}_rowids WHERE rowid NOT IN (SELECT chunks.id FROM chunks"  # noqa: S608
                " JOIN embeddings USING (digest) WHERE identity = ?)",
                (number,),
            ).fetchall()
            self._db.executemany(f"DELETE FROM vectors_{number:d} WHERE rowid = ?", gone)  # noqa: S608 - a name of ours

    def has_all(self, identity: int, chunks: int) -> bool:
        """Return True if all chunks, given their number, have a vector."""
        (count,) = self._db.execute(f"SELECT count(*) FROM vectors_{identity:d}_rowids").fetchone()  # noqa: S608 - of ours
        return bool(count == chunks)

    def nearest(self, identity: int, vector: bytes, limit: int, scope: Scope) -> dict[int, float]:
        """Return the keys of the nearest chunks in the scope with their cosines, nearest first."""
        roughly = _has_bits(self._dimensions()[identity])
        more = f"SELECT 1 FROM vectors_{identity:d}_rowids LIMIT 1 OFFSET ?"  # noqa: S608 - a name of ours
        if roughly and self._db.execute(more, (EXACT_LIMIT,)).fetchone() is None:
            return _first(self._all_cosines(identity, vector, scope), limit)
        many = max(limit, min(limit * RESCORED, RESCORED_LIMIT)) if roughly else limit
        if not scope.condition()[0]:
            near = self._near(identity, vector, many, roughly=roughly)
        else:
            # Filtering more results is cheaper than checking the scope of every vector.
            wanted, enough = (many, min(many, 2 * limit)) if roughly else (2 * many, many)
            near = self._near(identity, vector, wanted, roughly=roughly)
            inside = self._inside(near, scope)
            if len(inside) < enough and len(near) == wanted:
                near = self._near(identity, vector, many, roughly=roughly, scope=scope)
            else:
                near = inside
        cosines = self.cosines(identity, vector, near) if roughly else near
        return _first(cosines, limit)

    def _all_cosines(self, identity: int, vector: bytes, scope: Scope) -> dict[int, float]:
        condition, values = scope.condition()
        rows = self._db.execute(
            "SELECT chunks.id, 1 - vec_distance_cosine(vec_int8(vector), vec_int8(?)) FROM chunks"  # noqa: S608 - of ours
            " CROSS JOIN embeddings ON embeddings.digest = chunks.digest AND identity = ?"
            + (f" WHERE {condition}" if condition else ""),
            (vector, identity, *values),
        )
        return dict(rows)

    def _near(
        self, identity: int, vector: bytes, limit: int, *, roughly: bool, scope: Scope = EVERYTHING
    ) -> dict[int, float]:
        """Return the keys nearest by vector with their cosines, or nearest by bits with meaningless values."""
        condition, values = scope.condition()
        within = f" AND rowid IN (SELECT id FROM chunks WHERE {condition})" if condition else ""  # noqa: S608 - of ours
        compared = "bits MATCH vec_quantize_binary(vec_int8(?))" if roughly else "embedding MATCH vec_int8(?)"
        rows = self._db.execute(
            f"SELECT rowid, 1 - distance FROM vectors_{identity:d} WHERE {compared} AND k = ?{within}",  # noqa: S608 - of ours
            (vector, min(limit, MOST), *values),
        )
        return dict(rows)

    def _inside(self, near: Mapping[int, float], scope: Scope) -> dict[int, float]:
        condition, values = scope.condition()
        query = f"SELECT id FROM chunks WHERE id IN ({', '.join('?' * len(near))}) AND {condition}"  # noqa: S608 - of ours
        return {key: near[key] for (key,) in self._db.execute(query, (*near, *values))}

    def cosines(self, identity: int, vector: bytes, keys: Collection[int]) -> dict[int, float]:
        """Return the cosines of these chunks that have a vector."""
        marks = ", ".join("?" * len(keys))
        rows = self._db.execute(
            # CROSS JOIN fixes the order: look up the vectors of these chunks only.
            "SELECT chunks.id, 1 - vec_distance_cosine(vec_int8(vector), vec_int8(?)) FROM chunks"  # noqa: S608 - marks alone
            " CROSS JOIN embeddings ON embeddings.digest = chunks.digest AND identity = ?"
            f" WHERE chunks.id IN ({marks})",
            (vector, identity, *keys),
        )
        return dict(rows)

    def are_intact(self) -> bool:
        """Return True if the search tables match `embeddings`.

        Raises:
            Error: They cannot be read (`sessions.catalog.sqlite.Error`).
        """
        due = "FROM chunks CROSS JOIN embeddings ON embeddings.digest = chunks.digest AND identity = ?"
        for number, dimensions in self._dimensions().items():
            bits = _has_bits(dimensions)
            same_vector = "bits = vec_quantize_binary(vec_int8(vector))" if bits else "embedding = vector"
            held = f"FROM vectors_{number:d} AS held CROSS JOIN chunks ON chunks.id = held.rowid"
            same = f"{held} CROSS JOIN embeddings ON embeddings.digest = chunks.digest AND identity = ?"
            counts = {
                self._db.execute(f"SELECT count(*) {rows}", values).fetchone()
                for rows, values in (
                    (f"FROM vectors_{number:d}_rowids", ()),
                    (due, (number,)),
                    (f"{same} WHERE {same_vector}", (number,)),
                )
            }
            if len(counts) > 1:
                return False
            # A search also reads the space reserved for further vectors, and fails if that was truncated.
            self._near(number, packed([1.0] * dimensions), 1, roughly=bits)
        return True

    def _dimensions(self) -> Mapping[int, int]:
        """Return the dimensions of each identity."""
        return dict(self._db.execute("SELECT id, dimensions FROM identities"))

    def _rebuild(self) -> None:
        self._db.execute("BEGIN IMMEDIATE")
        for number, dimensions in self._dimensions().items():
            self.remove_identity(number)
            self.add_identity(number, dimensions)
            self._insert(
                number, "SELECT chunks.id AS key, vector FROM chunks JOIN embeddings USING (digest) WHERE identity = ?"
            )
        self._db.execute("DELETE FROM marks WHERE name = ?", (STALE,))
        self._db.execute("COMMIT")


def _has_bits(dimensions: int) -> bool:
    return dimensions % 8 == 0


def _first(cosines: Mapping[int, float], limit: int) -> dict[int, float]:
    """Return the keys with the largest cosines, the largest first."""
    return dict(sorted(cosines.items(), key=lambda each: (-each[1], each[0]))[:limit])


class VecMatrix:
    """Vector search with cached matrices of normalised vectors, one per identity. Raises ImportError without numpy."""

    def __init__(self, db: Any) -> None:
        self._np: Any = importlib.import_module("numpy")
        self._db = db
        self._rows: dict[int, tuple[tuple[int, int], Any, Any]] = {}
        self._changes = 0

    def add_identity(self, identity: int, dimensions: int) -> None:
        self._changed()

    def remove_identity(self, identity: int) -> None:
        self._rows.pop(identity, None)

    def assign(self, key: int, digest: str, identity: int | None = None) -> None:
        self._changed()

    def remove(self, keys: Sequence[int]) -> None:
        self._changed()

    def remove_trimmed(self) -> None:
        self._changed()

    def _changed(self) -> None:
        self._changes += 1
        self._db.execute("INSERT OR IGNORE INTO marks VALUES (?)", (STALE,))

    def has_all(self, identity: int, chunks: int) -> bool:
        """Return False: only the rows themselves tell."""
        return False

    def nearest(self, identity: int, vector: bytes, limit: int, scope: Scope) -> dict[int, float]:
        np = self._np
        keys, matrix = self._matrix(identity, len(vector))
        cosines = matrix @ self._normal(np.frombuffer(vector, np.int8).astype(np.float32))
        condition, values = scope.condition()
        if condition:
            allowed = self._db.execute(f"SELECT id FROM chunks WHERE {condition}", values)  # noqa: S608 - of ours
            inside = np.isin(keys, np.fromiter((key for (key,) in allowed), np.int64))
            keys, cosines = keys[inside], cosines[inside]
        best = np.argpartition(-cosines, limit)[:limit] if len(cosines) > limit else np.arange(len(cosines))
        return {int(keys[at]): float(cosines[at]) for at in best[np.lexsort((keys[best], -cosines[best]))]}

    def cosines(self, identity: int, vector: bytes, keys: Collection[int]) -> dict[int, float]:
        np = self._np
        there, matrix = self._matrix(identity, len(vector))
        chosen = np.isin(there, np.fromiter(keys, np.int64))
        cosines = matrix[chosen] @ self._normal(np.frombuffer(vector, np.int8).astype(np.float32))
        return dict(zip(there[chosen].tolist(), cosines.tolist(), strict=True))

    def are_intact(self) -> bool:
        """Return True: the matrix is read from rows with checksums."""
        return True

    def _matrix(self, identity: int, size: int) -> tuple[Any, Any]:
        """Return the keys and their normalised vectors, read again after any write."""
        np = self._np
        (version,) = self._db.execute("PRAGMA data_version").fetchone()
        stamp = (version, self._changes)
        if identity not in self._rows or self._rows[identity][0] != stamp:
            rows = self._db.execute(
                "SELECT chunks.id, vector FROM chunks JOIN embeddings USING (digest) WHERE identity = ?", (identity,)
            ).fetchall()
            matrix = (
                np.frombuffer(b"".join(vector for _, vector in rows), np.int8).reshape(len(rows), size).astype(np.float32)
            )
            self._rows[identity] = (stamp, np.fromiter((key for key, _ in rows), np.int64), self._normal(matrix))
        _, keys, normal = self._rows[identity]
        return keys, normal

    def _normal(self, vectors: Any) -> Any:
        """Normalise a vector or a matrix; zero vectors stay zero."""
        return vectors / self._np.maximum(self._np.linalg.norm(vectors, axis=-1, keepdims=True), 1e-12)


Vectors: TypeAlias = VecTables | VecMatrix
"""Two implementations with the same methods and results."""


def vectors_in(db: Any, *, extension: bool) -> Vectors | None:
    """Return the vector search of an open index, None if neither sqlite-vec nor numpy is available."""
    if extension:
        return VecTables(db)
    try:
        return VecMatrix(db)
    except ImportError:
        return None
