"""The keys of encrypted rooms in a SQLite file. What is put is durable after `commit`, all of it or nothing.

The file is not encrypted: whoever can read it can read the token beside it. Only its owner may read it.
"""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

from plugins.support.errors import PluginError

T = TypeVar("T")

WAL_PAGES = 100
"""Pages of 4 KiB after which the write-ahead log begins anew. By default it grows to 4 MB, more than the keys themselves."""

_TABLE = "CREATE TABLE IF NOT EXISTS kept (kind TEXT, key TEXT, value TEXT, PRIMARY KEY (kind, key)) WITHOUT ROWID"


class MissingKey(PluginError):
    """The key of a message has not arrived."""


class KeyStore:
    """Texts by their kind and key."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unwritten: dict[tuple[str, str], str | None] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="matrix-keys")
        self._file: sqlite3.Connection | None = None

    async def open(self) -> None:
        """Open the file; make it if it is missing.

        Raises:
            OSError, sqlite3.Error: It cannot be opened, or is damaged.
        """
        self._file = await self._run(self._open)

    async def close(self) -> None:
        """Close the file. What was not committed is lost."""
        if self._file is not None:
            await self._run(self._file.close)
            self._file = None
        self._thread.shutdown(wait=False)

    def put(self, kind: str, key: str, value: str | None) -> None:
        """Put a value with the next commit; None deletes it. A surrogate, which a file cannot have, becomes `?`."""
        self._unwritten[kind, _storable(key)] = None if value is None else _storable(value)

    async def get(self, kind: str, key: str) -> str | None:
        """Return a value, also one that was not committed."""
        key = _storable(key)
        if (kind, key) in self._unwritten:
            return self._unwritten[kind, key]
        rows = await self._query("SELECT value FROM kept WHERE kind = ? AND key = ?", kind, key)
        return rows[0][0] if rows else None

    async def all(self, kind: str) -> dict[str, str]:
        """Return all values of a kind by their keys, also those that were not committed."""
        found: dict[str, str] = dict(await self._query("SELECT key, value FROM kept WHERE kind = ?", kind))
        for (its_kind, key), value in self._unwritten.items():
            if its_kind == kind:
                found.pop(key, None)
                if value is not None:
                    found[key] = value
        return found

    async def commit(self) -> None:
        """Write what was put, and return once it is durable.

        Raises:
            sqlite3.Error: It cannot be written. Another commit tries again.
        """
        written, self._unwritten = self._unwritten, {}
        if not written:
            return
        try:
            await self._run(lambda: self._write(written))
        except BaseException:
            self._unwritten = written | self._unwritten  # a cancelled write may still happen: writing twice does no harm
            raise

    async def _query(self, question: str, *values: str) -> list[Any]:
        file = self._file
        assert file is not None
        return await self._run(lambda: file.execute(question, values).fetchall())

    async def _run(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, call)

    def _open(self) -> sqlite3.Connection:
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        os.close(os.open(self._path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        file = sqlite3.connect(self._path, check_same_thread=False, timeout=20.0)
        file.execute("PRAGMA journal_mode = WAL")
        file.execute("PRAGMA synchronous = FULL")
        file.execute(f"PRAGMA wal_autocheckpoint = {WAL_PAGES}")
        with file:
            file.execute(_TABLE)
        return file

    def _write(self, values: dict[tuple[str, str], str | None]) -> None:
        assert self._file is not None
        with self._file:
            self._file.executemany(
                "INSERT OR REPLACE INTO kept VALUES (?, ?, ?)",
                [(kind, key, value) for (kind, key), value in values.items() if value is not None],
            )
            self._file.executemany(
                "DELETE FROM kept WHERE kind = ? AND key = ?", [each for each, value in values.items() if value is None]
            )


def _storable(text: str) -> str:
    """Replace the surrogates of a text from another server: one of them would make every later commit fail."""
    return text.encode("utf-8", "replace").decode()
