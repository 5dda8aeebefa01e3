"""The tables of the memory index: one SQLite file, derived from the notes, which may be deleted at any time.

documents   each note or other document, in the version that was read
chunks      its chunks; their ids follow their order in it
words       their words, stemmed
parts_text  the text of each chunk with its place and headings
parts       its trigrams, for substrings of words; they refer to `parts_text`, without a copy of it and without positions
identities  the models that made vectors, and the vectors' dimensions
embeddings  every vector by its model and the digest of its text; a chunk that comes back is not embedded again
vectors_N   the vectors of the chunks by the model N, to be searched
marks       marks about the file itself

SQLite detects changes by other programs only by chance. So rows have checksums, and a closed file records when it was
closed: a file written since then is verified before it is used.
"""

from __future__ import annotations

import array
import contextlib
import itertools
import os
import time
import zlib
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from sessions.catalog.sqlite import Error, connect_blocking, create_private, load_vectors

LAYOUT = 8
"""Version of the tables and their content."""

FLOATS = 7
"""The last layout in which vectors were 32-bit floats, ordered by their digests."""

PATIENCE = 5.0
"""Seconds to wait for another process's lock."""

WAL = "-wal"
"""Suffix of SQLite's write-ahead log."""

SHARED_MEMORY = "-shm"
"""Suffix of the file that SQLite shares between processes."""

STALE = "vectors are stale"
"""The mark of a file whose tables `vectors_N` do not have all vectors of `embeddings`."""

FORMER = "-harmed"
"""Suffix of a file that cannot be used, until its vectors were copied."""

COPIED_AT_ONCE = 500
"""Vectors of such a file that are copied per transaction."""

EMBEDDED = (
    "CASE WHEN chunks.day <> '' THEN chunks.day"
    " WHEN substr(chunks.path, -3) = '.md' THEN substr(chunks.path, 1, length(chunks.path) - 3) ELSE chunks.path END"
    " || ' > ' || chunks.headings || char(10) || chunks.text"
)
"""SQL for the text of a chunk, like `Chunk.embedded`, with the headings as JSON: FTS5 allows no `json_each` here."""

_TABLES = f"""
BEGIN;
CREATE TABLE documents (
    path TEXT PRIMARY KEY, source TEXT NOT NULL, stamp TEXT NOT NULL, state TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE chunks (
    id INTEGER PRIMARY KEY AUTOINCREMENT, path TEXT NOT NULL, source TEXT NOT NULL,
    first INTEGER NOT NULL, last INTEGER NOT NULL, headings TEXT NOT NULL, text TEXT NOT NULL, digest TEXT NOT NULL,
    day TEXT NOT NULL, owner TEXT NOT NULL, senders TEXT NOT NULL, private INTEGER NOT NULL, sum INTEGER NOT NULL
);
CREATE INDEX chunks_by_path ON chunks (path);
CREATE INDEX chunks_by_digest ON chunks (digest);
CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = "porter unicode61 remove_diacritics 0 categories 'L* M* N* Co'");
CREATE VIEW parts_text AS SELECT id, {EMBEDDED} AS text FROM chunks;
CREATE VIRTUAL TABLE parts USING fts5 (
    text, content = 'parts_text', content_rowid = 'id', detail = none, tokenize = 'trigram'
);
CREATE TABLE identities (
    id INTEGER PRIMARY KEY, provider TEXT NOT NULL, model TEXT NOT NULL, dimensions INTEGER NOT NULL,
    UNIQUE (provider, model, dimensions)
);
CREATE TABLE embeddings (
    id INTEGER PRIMARY KEY, identity INTEGER NOT NULL, digest TEXT NOT NULL, vector BLOB NOT NULL, sum INTEGER NOT NULL,
    used INTEGER NOT NULL
);
CREATE UNIQUE INDEX embeddings_by_digest ON embeddings (digest, identity);
CREATE TABLE marks (name TEXT PRIMARY KEY) WITHOUT ROWID;
PRAGMA user_version = {LAYOUT};
COMMIT;
"""  # noqa: S608 - names of ours

IntactVector: TypeAlias = tuple[tuple[str, str, int], str, bytes]
"""A vector by its identity (provider, model, dimensions) and the digest of the text."""

_CLOSED = "closed at "
"""Prefix of the mark of a cleanly closed file, followed by its modification time in nanoseconds."""


def open_tables(path: Path) -> tuple[Any, bool]:
    """Open the file and return the connection and whether it can search vectors.

    A file that is unusable or has an earlier layout is made anew, with the intact vectors of the former one.

    Raises:
        OSError: No file can be created.
        Error: No file can be created (`sessions.catalog.sqlite.Error`).
    """
    try:
        opened = _opened(path)
    except Error as error:
        if "locked" in str(error) or "unable to open" in str(error):  # not a fault of the file
            raise
        set_aside(path)
        opened = _opened(path)
    former = _former(path)
    if former.exists():  # also if copying was interrupted
        try:
            _copy_vectors(opened[0], former)
        except BaseException:
            opened[0].close()
            raise
        remove_tables(former)
    return opened


def set_aside(path: Path) -> None:
    """Rename a file that cannot be used, so that `open_tables` makes a new one with its vectors. It must be closed."""
    former = _former(path)
    remove_tables(former)
    for suffix in ("", WAL):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + suffix).rename(former.with_name(former.name + suffix))
    remove_tables(path)


def _former(path: Path) -> Path:
    return path.with_name(path.name + FORMER)


