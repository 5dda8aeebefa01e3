"""The catalog's file: three tables of values with checksums in SQLite, which may be lost at any time.

SQLite has no checksums of its own, so a flipped bit in a page that still parses would go unnoticed.

It is created anew if its content is invalid, but not if the disk or the system fails to read it: it is the only record of
journals that are missing.

Nothing is synced. A killed process leaves the last complete transaction. A power failure leaves either an SQLite error, and
the file is replaced, or older values, which do not match their journals and are ignored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from hashlib import blake2b
from pathlib import Path
from typing import Any

import aiosqlite
import msgspec

from sessions.catalog.sqlite import Error, connect, create_private
from sessions.events.errors import StorageFailed
from sessions.files.fsync import UNSURE

DIGEST_SIZE = 16
"""Length in bytes of the digest before a value."""

LAYOUT = 1
"""The version of the tables and of the encoding of their values."""

PATIENCE = 0.5
"""Seconds to wait for a reader's lock. A write that fails is tried again a second later."""

_UNUSABLE: tuple[type[Exception], ...] = (*Error, OSError)

_UNREAD = ("unable to open", "disk I/O error", "disk is full", "out of memory", "readonly database")
"""SQLite's messages for a file that could not be read or written, as opposed to one with invalid content."""

TABLES = ("sessions", "checkpoints", "receipts")

_LAID_OUT = f"""
BEGIN;
CREATE TABLE sessions (session TEXT PRIMARY KEY, sealed BLOB) WITHOUT ROWID;
CREATE TABLE checkpoints (session TEXT PRIMARY KEY, sealed BLOB);
CREATE TABLE receipts (session TEXT, upto INTEGER, sealed BLOB, PRIMARY KEY (session, upto));
PRAGMA user_version = {LAYOUT};
COMMIT;
"""


def add_checksum(name: str, value: bytes) -> bytes:
    """Return the value with a digest in front of it. The digest covers the name, so that rows cannot be swapped."""
    return _digest(name, value) + value


def verify_checksum(name: str, sealed: object) -> bytes | None:
    """Return the value without its digest, or None if it is not what `add_checksum` returned for this name."""
    if not isinstance(sealed, bytes):
        return None
    value = sealed[DIGEST_SIZE:]
    return value if sealed[:DIGEST_SIZE] == _digest(name, value) else None


def _digest(name: str, value: bytes) -> bytes:
    return blake2b(value, digest_size=DIGEST_SIZE, key=name.encode()[: blake2b.MAX_KEY_SIZE]).digest()


class Batch(msgspec.Struct, kw_only=True):
    """The changes of one transaction, as values with checksums. A receipts row has the session, the seq after which it
    begins, the seq up to which it reaches, and the value."""

    rows: list[tuple[str, bytes]]
    checkpoints: list[tuple[str, bytes]]
    receipts: list[tuple[str, int, int, bytes]]


class CatalogFile:
    """The open file, used as an async context manager. Entering raises StorageFailed if no file can be created or read, or
    if another process is writing it. `rows` then has every session's encoded row, and `unused` is None or a sentence that
    says why an earlier file was not used."""

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
            await self._close()  # its thread would keep the process alive
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._close()

    async def remake(self, error: Exception) -> None:
        """Move the file aside because of `error`, and create an empty one. Raises StorageFailed."""
        await self._close()
        if "locked" in str(error):
            raise StorageFailed(f"{self._path.name} is in use by another process.") from error
        if any(sentence in str(error) for sentence in _UNREAD) or (isinstance(error, OSError) and error.errno in UNSURE):
            raise StorageFailed(f"{self._path.name} cannot be read: {error}.") from error  # the content may be intact
        self.unused = f"{self._path.name} could not be used ({error}); it is rebuilt from the journals."
        try:
            await asyncio.to_thread(_set_aside, self._path)
            await self._open()
        except _UNUSABLE as second:
            await self._close()
            raise StorageFailed(f"{self._path.name} cannot be created: {second}.") from second

    async def checkpoint(self, session: str) -> object:
        """Return the encoded checkpoint of a session; None if there is none or the file cannot be read."""
        found = await self._find("SELECT sealed FROM checkpoints WHERE session = ?", session)
        return found[0][0] if found else None

    async def receipts(self, session: str) -> list[object]:
        """Return the encoded batches of a session's receipts, newest first; empty if the file cannot be read."""
        found = await self._find("SELECT sealed FROM receipts WHERE session = ? ORDER BY upto DESC", session)
        return [sealed for (sealed,) in found]

    async def write(self, batch: Batch) -> None:
        """Apply all changes of a batch in one transaction. Raises `sqlite.Error`."""
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

    async def remove(self, sessions: Collection[str], rows: Collection[tuple[str, bytes]] = ()) -> None:
        """Remove all values of these sessions, and a file that was set aside and may have them; insert `rows` in the same
        transaction. Raises `sqlite.Error`, StorageFailed."""
        db = self._db
        await db.execute("BEGIN IMMEDIATE")
        try:
            for table in TABLES:
                await db.executemany(f"DELETE FROM {table} WHERE session = ?", [(each,) for each in sessions])  # noqa: S608
            await db.executemany("INSERT INTO sessions VALUES (?, ?)", rows)
            await db.execute("COMMIT")
        except BaseException:
            if db.in_transaction:
                await db.rollback()
            raise
        await asyncio.to_thread(_set_aside_path(self._path).unlink, missing_ok=True)

    @property
    def _db(self) -> aiosqlite.Connection:
        if self._connection is None:
            raise StorageFailed(f"{self._path.name} is not open.")
        return self._connection

    async def _find(self, query: str, session: str) -> list[Any]:
        try:
            return await self._fetch(query, session)
        except Error:
            return []  # the journals are read instead; the next write detects the damage and rebuilds the file
        except StorageFailed:
            return []

    async def _fetch(self, query: str, *parameters: str) -> list[Any]:
        return list(await self._db.execute_fetchall(query, parameters))

    async def _open(self) -> None:
        await asyncio.to_thread(create_private, self._path)
        self._connection = await connect(self._path, patience=PATIENCE)
        await self._db.execute("PRAGMA synchronous = OFF")
        await self._db.execute("PRAGMA secure_delete = ON")  # what is removed must not remain in the file
        ((version,),) = await self._fetch("PRAGMA user_version")
        ((tables,),) = await self._fetch("SELECT count(*) FROM sqlite_master")
        if tables == 0:
            self.unused = self.unused or f"{self._path.name} was missing or empty; it is rebuilt from the journals."
            await self._db.executescript(_LAID_OUT)
        elif version != LAYOUT:
            await self.remake(ValueError(f"its layout is {version}, and this version uses {LAYOUT}"))

    async def _close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()


def _set_aside_path(path: Path) -> Path:
    return path.with_name(path.name + ".set-aside")


def _set_aside(path: Path) -> None:
    """Keep the file for analysis, without SQLite's auxiliary files; only the latest one is kept."""
    path.replace(_set_aside_path(path))
    for suffix in ("-journal", "-wal", "-shm"):
        path.with_name(path.name + suffix).unlink(missing_ok=True)
