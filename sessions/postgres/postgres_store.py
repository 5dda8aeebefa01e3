"""The PostgreSQL store: the logs of a gateway in one database.

To open a log is to commit a new epoch and then to read. The commit waits for an append of an earlier writer that is still
under way, and rejects those that arrive later; with synchronous replication, what is read afterwards is on the standby too.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from weakref import WeakValueDictionary

import psycopg

from sessions.events.errors import JournalDamaged, LogReplaced, StorageFailed, UnknownSession
from sessions.files.repair import report_damage
from sessions.postgres.advisory_lock import AdvisoryLock
from sessions.postgres.connections import Connection, Database
from sessions.postgres.group_commit import GroupCommitter, RowLog
from sessions.postgres.membership import FENCE, Membership
from sessions.postgres.row_lines import RowLines, RowReader
from sessions.postgres.session_rows import IS_ELSEWHERE, insert_fork
from sessions.store.protocols import START, Lines, Position, Stamp
from sessions.store.queued_log import OpenLogs
from sessions.store.reading import StoredLog, damage_after, read_lines, verify_lines, verify_position

_CREATE = f"""
    INSERT INTO log (store, name) SELECT %(store)s, %(name)s WHERE %(owner)s = '' OR EXISTS {FENCE}
    RETURNING id, epoch, changed
"""

_OPEN = f"""
    UPDATE log SET epoch = epoch + %(step)s
    WHERE store = %(store)s AND name = %(name)s AND (%(owner)s = '' OR EXISTS {FENCE} AND NOT {IS_ELSEWHERE})
    RETURNING id, epoch, changed, head, size
"""  # noqa: S608 - fragments of ours
"""A new epoch rejects what the owner of the session still writes. So a gateway that has lost the conversation, and begun
again as another incarnation, must not begin one."""

_NEXT = """
    SELECT log.epoch, line.seq, line.ends, line.line
    FROM log LEFT JOIN line ON line.log = log.id AND line.seq > %s WHERE log.id = %s ORDER BY line.seq LIMIT 1000
"""

_REPLACE = """
    INSERT INTO line (log, seq, ends, line) VALUES (%s, %s, %s, %b)
    ON CONFLICT (log, seq) DO UPDATE SET ends = excluded.ends, line = excluded.line
"""

_RESIZE = """
    UPDATE log SET head = %s, size = %s, changed = greatest(changed + 1, extract(epoch FROM clock_timestamp()) * 1000000000)
    WHERE id = %s
"""

_EXISTS = "SELECT FROM log WHERE store = %s AND name = %s"

_COPY = """
    INSERT INTO line (log, seq, ends, line)
    SELECT %s, line.seq, line.ends, line.line FROM line JOIN log ON log.id = line.log
    WHERE log.store = %s AND log.name = %s AND line.seq <= %s
