"""The committer of a database: one thread and one connection, which commit what is waiting of all logs in one statement.

The statement moves the head of each log, if its epoch and its head are still those of the writer, and inserts lines only
where that succeeded. The update takes the row's lock, so nobody can open a log between the check and the insert.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from types import TracebackType

import psycopg

from sessions.events.errors import StorageFailed
from sessions.postgres.connections import Connection, Database
from sessions.postgres.membership import FENCE
from sessions.postgres.schema import migrate
from sessions.postgres.session_rows import BEGIN_MOVED, BEGINS_ELSEWHERE, begun_row, row_values
from sessions.store.protocols import Position
from sessions.store.queued_log import QueuedLog

BATCH_BYTES = 1024 * 1024
"""Bytes from which no further log is added to a statement."""


def _append_statement(condition: str = "", first: str = "") -> str:
    """Return the statement that appends to several logs: with a further condition for a log, and with a further query that
    refers to the logs that were appended to (`moved`)."""
    return f"""
        WITH fence AS {FENCE}, given AS (
            SELECT * FROM unnest(%(logs)b::bigint[], %(epochs)b::bigint[], %(heads)b::bigint[], %(lasts)b::bigint[],
                                 %(sizes)b::bigint[], %(owners)b::text[]) AS given (log, epoch, head, last, size, owner)
            WHERE owner = '' OR owner IN (SELECT id FROM fence)
        ), moved AS (
            UPDATE log SET head = given.last, size = given.size,
                           changed = greatest(changed + 1, extract(epoch FROM clock_timestamp()) * 1000000000)
            FROM given WHERE log.id = given.log AND log.epoch = given.epoch AND log.head = given.head {condition}
            RETURNING log.id, log.changed
        ), inserted AS (
            INSERT INTO line (log, seq, ends, line)
            SELECT new.log, new.seq, new.ends, new.line
            FROM unnest(%(line_logs)b::bigint[], %(seqs)b::bigint[], %(ends)b::bigint[], %(lines)b::bytea[])
                 AS new (log, seq, ends, line) JOIN moved ON moved.id = new.log
        ) {first}
        SELECT id, changed FROM moved
    """  # noqa: S608 - fragments of ours


_APPEND = _append_statement().encode()

_APPEND_FIRST = _append_statement(
    f"AND (given.owner = '' OR NOT {BEGINS_ELSEWHERE})", f", begun AS ({BEGIN_MOVED})"
).encode()
"""The same for first lines, with the catalog's rows of the sessions that begin. A gateway that has lost a conversation, and
begun again as another incarnation, must not begin a session of it: the conversation would have two."""


class RowLog(QueuedLog):
    """The queue of a log in the database, by its id, epoch and time of change. `head`, its last committed seq, and `changed`
    are set on the committer's thread. `owner` is the incarnation of the gateway that may write it, empty for any process."""

    def __init__(
        self,
        name: str,
        row: tuple[int, int, int],
        last: Position,
        *,
        committer: GroupCommitter,
        released: Callable[[], None],
        owner: str = "",
    ) -> None:
        super().__init__(name, last.offset, committer, released)
        self.owner = owner
        self.id, self.epoch, self.changed = row
        self.head = last.seq
        committer.attach(self)


