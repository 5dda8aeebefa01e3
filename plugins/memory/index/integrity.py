"""Whether what stands in the index's file is what was written there, and what can be saved of it where it is not.

SQLite finds out only by chance that somebody else was in its file. So rows have sums, and a file that was closed says when:
one that was written to since then is looked through before it is believed.
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
"""A vector by its identity (provider, model, dimensions) and the digest of what was embedded."""

_CLOSED = "closed at "
"""The mark of a file that was closed in order, before the time in nanoseconds that it has since then."""


def sum_of(*columns: str | int | bytes) -> int:
    """What columns are checked by: a CRC-32, which finds any harm that is not meant."""
    return zlib.crc32(b"\0".join(each if isinstance(each, bytes) else msgspec.json.encode(each) for each in columns))


def is_sound(db: Any) -> bool:
    """Whether nothing in an open index was harmed. Takes about a second for ten thousand notes."""
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
    """Have the file say that it is being closed now; returns the time that `seal` is to give it."""
    at = time.time_ns()
    db.execute("DELETE FROM marks WHERE name LIKE ?", (_CLOSED + "%",))
    db.execute("INSERT INTO marks VALUES (?)", (f"{_CLOSED}{at}",))
    return at


def seal(path: Path, at: int) -> None:
    """Give a file that was closed the time that it says itself, so that any writing since then shows."""
    with contextlib.suppress(FileNotFoundError):  # it was taken away in this moment, and is made anew when it is needed
        os.utime(path, ns=(at, at))


def is_sealed(db: Any, path: Path) -> bool:
    """Whether nobody wrote to a file since it was closed; what SQLite has beside it has sums of its own."""
    marks = {name for (name,) in db.execute("SELECT name FROM marks")}
    try:
        return f"{_CLOSED}{path.stat().st_mtime_ns}" in marks
    except FileNotFoundError:  # as above
        return False


# --- a file that was harmed -------------------------------------------------------------------------------------------


def saved_vectors(path: Path) -> Iterator[Saved]:
    """The vectors in a harmed file that are as they were made, as far as they can be read from either end."""
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
            continue  # from here on it is harmed