def remove_tables(path: Path) -> None:
    """Delete the file with SQLite's other files. It must be closed."""
    for suffix in ("", "-journal", WAL, SHARED_MEMORY):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _opened(path: Path) -> tuple[Any, bool]:
    create_private(path)  # contains text of the notes
    connection = connect_blocking(path, patience=PATIENCE)
    try:
        connection.execute("PRAGMA page_size = 16384")  # vectors are long: compared a quarter faster, written twice as fast
        connection.execute("PRAGMA cache_size = -16000")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
        connection.execute("PRAGMA secure_delete = ON")  # what is removed must not remain in the file
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        if tables == 0:
            connection.executescript(_TABLES)
        elif version != LAYOUT:
            raise Error[0](f"its layout is {version}")
        connection.execute("SELECT count(*) FROM documents").fetchone()
    except BaseException:
        connection.close()
        raise
    return connection, load_vectors(connection)


# --- checksums ----------------------------------------------------------------------------------------------------------


def checksum(*columns: str | int | bytes) -> int:
    """Return the checksum of columns: a CRC-32, which detects accidental damage."""
    return zlib.crc32(b"\0".join(each if isinstance(each, bytes) else msgspec.json.encode(each) for each in columns))


def is_intact(db: Any) -> bool:
    """Verify an open index. Takes about a second for ten thousand notes."""
    try:
        if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            return False
        for table in ("words", "parts"):  # 1: also compare it with its content, which is in another table
            db.execute(f"INSERT INTO {table} ({table}, rank) VALUES ('integrity-check', 1)")  # noqa: S608 - names of ours
        return all(known == counted for known, counted in _checksums(db))
    except Error:
        return False


def _checksums(db: Any) -> Iterator[tuple[int, int]]:
    columns = "path, source, first, last, headings, text, day, owner, senders, private, digest"
    for *row, known in db.execute(f"SELECT {columns}, sum FROM chunks"):  # noqa: S608 - names of ours
        yield known, checksum(*row)
    query = (
        "SELECT provider, model, dimensions, digest, vector, sum FROM embeddings"
        " JOIN identities ON identities.id = embeddings.identity"
    )
    for *row, known in db.execute(query):
        yield known, checksum(*row)


# --- files that were closed -------------------------------------------------------------------------------------------


def mark_closed(db: Any) -> int:
    """Mark the file as being closed, and return the time that `seal` must set."""
    at = time.time_ns()
    db.execute("DELETE FROM marks WHERE name LIKE ?", (_CLOSED + "%",))
    db.execute("INSERT INTO marks VALUES (?)", (f"{_CLOSED}{at}",))
    return at


def seal(path: Path, at: int) -> None:
    """Set the modification time of a closed file to the one in its mark, so that later writes are detected."""
    with contextlib.suppress(FileNotFoundError):  # deleted meanwhile; rebuilt when needed
        os.utime(path, ns=(at, at))


def is_sealed(db: Any, path: Path) -> bool:
    """Return True if the file was not written since it was closed. SQLite's other files have their own checksums."""
    marks = {name for (name,) in db.execute("SELECT name FROM marks")}
    try:
        return f"{_CLOSED}{path.stat().st_mtime_ns}" in marks
    except FileNotFoundError:  # as above
        return False


# --- vectors ------------------------------------------------------------------------------------------------------------


def packed(vector: Sequence[float]) -> bytes:
    """Return a vector as 8-bit integers, of which the largest is 127: a cosine depends only on the direction.

    Positive numbers stay positive, since a bit for each of them is compared first.
    """
    largest = max(map(abs, vector), default=0.0) or 1.0
    return array.array("b", [round(127 * (number / largest)) or number > 0 for number in vector]).tobytes()


def _copy_vectors(db: Any, former: Path) -> None:
    """Copy the intact vectors of a former file, so that nothing is paid for twice."""
    saved = _intact_vectors(former)
    while some := list(itertools.islice(saved, COPIED_AT_ONCE)):
        db.execute("BEGIN IMMEDIATE")
        for identity, digest, vector in some:
            db.execute("INSERT OR IGNORE INTO identities (provider, model, dimensions) VALUES (?, ?, ?)", identity)
            db.execute(
                "INSERT OR IGNORE INTO embeddings (identity, digest, vector, sum, used)"
                " SELECT id, ?, ?, ?, ? FROM identities WHERE provider = ? AND model = ? AND dimensions = ?",
                (digest, vector, checksum(*identity, digest, vector), round(time.time()), *identity),
            )
        db.execute("INSERT OR IGNORE INTO marks VALUES (?)", (STALE,))
        db.execute("COMMIT")


def _intact_vectors(path: Path) -> Iterator[IntactVector]:
    """Yield the vectors of a damaged or former file with a valid checksum, reading from both ends."""
    columns = "provider, model, dimensions, digest, vector, sum"
    seen: set[tuple[tuple[str, str, int], str]] = set()
    for order in ("ASC", "DESC"):
        try:
            db = connect_blocking(path, patience=0.0)
            try:
                (layout,) = db.execute("PRAGMA user_version").fetchone()
                by = f"identity {order}, digest {order}" if layout == FLOATS else f"embeddings.id {order}"
                query = (
                    f"SELECT {columns} FROM embeddings CROSS JOIN identities ON identities.id = embeddings.identity"  # noqa: S608
                    f" ORDER BY {by}"
                )
                for provider, model, dimensions, digest, vector, known in db.execute(query):
                    identity = (provider, model, dimensions)
                    if (identity, digest) not in seen and known == checksum(*identity, digest, vector):
                        seen.add((identity, digest))
                        yield identity, digest, packed(array.array("f", vector)) if layout == FLOATS else vector
            finally:
                db.close()
        except Error:
            continue  # damaged from here on
