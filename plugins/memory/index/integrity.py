"""Checksums of the index, and recovery of the vectors of a damaged file.

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

from sessions.catalog.sqlite import Error, connect_blocking

Saved: TypeAlias = tuple[tuple[str, str, int], str, bytes]
"""A vector by its identity (provider, model, dimensions) and the digest of the text."""

_CLOSED = "closed at "
"""Prefix of the mark of a cleanly closed file, followed by its modification time in nanoseconds."""


def sum_of(*columns: str | int | bytes) -> int:
    """Return the checksum of columns: a CRC-32, which detects accidental damage."""
    return zlib.crc32(b"\0".join(each if isinstance(each, bytes) else msgspec.json.encode(each) for each in columns))


def is_sound(db: Any) -> bool:
    """Verify an open index. Takes about a second for ten thousand notes."""
    try:
        if db.execute("PRAGMA quick_check(1)").fetchone() != ("ok",):
            return False
        for table in ("words", "parts"):
            db.execute(f"INSERT INTO {table} ({table}) VALUES ('integrity-check')")  # noqa: S608 - names of ours
        return all(known == counted for known, counted in _sums(db))
    except Error:
        return False


def _sums(db: Any) -> Iterator[tuple[int, int]]:
    columns = "path, source, first, last, headings, text, day, owner, senders, private, digest"
    for *row, known in db.execute(f"SELECT {columns}, sum FROM chunks"):  # noqa: S608 - names of ours
        yield known, sum_of(*row)
    query = (
        "SELECT provider, model, dimensions, digest, vector, sum FROM embeddings"
        " JOIN identities ON identities.id = embeddings.identity"
    )
    for *row, known in db.execute(query):
        yield known, sum_of(*row)


# --- a file that was closed -------------------------------------------------------------------------------------------


def say_closed(db: Any) -> int:
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


# --- a file that was harmed -------------------------------------------------------------------------------------------


def saved_vectors(path: Path) -> Iterator[Saved]:
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
                    if (identity, digest) not in seen and known == sum_of(*identity, digest, vector):
                        seen.add((identity, digest))
                        yield identity, digest, vector
            finally:
                db.close()
        except Error:
            continue  # damaged from here on
