"""The tables of the memory index: one SQLite file, derived from the notes, which may be deleted at any time.

documents   each note or other document, in the version that was read
chunks      its chunks; their ids follow their order in it
words       their words, stemmed
parts       their trigrams, for substrings of words
identities  the models that made vectors, and the vectors' dimensions
embeddings  every vector by its model and the digest of its text; a chunk that comes back is not embedded again
vectors_N   the vectors of the chunks by the model N, to be searched
marks       marks about the file itself

SQLite detects changes by other programs only by chance. So rows have checksums, and a closed file records when it was
closed: a file written since then is verified before it is used.
"""

from __future__ import annotations

import contextlib
import os
import time
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeAlias

import msgspec

from sessions.catalog.sqlite import Error, connect_blocking, create_private, load_vectors

LAYOUT = 7
"""Version of the tables and their content."""

PATIENCE = 5.0
"""Seconds to wait for another process's lock."""

WAL = "-wal"
"""Suffix of SQLite's write-ahead log."""

SHARED_MEMORY = "-shm"
"""Suffix of the file that SQLite shares between processes."""

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
CREATE VIRTUAL TABLE parts USING fts5 (text, tokenize = 'trigram');
CREATE TABLE identities (
    id INTEGER PRIMARY KEY, provider TEXT NOT NULL, model TEXT NOT NULL, dimensions INTEGER NOT NULL,
    UNIQUE (provider, model, dimensions)
);
CREATE TABLE embeddings (
    identity INTEGER NOT NULL, digest TEXT NOT NULL, vector BLOB NOT NULL, sum INTEGER NOT NULL, used INTEGER NOT NULL,
    PRIMARY KEY (identity, digest)
) WITHOUT ROWID;
CREATE INDEX embeddings_by_digest ON embeddings (digest);
CREATE TABLE marks (name TEXT PRIMARY KEY) WITHOUT ROWID;
PRAGMA user_version = {LAYOUT};
COMMIT;
"""

IntactVector: TypeAlias = tuple[tuple[str, str, int], str, bytes]
"""A vector by its identity (provider, model, dimensions) and the digest of the text."""

_CLOSED = "closed at "
"""Prefix of the mark of a cleanly closed file, followed by its modification time in nanoseconds."""


def open_tables(path: Path) -> tuple[Any, bool]:
    """Open the file, recreating it if unusable, and return the connection and whether it can search vectors.

    Raises:
        OSError: No file can be created.
        Error: No file can be created (`sessions.catalog.sqlite.Error`).
    """
    try:
        return _opened(path)
    except Error as error:
        if "locked" in str(error) or "unable to open" in str(error):  # not a fault of the file
            raise
        remove_tables(path)
        return _opened(path)


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
        for table in ("words", "parts"):
            db.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")  # noqa: S608 - names of ours
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


# --- damaged files ----------------------------------------------------------------------------------------------------


def intact_vectors(path: Path) -> Iterator[IntactVector]:
    """Yield the vectors of a damaged file with a valid checksum, reading from both ends."""
    columns = "provider, model, dimensions, digest, vector, sum"
    seen: set[tuple[tuple[str, str, int], str]] = set()
    for order in ("ASC", "DESC"):
        try:
            db = connect_blocking(path, patience=0.0)
            try:
                query = (
                    f"SELECT {columns} FROM embeddings JOIN identities ON identities.id = embeddings.identity"  # noqa: S608
                    f" ORDER BY identity {order}, digest {order}"
                )
                for provider, model, dimensions, digest, vector, known in db.execute(query):
                    identity = (provider, model, dimensions)
                    if (identity, digest) not in seen and known == checksum(*identity, digest, vector):
                        seen.add((identity, digest))
                        yield identity, digest, vector
            finally:
                db.close()
        except Error:
            continue  # damaged from here on
