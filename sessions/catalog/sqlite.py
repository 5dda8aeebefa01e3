"""The one copy of SQLite that this process uses.

Many Pythons are built without loadable extensions, which the memory index needs; there the `pysqlite3` package stands in.
One file must never be opened through both copies in one process, since the locks of one are lost when the other closes it:
so every file of the house is opened here, and every error of it caught by the names here.
"""

from __future__ import annotations

import importlib.util
import sqlite3
from pathlib import Path
from typing import Any

import aiosqlite


def _chosen() -> Any:
    if hasattr(sqlite3.Connection, "enable_load_extension"):
        return sqlite3
    try:
        return importlib.import_module("pysqlite3.dbapi2")
    except ImportError:
        return sqlite3  # no extension can be loaded; everything else works


_copy = _chosen()

Error: tuple[type[Exception], ...] = (_copy.Error, UnicodeDecodeError)
"""Anything that SQLite reports, or means to: its message may quote bytes of a harmed file that are no text."""

Unavailable: type[Exception] = _copy.OperationalError
"""The part of `Error` that is about circumstances (locked, full, not to be opened), mostly, and not the file's content."""


def in_memory() -> Any:
    """A connection to an empty database in memory: what can be done with it can be done with any."""
    return _copy.connect(":memory:")


def lacks_full_text() -> str:
    """Return why this SQLite cannot index words, as the end of a sentence; empty where it can. Takes a millisecond."""
    connection = in_memory()
    try:
        connection.execute("CREATE VIRTUAL TABLE words USING fts5 (text, tokenize = 'trigram')")
    except Error:
        return "this Python's SQLite has no full-text search (FTS5)"
    finally:
        connection.close()
    return ""


def connect(path: Path, *, patience: float) -> aiosqlite.Connection:
    """A connection, to be entered with `async with`, in which transactions are begun and ended by hand. It waits `patience`
    seconds for another's lock before it raises `Unavailable`."""
    return aiosqlite.Connection(lambda: _copy.connect(str(path), timeout=patience, isolation_level=None), iter_chunk_size=64)


def reading(path: Path, *, patience: float = 2.0) -> Any:
    """A connection that can only read, for programs that look at a file beside the gateway; it blocks."""
    return _copy.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=patience, isolation_level=None)


def writing(path: Path, *, patience: float) -> Any:
    """A connection for one thread at a time, whichever; it blocks. Transactions are begun and ended by hand."""
    return _copy.connect(str(path), timeout=patience, isolation_level=None, check_same_thread=False)


def load_vectors(connection: Any) -> bool:
    """Give a connection the functions and tables of sqlite-vec; False where this SQLite loads no extensions."""
    found = importlib.util.find_spec("sqlite_vec")
    if found is None or found.origin is None:
        return False
    try:
        connection.enable_load_extension(True)
        # Not by its own `load`: with that comes all of numpy, where there is one (a tenth of a second, 20 MB).
        connection.load_extension(str(Path(found.origin).with_name("vec0")))
        connection.enable_load_extension(False)
    except AttributeError:
        return False
    except Error:
        return False  # it could, and is not allowed to
    return True