"""


class StoredRowLog(RowLog):
    """A `Log` in the database, created by `PostgresStore`."""

    def __init__(
        self,
        name: str,
        row: tuple[int, int, int],
        last: Position,
        *,
        database: Database,
        committer: GroupCommitter,
        released: Callable[[], None],
        owner: str,
        shared: bool,
    ) -> None:
        super().__init__(name, row, last, committer=committer, released=released, owner=owner)
        self._database = database
        self._shared = shared

    async def catch_up(self, after: Position) -> list[bytes]:
        if not self._shared or not self._ends_at(after):
            return []
        found = await asyncio.to_thread(self._next, self.head)
        if not found or not self._ends_at(after):
            return []
        self.head, end, _ = found[-1]
        self.move(end)
        return [line for _, _, line in found]

    def _ends_at(self, position: Position) -> bool:
        return (self.durable, self.end, self.head) == (position.offset, position.offset, position.seq)

    def _next(self, head: int) -> list[tuple[int, int, bytes]]:
        with self._database.connection() as connection:
            found = connection.execute(_NEXT, (head, self.id), binary=True).fetchall()
        if not found or found[0][0] != self.epoch:
            raise LogReplaced(f"{self.name} was rewritten or removed by another process; it is read again.")
        return [(seq, ends, line) for _, seq, ends, line in found if seq is not None]

    def stamp(self) -> Stamp:
        return Stamp(size=self.committed, changed=self.changed, identity=self.id)

    async def lines(self, first: int, *, limit: int) -> list[bytes]:
        return await asyncio.to_thread(self._lines, first, limit, self.head, self.committed, self.durable)

    def _lines(self, first: int, limit: int, head: int, size: int, durable: int) -> list[bytes]:
        with self._database.connection() as connection:
            return read_lines(RowLines(connection, self.name, self.id, head, size), first, limit, upto=durable)


class PostgresStore(RowReader):
    """The logs of one kind in a database, a `Store`. Reports on damage go to `quarantine`. With a `membership`, only the
    incarnation of this gateway that opens or creates a log may write it. If it is `shared`, several processes append to its
    logs in turns, and opening one takes it from nobody."""

    def __init__(
        self,
        database: Database,
        store: str,
        quarantine: Path,
        committer: GroupCommitter,
        membership: Membership | None = None,
        *,
        shared: bool = False,
    ) -> None:
        super().__init__(database, store)
        self.shared = shared
        self._membership = membership
        self._turns = WeakValueDictionary[str, asyncio.Lock]()
        self._quarantine = quarantine
        self._committer = committer
        self._open_logs = OpenLogs(committer)

    @property
    def pending(self) -> int:
        return self._committer.pending

    @property
    def commits(self) -> int:
        return self._committer.commits

    @property
    def failure(self) -> asyncio.Future[StorageFailed]:
        return self._committer.failure

    @asynccontextmanager
    async def exclusive(self, session: str) -> AsyncIterator[None]:
        if not self.shared:
            yield
            return
        async with self._turns.setdefault(session, asyncio.Lock()):  # one of this process competes with the others
            turn = await AdvisoryLock.acquire(self._database, f"{self._store}/{session}")
            try:
                yield
            finally:
                await asyncio.shield(asyncio.to_thread(turn.release))

    def is_open(self, session: str) -> bool:
        """Return True if this process writes a log."""
        return self._open_logs.is_held(session)

    async def verify(self, session: str) -> None:
        await asyncio.to_thread(self._verify, session)

    def _verify(self, session: str) -> None:
        try:
            found = StoredLog(self, session).verify()
            if found.torn:
                raise damage_after(session, found.last, "the lines after it are missing")
        except JournalDamaged as damage:
            report_damage(damage, self.location(session), self._quarantine)
            raise

    async def create(self, session: str) -> StoredRowLog:
        owner = self._owner()
        row = await self._open_logs.hold(session, lambda: self._create(session, owner), lambda _: self._discard(session))
        return self._log(session, row, START, owner)

    def _create(self, session: str, owner: str) -> tuple[int, int, int]:
        with self._database.connection() as connection:
            try:
                row = connection.execute(_CREATE, self._given(session, owner)).fetchone()
            except psycopg.errors.UniqueViolation:
                raise StorageFailed(f"{session} could not be created: it exists.") from None
        if row is None:
            raise _dead()
        return row[0], row[1], row[2]

    def _owner(self) -> str:
        """Return the incarnation that may write what is opened now. Raises StorageFailed if this one was declared dead."""
        if self._membership is None:
            return ""
        if not self._membership.id:
            raise _dead()
        return self._membership.id

    def _given(self, session: str, owner: str) -> dict[str, object]:
        return {
            "store": self._store,
            "name": session,
            "owner": owner,
            "gateways": [owner],
            "step": 0 if self.shared else 1,
        }

    async def open(
        self,
        session: str,
        *,
        after: Position = START,
        fold: Callable[[bytes], None],
        unchanged: bool = False,
        least: int = 0,
    ) -> tuple[StoredRowLog, Position]:
        owner = self._owner()
        row, last = await self._open_logs.hold(session, lambda: self._open(session, after, fold, least, owner))
        return self._log(session, row, last, owner), last

    def _open(
        self, session: str, after: Position, fold: Callable[[bytes], None], least: int, owner: str
    ) -> tuple[tuple[int, int, int], Position]:
        try:
            with self._database.connection() as connection:
                found = connection.execute(_OPEN, self._given(session, owner)).fetchone()
                if found is None:
                    self._refuse_lost(connection, session, owner)
                if found is None and not least:
                    raise UnknownSession(f"Unknown session {session}.")
                if found is None:
                    raise JournalDamaged(session, 0, "it is missing, including all acknowledged events")
                log, epoch, changed, head, size = found
                lines = RowLines(connection, session, log, head, size)
                verify_position(lines, after)
                last = verify_lines(lines, after, fold)
                if (last.seq, last.offset) != (head, size):
                    raise damage_after(session, last, f"lines are missing: it should end with event {head} at byte {size}")
                if head < least:
                    why = f"acknowledged events are missing: it ends with event {head}, but event {least} was acknowledged"
                    raise damage_after(session, last, why)
        except JournalDamaged as damage:
            report_damage(damage, self.location(session), self._quarantine)
            raise
        return (log, epoch, changed), last

    def _refuse_lost(self, connection: Connection, session: str, owner: str) -> None:
        """Raise StorageFailed if the incarnation that is to write a log is dead, or does not have its conversation. Neither
        comes about until the end of the transaction."""
        if not owner:
            return
        given = self._given(session, owner)
        if connection.execute(FENCE, given).fetchone() is None:
            raise _dead()
        if connection.execute(f"SELECT {IS_ELSEWHERE}".encode(), given).fetchone() == (True,):
            raise StorageFailed(f"{session} belongs to a conversation that this gateway does not have any more.")

    async def copy(self, parent: str, upto: Position, line: bytes, session: str) -> None:
        await asyncio.to_thread(self._copy, parent, upto, line, session, self._owner())

    def _copy(self, parent: str, upto: Position, line: bytes, session: str, owner: str) -> None:
        last = upto.after(line)
        try:
            with self._database.connection() as connection, connection.transaction():
                made = connection.execute(
                    "INSERT INTO log (store, name, head, size) VALUES (%s, %s, %s, %s) RETURNING id",
                    (self._store, session, last.seq, last.offset),
                ).fetchone()
                assert made is not None
                copied = connection.execute(_COPY, (made[0], self._store, parent, upto.seq)).rowcount
                if copied != upto.seq:
                    raise StorageFailed(f"The fork could not be written: {parent} was removed or is damaged.")
                connection.execute(
                    "INSERT INTO line (log, seq, ends, line) VALUES (%s, %s, %s, %b)", (made[0], last.seq, last.offset, line)
                )
                insert_fork(connection, line, parent)
                self._refuse_lost(connection, session, owner)
        except StorageFailed as failure:
            # The commit may have happened, and its answer been lost.
            if not isinstance(failure.__cause__, psycopg.OperationalError) or self.stamp(session) is None:
                raise

    async def rewrite(self, session: str, rewritten: Callable[[Lines], Iterator[bytes]]) -> None:
        owner = self._owner()
        await self._open_logs.hold(session, lambda: self._rewrite(session, rewritten, owner))
        self._open_logs.release(session)

    def _rewrite(self, session: str, rewritten: Callable[[Lines], Iterator[bytes]], owner: str) -> None:
        with self._database.connection() as connection, connection.transaction():
            self._refuse_lost(connection, session, owner)
            found = connection.execute(
                "UPDATE log SET epoch = epoch + 1 WHERE store = %s AND name = %s RETURNING id, head, size",
                (self._store, session),
            ).fetchone()
            if found is None:
                raise UnknownSession(f"Unknown session {session}.")
            log, head, size = found
            last = START
            rows = []
            for line in rewritten(RowLines(connection, session, log, head, size)):
                last = last.after(line)
                rows.append((log, last.seq, last.offset, line))
            with connection.cursor() as cursor:
                cursor.executemany(_REPLACE, rows)
            if last.seq < head:
                connection.execute("DELETE FROM line WHERE log = %s AND seq > %s", (log, last.seq))
            connection.execute(_RESIZE, (last.seq, last.offset, log))

    async def remove(self, session: str, *, upto: int = 0) -> bool:
        removed = await self._open_logs.hold(session, lambda: self._remove(session, upto))
        self._open_logs.release(session)
        return removed

    def _remove(self, session: str, upto: int) -> bool:
        with self._database.connection() as connection, connection.transaction():
            gone = connection.execute(
                "DELETE FROM log WHERE store = %s AND name = %s AND (%s = 0 OR head <= %s) RETURNING id",
                (self._store, session, upto, upto),
            ).fetchone()
            if gone is not None:  # a statement of its own also finds what an append has stored until the log was locked
                connection.execute("DELETE FROM line WHERE log = %s", gone)
            elif upto and connection.execute(_EXISTS, (self._store, session)).fetchone() is not None:
                return False
        for report in self._quarantine.glob(f"{session}-*"):
            report.unlink(missing_ok=True)
        return True

    async def discard_empty(self, session: str) -> None:
        await asyncio.to_thread(self._discard, session)

    def _discard(self, session: str) -> None:
        with self._database.connection() as connection:
            connection.execute("DELETE FROM log WHERE store = %s AND name = %s AND head = 0", (self._store, session))

    def _log(self, session: str, row: tuple[int, int, int], last: Position, owner: str) -> StoredRowLog:
        def released() -> None:
            self._open_logs.release(session)

        try:
            return StoredRowLog(
                session,
                row,
                last,
                database=self._database,
                committer=self._committer,
                released=released,
                owner=owner,
                shared=self.shared,
            )
        except StorageFailed:
            released()
            raise


def _dead() -> StorageFailed:
    return StorageFailed("The other gateways have declared this one dead, because it did not answer; it begins again.")
