"""Access to SQLite: the only copy of the library that this process uses.

Many Pythons are built without loadable extensions, which the memory index needs; the `pysqlite3` package replaces it there.
A file must never be opened through both copies in one process, because the locks of one are lost when the other closes it.
So all databases are opened here, and errors are caught by the names defined here.
"""

from __future__ import annotations

import asyncio
import importlib.util
import os
import sqlite3
import threading
from contextlib import suppress
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
"""All exceptions raised by SQLite. UnicodeDecodeError occurs when its message quotes bytes of a damaged file."""

Unavailable: type[Exception] = _copy.OperationalError
"""The part of `Error` that mostly concerns circumstances (locked, full, cannot be opened) and not the file's content."""


def in_memory() -> Any:
    """Return a connection to an empty in-memory database, for testing the library's features."""
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


async def connect(path: Path, *, patience: float) -> aiosqlite.Connection:
    """Return an open connection. Transactions are controlled explicitly. It waits `patience` seconds for a lock before it
    raises `Unavailable`. Raises `Error`; no thread is left running then."""
    workers: list[threading.Thread] = []

    def opened() -> Any:
        workers.append(threading.current_thread())
        return _copy.connect(str(path), timeout=patience, isolation_level=None)

    try:
        return await aiosqlite.Connection(opened, iter_chunk_size=64)
    except Error:
        for worker in workers:  # it reports its end to the event loop, which must not be closed by then
            await asyncio.to_thread(worker.join)
        raise


def connect_readonly(path: Path) -> Any:
    """Return a read-only connection for programs that run beside the gateway. Blocks, and waits two seconds for a lock."""
    return _copy.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, timeout=2.0, isolation_level=None)


def create_private(path: Path) -> None:
    """Create a database's file with access for this user only, unless it exists. SQLite would make it readable to others.

    A file that exists is not opened: closing it would drop the locks of all connections of this process to it
    (https://www.sqlite.org/howtocorrupt.html, section 2.2). Raises OSError.
    """
    with suppress(FileExistsError):
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))


def connect_blocking(path: Path, *, patience: float) -> Any:
    """Return a connection for one thread at a time. Blocks; transactions are controlled explicitly."""
    return _copy.connect(str(path), timeout=patience, isolation_level=None, check_same_thread=False)


def load_vectors(connection: Any) -> bool:
    """Load sqlite-vec into a connection; return False if this SQLite cannot load extensions."""
    found = importlib.util.find_spec("sqlite_vec")
    if found is None or found.origin is None:
        return False
    try:
        connection.enable_load_extension(True)
        # Its own `load` would import numpy if installed (0.1 s, 20 MB).
        connection.load_extension(str(Path(found.origin).with_name("vec0")))
        connection.enable_load_extension(False)
    except AttributeError:
        return False
    except Error:
        return False  # loading is not permitted
    return True
