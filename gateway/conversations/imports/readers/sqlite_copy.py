"""A consistent copy of another program's SQLite file, which may be in use, and which is left as it is.

SQLite creates and changes files beside a database when it opens one in WAL mode, even for reading only. So the original is
opened only where that changes nothing, and is copied otherwise.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from gateway.conversations.imports.readers.import_values import SourceInvalid
from sessions.catalog.sqlite import Error, connect_blocking, connect_readonly

_MAGIC = b"SQLite format 3\0"
ATTEMPTS = 5
"""Attempts to copy files that another program changes meanwhile."""


@contextmanager
def opened_copy(path: Path) -> Iterator[Any]:
    """Provide a connection to a copy of a database, which is removed at the end.

    Raises:
        SourceInvalid: It is no SQLite database, or it cannot be read.
    """
    try:
        with path.open("rb") as stream:
            header = stream.read(100)
    except OSError as error:
        raise SourceInvalid(f"{path} cannot be read: {error.strerror or error}.") from error
    if not header.startswith(_MAGIC):
        raise SourceInvalid(f"{path.name} is not an SQLite database.")
    with tempfile.TemporaryDirectory(prefix="exuvia-import-") as folder:
        copy = Path(folder) / "copy.sqlite"
        try:
            if header[18] == 2:  # WAL mode
                _copy_files(path, copy)
            else:
                _back_up(path, copy)
            with closing(connect_blocking(copy, patience=1.0)) as connection:
                connection.text_factory = _text
                connection.execute("PRAGMA trusted_schema = OFF")
                yield connection
        except Error as error:
            raise SourceInvalid(f"{path.name} cannot be read: {error}.") from error
        except OSError as error:
            raise SourceInvalid(f"{path.name} cannot be copied: {error.strerror or error}.") from error


def _back_up(path: Path, copy: Path) -> None:
    """Copy a database with a rollback journal under a shared lock, which a writer respects."""
    with closing(connect_readonly(path)) as source, closing(connect_blocking(copy, patience=1.0)) as target:
        source.backup(target)


def _copy_files(path: Path, copy: Path) -> None:
    """Copy a database and its WAL. A copy during which neither changed is a state that a crash could have left: SQLite
    recovers it."""
    wal = path.with_name(path.name + "-wal")
    for _ in range(ATTEMPTS):
        before = _stamps(path, wal)
        shutil.copyfile(path, copy)
        copied_wal = copy.with_name(copy.name + "-wal")
        copied_wal.unlink(missing_ok=True)
        if wal.exists():
            shutil.copyfile(wal, copied_wal)
        if _stamps(path, wal) == before:
            return
    raise SourceInvalid(f"{path.name} is being written all the time; stop the program that uses it, or copy the file first.")


def _text(content: bytes) -> str:
    return content.decode("utf-8", "replace")


def _stamps(*paths: Path) -> list[tuple[int, int] | None]:
    return [_stamp(path) for path in paths]


def _stamp(path: Path) -> tuple[int, int] | None:
    try:
        found = os.stat(path)
    except FileNotFoundError:
        return None
    return found.st_size, found.st_mtime_ns


def table_columns(connection: Any) -> dict[str, set[str]]:
    """Return the columns of each table. Views are no tables: they could run anything."""
    names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    return {name: {row[1] for row in connection.execute(f"PRAGMA table_info({_quoted(name)})")} for name in names}


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'
