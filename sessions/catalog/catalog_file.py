"""The catalog at rest: three tables of sealed values in one SQLite file, which may be lost at any time.

It is made anew where it holds something else than what was written, and not where the disk or the system refuses to read it:
it is the only witness of journals that are gone.

Nothing is synced. A killed process leaves the last whole transaction; what a power cut leaves is either an SQLite error, and
then the file is set aside and made anew, or older values, which disagree with their journals and are then not believed.
"""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import Any

import aiosqlite
import msgspec

from sessions.catalog.sqlite import Error, connect
from sessions.events.errors import StorageFailed
from sessions.files.fsync import UNSURE

LAYOUT = 1
"""The version of the tables and of what their values look like."""

PATIENCE = 0.5
"""Seconds to wait for a reader's lock. What could not be written then is written a second later."""

_UNUSABLE: tuple[type[Exception], ...] = (*Error, OSError)

_UNREAD = ("unable to open", "disk I/O error", "disk is full", "out of memory", "readonly database")
"""What SQLite says of a file that it could not read, or not finish, as opposed to one whose content is wrong."""

TABLES = ("sessions", "checkpoints", "receipts")

_LAID_OUT = f"""
BEGIN;
CREATE TABLE sessions (session TEXT PRIMARY KEY, sealed BLOB) WITHOUT ROWID;
CREATE TABLE checkpoints (session TEXT PRIMARY KEY, sealed BLOB);
CREATE TABLE receipts (session TEXT, upto INTEGER, sealed BLOB, PRIMARY KEY (session, upto));
PRAGMA user_version = {LAYOUT};
COMMIT;
"""


class Batch(msgspec.Struct, kw_only=True):
    """What one transaction changes, values sealed; receipts are rows of session, the seq after which they begin, the seq up
    to which they reach, and their value."""

    rows: list[tuple[str, bytes]]
    checkpoints: list[tuple[str, bytes]]
    receipts: list[tuple[str, int, int, bytes]]


class CatalogFile:
    """The open file. Use as an async context manager; entering raises StorageFailed where no file can be made or read, or
    where another process is writing it. `rows` is then every session with its sealed row, as they stood in the file, and
    `unused` says in a sentence why nothing of a former file is used, or is None."""

    def __init__(self, path: Path) -> None:
        self.rows: list[tuple[object, object]] = []
        self.unused: str | None = None
        self._path = path
        self._connection: aiosqlite.Connection | None = None

    async def __aenter__(self) -> CatalogFile:
        try:
            await self._open()
            self.rows = await self._fetch("SELECT session, sealed FROM sessions")
        except _UNUSABLE as error:
            await self.remake(error)
        except BaseException:
            await self._close()  # its thread would keep the process from ending
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def remake(self, error: Exception) -> None:
        """Set the file aside because of `error` and begin an empty one. Raises StorageFailed."""
        await self._close()
        if "locked" in str(error):
            raise StorageFailed(f"{self._path.name} is in use by another process.") from error
        if any(sentence in str(error) for sentence in _UNREAD) or (isinstance(error, OSError) and error.errno in UNSURE):
            raise StorageFailed(f"{self._path.name} cannot be read: {error}.") from error  # which says nothing about it
        self.unused = f"{self._path.name} could not be used ({error}); it is made anew from the journals."
        try:
            await asyncio.to_thread(_set_aside, self._path)
            await self._open()
        except _UNUSABLE as second:
            await self._close()
            raise StorageFailed(f"{self._path.name} cannot be made: {second}.") from second

    async def checkpoint(self, session: str) -> object:
        """The sealed checkpoint of a session; None if there is none or the file cannot be read."""
        found = await self._find("SELECT sealed FROM checkpoints WHERE session = ?", session)
        return found[0][0] if found else None

    async def receipts(self, session: str) -> list[object]:
        """The sealed batches of a session's receipts, newest first; none if the file cannot be read."""
        found = await self._find("SELECT sealed FROM receipts WHERE session = ? ORDER BY upto DESC", session)
        return [sealed for (sealed,) in found]

    async def write(self, batch: Batch) -> None:
        """Make all changes of the batch or none. Raises `sqlite.Error`."""
        db = self._db
        await db.execute("BEGIN IMMEDIATE")
        try:
            await db.executemany("REPLACE INTO sessions VALUES (?, ?)", batch.rows)
            await db.executemany("REPLACE INTO checkpoints VALUES (?, ?)", batch.checkpoints)
            for session, after, upto, sealed in batch.receipts:
                if after == 0:
                    await db.execute("DELETE FROM receipts WHERE session = ?", (session,))
                await db.execute("REPLACE INTO receipts VALUES (?, ?, ?)", (session, upto, sealed))
            await db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                await db.rollback()
            raise

    @property
    def _db(self) -> aiosqlite.Connection:
        if self._connection is None:
            raise StorageFailed(f"{self._path.name} is not open.")
        return self._connection

    async def _find(self, query: str, session: str) -> list[Any]:
        try:
            return await self._fetch(query, session)
        except Error:
            return []  # the journals are asked instead, and the next write finds the file harmed and makes it anew
        except StorageFailed:
            return []

    async def _fetch(self, query: str, *parameters: str) -> list[Any]:
        return list(await self._db.execute_fetchall(query, parameters))

    async def _open(self) -> None:
        await asyncio.to_thread(_make_private, self._path)
        self._connection = await connect(self._path, patience=PATIENCE)
        await self._db.execute("PRAGMA synchronous = OFF")
        ((version,),) = await self._fetch("PRAGMA user_version")
        ((tables,),) = await self._fetch("SELECT count(*) FROM sqlite_master")
        if tables == 0:
            self.unused = self.unused or f"{self._path.name} was missing or empty; it is made anew from the journals."
            await self._db.executescript(_LAID_OUT)
        elif version != LAYOUT:
            await self.remake(ValueError(f"its layout is {version}, and this version uses {LAYOUT}"))

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _make_private(path: Path) -> None:
    """Only the gateway's user may read the catalog, which holds what was said; SQLite itself would make it readable."""
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))


def _set_aside(path: Path) -> None:
    """Keep the file for whoever wants to know, without what SQLite left beside it; one file is kept, the latest."""
    path.replace(path.with_name(path.name + ".set-aside"))
    for suffix in ("-journal", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
