"""The tables of the memory index: one SQLite file, derived from the notes, which may be deleted at any time.

documents   each note, or whatever else a source has, as it was when it was read
chunks      its pieces; their ids follow their order in it
words       their words, stemmed
parts       their characters by three, for what is only a part of a word
identities  which models made vectors, and how long these are
embeddings  every vector by its model and what was embedded; a chunk that comes back is not embedded again
vectors_N   the vectors of the chunks by the model N, to be searched
marks       what is to be known about the file itself
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from sessions.catalog.sqlite import Error, connect_blocking, load_vectors

LAYOUT = 7
"""Version of the tables and their content."""

PATIENCE = 5.0
"""Seconds to wait for another process's lock."""

BESIDE = "-wal"
"""Suffix of SQLite's write-ahead log."""

SHARED = "-shm"
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
    for suffix in ("", "-journal", BESIDE, SHARED):
        path.with_name(path.name + suffix).unlink(missing_ok=True)


def _opened(path: Path) -> tuple[Any, bool]:
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))  # contains text of the notes
    connection = connect_blocking(path, patience=PATIENCE)
    try:
        connection.execute("PRAGMA page_size = 16384")  # vectors are long: compared a quarter faster, written twice as fast
        connection.execute("PRAGMA cache_size = -16000")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = OFF")
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