class GroupCommitter:
    """Commits logs, used as an async context manager. Entering connects and migrates the tables; it raises StorageFailed.
    All methods are called on the event loop.

    While the database cannot be reached, commits fail, and their logs with them. A log that is opened again reads what was
    committed. `committed` is called with the duration of each commit in seconds.
    """

    def __init__(self, database: Database, committed: Callable[[float], None] = lambda _: None) -> None:
        self.failure: asyncio.Future[StorageFailed]
        self.pending = 0
        self.commits = 0
        self._committed = committed
        self._database = database
        self._connection: Connection | None = None
        self._is_migrated = False
        self._attached: set[RowLog] = set()
        self._work: SimpleQueue[RowLog | None] = SimpleQueue()
        self._reports: deque[tuple[list[tuple[RowLog, StorageFailed | None]], float]] = deque()
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
        self._loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> GroupCommitter:
        self._loop = asyncio.get_running_loop()
        self.failure = self._loop.create_future()
        self._connection = await asyncio.to_thread(self._connect)
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the commits in progress and end the thread. The owners close their logs before."""
        self._work.put(None)
        await asyncio.to_thread(self._thread.join)
        self._deliver()
        for log in tuple(self._attached):
            log.settle(StorageFailed("The logs are closed: the gateway is stopping."))
        if self._connection is not None:
            self._connection.close()

    def attach(self, log: RowLog) -> None:
        """Notify a log if the storage fails permanently. Raises StorageFailed if it already has."""
        if self.failure.done():
            raise self.failure.result()
        self._attached.add(log)

    def detach(self, log: RowLog) -> None:
        """Remove a log that is closed or has failed."""
        self._attached.discard(log)

    def submit(self, log: RowLog) -> None:
        """Commit a log's next chunk. It must have one, and no commit in progress."""
        self._work.put(log)

    def fail(self, failure: StorageFailed) -> None:
        """Mark the storage as failed permanently, and notify all logs once."""
        if self.failure.done():
            return
        self.failure.set_result(failure)
        for log in tuple(self._attached):
            log.settle(failure)

    # --- on the thread ------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while (log := self._work.get()) is not None:
            batch = [(log, log.take())]
            size = sum(map(len, batch[0][1]))
            with suppress(Empty):
                while size < BATCH_BYTES:
                    if (other := self._work.get_nowait()) is None:
                        self._work.put(None)
                        break
                    batch.append((other, other.take()))
                    size += sum(map(len, batch[-1][1]))
            begun = time.perf_counter()
            report = self._attempt(batch)
            self._reports.append((report, time.perf_counter() - begun))
            self._loop.call_soon_threadsafe(self._deliver)

    def _attempt(self, batch: list[tuple[RowLog, list[bytes]]]) -> list[tuple[RowLog, StorageFailed | None]]:
        try:
            if self._connection is None or not self._connection.usable:
                self._give_up()
                self._connection = self._connect()
            stored = self._append(self._connection, batch)
        except StorageFailed as error:
            failure = error
        except psycopg.Error as error:
            failure = self._database.failed("did not confirm a commit", error)
        except Exception as error:  # a bug: what was committed is unknown
            failure = StorageFailed(f"a commit failed: {error!r}", fatal=True)
        else:
            return [(log, None if log.id in stored else _fenced(log)) for log, _ in batch]
        self._give_up()
        return [(log, failure) for log, _ in batch]

    def _append(self, connection: Connection, batch: list[tuple[RowLog, list[bytes]]]) -> set[int]:
        """Append to several logs, and return the ids of those that this gateway may still write."""
        heads, sizes = [], []
        line_logs, seqs, ends = list[int](), list[int](), list[int]()
        for log, lines in batch:
            seq, end = log.head, log.committed
            for line in lines:
                seq, end = seq + 1, end + len(line)
                line_logs.append(log.id)
                seqs.append(seq)
                ends.append(end)
            heads.append(seq)
            sizes.append(end)
        given = {
            "logs": [log.id for log, _ in batch],
            "epochs": [log.epoch for log, _ in batch],
            "heads": [log.head for log, _ in batch],
            "lasts": heads,
            "sizes": sizes,
            "owners": [log.owner for log, _ in batch],
            "gateways": sorted({log.owner for log, _ in batch if log.owner}),
            "line_logs": line_logs,
            "seqs": seqs,
            "ends": ends,
            "lines": [line for _, lines in batch for line in lines],
        }
        begun = [row for log, lines in batch if log.head == 0 and (row := begun_row(lines[0])) is not None]
        if begun:
            stored: dict[int, int] = dict(connection.execute(_APPEND_FIRST, given | row_values(begun)).fetchall())
        else:
            stored = dict(connection.execute(_APPEND, given).fetchall())
        for (log, _), head, size in zip(batch, heads, sizes, strict=True):
            if log.id in stored:
                log.head, log.committed, log.changed = head, size, stored[log.id]
        return set(stored)

    def _connect(self) -> Connection:
        """Connect, and migrate the tables the first time. Raises StorageFailed."""
        connection = self._database.connect()
        try:
            with self._database.errors("cannot be used"):
                (here,) = connection.execute("SELECT pg_backend_pid()").fetchone() or (None,)
            if here != connection.info.backend_pid:
                raise StorageFailed(
                    f"Between this gateway and {self._database.name} is a connection pooler; the URL must name the"
                    " PostgreSQL server itself."
                )
            if not self._is_migrated:
                migrate(self._database, connection)
                self._is_migrated = True
        except BaseException:
            connection.close()
            raise
        return connection

    def _give_up(self) -> None:
        """Close the connection, without a cancellation; the next commit opens another."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    # --- on the loop --------------------------------------------------------------------------------------------------

    def _deliver(self) -> None:
        while self._reports:
            report, seconds = self._reports.popleft()
            if any(failure is None for _, failure in report):
                self.commits += 1
                self._committed(seconds)
            for log, failure in report:
                if failure is not None and failure.fatal:
                    self.fail(failure)
                try:
                    log.settle(failure)
                except Exception as error:  # a failing listener must not block the others
                    self._loop.call_exception_handler({"message": "a log's listener failed", "exception": error})


def _fenced(log: RowLog) -> StorageFailed:
    return StorageFailed(f"{log.name} was opened by another gateway, or removed; this one may not write it any more.")
