"""Locks on the server by which processes take turns in appending to a log that they share.

A lock ends with its connection, so that a killed process leaves none, and the connections of a gateway that was declared
dead are ended too. A lock decides only about turns: the append itself checks the head of the log.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import ExitStack, suppress
from functools import partial

import psycopg

from sessions.events.errors import StorageFailed
from sessions.postgres.connections import Connection, Database
from sessions.store.queued_log import run_in_thread

WAIT_SECONDS = 10.0
"""The longest time to wait for a turn: longer than it takes to declare a stopped gateway dead."""

PAUSES = (0.002, 0.005, 0.01, 0.02, 0.05)
"""Seconds between attempts; no thread waits meanwhile."""

_CLASS = 0x65787569
"""The first half of the keys of these locks; the second is the hash of a name."""


class AdvisoryLock:
    """A lock that is held, and its connection."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stack = ExitStack()
        self._connection: Connection

    @classmethod
    async def acquire(cls, database: Database, name: str) -> AdvisoryLock:
        """Wait for the lock of a name. Raises StorageFailed."""
        lock = cls(database)
        began, tries = time.monotonic(), 0
        attempt = run_in_thread(partial(lock._begin, name))
        try:
            while not await asyncio.shield(attempt):
                if time.monotonic() - began > WAIT_SECONDS:
                    raise StorageFailed(f"Another process has held {name} for {WAIT_SECONDS:g} s.")
                await asyncio.sleep(PAUSES[min(tries, len(PAUSES) - 1)])
                tries += 1
                attempt = run_in_thread(partial(lock._try, name))
        except BaseException:
            attempt.add_done_callback(lock._abandon)
            raise
        return lock

    def release(self) -> None:
        """Give the lock up. Blocks."""
        with self._stack, suppress(psycopg.Error, StorageFailed):
            try:
                self._connection.execute("SELECT pg_advisory_unlock_all()")
            except psycopg.Error:
                self._connection.close()  # which gives it up too
                raise

    def _begin(self, name: str) -> bool:
        self._connection = self._stack.enter_context(self._database.connection())
        return self._try(name)

    def _try(self, name: str) -> bool:
        with self._database.errors("cannot be used"):
            found = self._connection.execute("SELECT pg_try_advisory_lock(%s, hashtext(%s))", (_CLASS, name)).fetchone()
        return found is not None and bool(found[0])

    def _abandon(self, attempt: asyncio.Future[bool]) -> None:
        """Give up what an attempt may still have got, after the wait for it has ended."""
        if not attempt.cancelled():
            attempt.exception()
        if hasattr(self, "_connection"):
            attempt.get_loop().run_in_executor(None, self.release)
