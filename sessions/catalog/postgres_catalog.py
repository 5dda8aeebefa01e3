"""The catalog in PostgreSQL, which several gateways share: rows are read for the keys that are asked for, and lists are made
by the database.

Nothing is believed that another gateway may have changed meanwhile. `current` and `receipts` read the rows of a key anew and
compare each with its log: a row that is behind, because the gateway that wrote the log has died or has not written the row
yet, is completed from the last line of the log. The ids of messages are derived from the log too: what the stored batches do
not cover is read from the lines after them. So neither can differ from the log, however a gateway has ended: it is enough to
claim a key first, so that what its former owner still writes is rejected.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable
from contextlib import AsyncExitStack, suppress
from itertools import islice
from typing import Any

import msgspec
import structlog

from sessions.catalog.checkpoints import decode_checkpoint, encode_checkpoints
from sessions.catalog.lineage import Lineage
from sessions.catalog.receipt_batches import ReceiptBatch, ReceiptCoverage, encode_batch
from sessions.catalog.row_repair import Repaired, estimated_rows, repair_rows
from sessions.catalog.scan import last_event
from sessions.events.codec import InvalidLine
from sessions.events.errors import SessionsError, StorageFailed
from sessions.events.events import SessionClosed
from sessions.postgres.connections import Connection, Database
from sessions.postgres.row_lines import RowReader
from sessions.postgres.session_rows import PUT, REPLACE, SESSIONS, decode_row, row_values
from sessions.state.transcript import Transcript
from sessions.store.catalog import ListedSession, Name, SessionRow
from sessions.store.protocols import Position
from sessions.store.receipts import Receipts

PAUSE = 1.0
"""Seconds for which changes are collected before they are written."""

MOST_NAMES = 10_000
"""Number of keys above which the rows of those that were not used for longest are dropped from memory, unless one of their
sessions is open."""

PAGE = 10_000
"""Rows that are read at a time."""

CHECK_SECONDS = 10.0
"""Seconds after the start until the rows of very many sessions are compared with the logs."""

log = structlog.get_logger("exuvia.catalog")

_ROW = "session.fields, log.head, log.size, log.changed"

_SESSIONS = f"""
    SELECT {_ROW} FROM session LEFT JOIN log ON log.store = '{SESSIONS}' AND log.name = session.name
"""  # noqa: S608 - constants of ours

_LISTED = f"""
    SELECT {_ROW}, first.opened_at, parent.key FROM (
        SELECT DISTINCT ON (key) name FROM session
        WHERE person = %(person)s AND key > %(after)s
        ORDER BY key, EXISTS (SELECT FROM session AS next WHERE next.succeeds = session.name
                              AND (next.person, next.key) = (session.person, session.key)),
                 opened_at DESC, name DESC
        LIMIT {PAGE}
    ) AS current JOIN session USING (name)
    LEFT JOIN log ON log.store = '{SESSIONS}' AND log.name = session.name
    LEFT JOIN session AS parent ON parent.name = session.origin
    CROSS JOIN LATERAL (
        SELECT min(opened_at) AS opened_at FROM session AS each WHERE (each.person, each.key) = (session.person, session.key)
    ) AS first
    ORDER BY session.key
"""  # noqa: S608 - constants of ours
"""The current session of each key: the newest without a successor, or, in a circle, the newest."""


class _Changes(msgspec.Struct, kw_only=True):
    """Changes that are not written yet; of each session only the newest row and checkpoint."""

    rows: dict[str, SessionRow] = msgspec.field(default_factory=dict)
    checkpoints: dict[str, tuple[Position, Transcript]] = msgspec.field(default_factory=dict)
    receipts: list[ReceiptBatch] = msgspec.field(default_factory=list)

    def __bool__(self) -> bool:
        return bool(self.rows or self.checkpoints or self.receipts)


class PostgresCatalog:
    """The `Catalog` of the sessions in a database, used as an async context manager. Leaving it writes all changes. Several
    gateways may use it at once. Entering raises StorageFailed.

    `rebuilt` is a sentence if rows were missing and have been read from the logs; `empty` lists the sessions without any
    acknowledged line. With very many sessions both are known only some seconds later, and `count` is an estimate until then.

    Args:
        database: The database, whose tables are of this version.
        is_open: Returns True for a session that this process writes, whose rows are kept in memory.
    """

    def __init__(self, database: Database, is_open: Callable[[str], bool]) -> None:
        self.rebuilt: str | None = None
        self.unreadable: dict[str, str] = {}
        self.empty: list[str] = []
        self.failure: str | None = None
        self.count = 0
        self._is_checked = True
        self._database = database
        self._is_open = is_open
        self._logs = RowReader(database, SESSIONS)
        self._lineage = Lineage()
        self._names: OrderedDict[Name, None] = OrderedDict()
        self._receipts = ReceiptCoverage(self._logs, self._batches, self._keep, self.unreadable)
        self._changes = _Changes()
        self._under_way = _Changes()
        self._writing = asyncio.Lock()
        self._dirty = asyncio.Event()
        self._closing = asyncio.Event()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> PostgresCatalog:
        async with AsyncExitStack() as stack:
            await self._check()
            tasks = await stack.enter_async_context(asyncio.TaskGroup())
            tasks.create_task(self._write_behind())
            if not self._is_checked:
                stack.callback(tasks.create_task(self._check_later()).cancel)
            stack.callback(self._close)
            self._stack = stack.pop_all()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._stack.aclose()

    # --- sessions -----------------------------------------------------------------------------------------------------

    async def current(self, person: str, key: str) -> SessionRow | None:
        await self._load((person, key))
        return self._lineage.current((person, key))

    def row(self, session: str) -> SessionRow | None:
        return self._lineage.rows.get(session)

    async def find(self, session: str) -> SessionRow | None:
        found = await self._rows("WHERE session.name = %(name)s", name=session)
        return found[0] if found else None

    async def sessions(self, person: str) -> list[SessionRow]:
        return [each.row for each in await self.listed(person)]

    async def listed(self, person: str) -> list[ListedSession]:
        return [] if "\0" in person else await asyncio.to_thread(self._read_listed, person)

    async def every(self, person: str) -> list[SessionRow]:
        return await self._rows("WHERE session.person = %(person)s", person=person)

    def chain(self, session: str) -> list[SessionRow]:
        return self._lineage.chain(session)

    def successor(self, session: str) -> SessionRow | None:
        return self._lineage.successor(session)

    async def unsettled(self) -> list[SessionRow]:
        found = await self._rows("WHERE NOT session.settled OR (log.size, log.changed) <> (session.size, session.changed)")
        return [row for row in found if not row.settled]

    async def changed_since(self, at: str) -> list[SessionRow]:
        return await self._rows("WHERE session.at >= %(at)s", at=at)

    def put(self, row: SessionRow) -> None:
        if row.session not in self._lineage.rows:
            self._receipts.begin(row.session)
            self.count += 1
        self._lineage.put(row)
        self._use(row.name)
        self._changes.rows[row.session] = row
        self._dirty.set()

    async def replace(self, rows: Collection[SessionRow]) -> None:
        sessions = {row.session for row in rows}
        async with self._writing:  # what is being written may have them still
            for session in sessions:
                self._receipts.drop(session)
                self._changes.checkpoints.pop(session, None)
            self._changes.receipts = [each for each in self._changes.receipts if each.session not in sessions]
            await asyncio.to_thread(_replace_rows, self._database, rows)
            for row in rows:
                self._changes.rows.pop(row.session, None)
                if row.session in self._lineage.rows:
                    self._lineage.put(row)

    async def remove(self, sessions: Collection[str]) -> None:
        for session in sessions:
            self._lineage.remove(session)
            self._receipts.drop(session)
            self.unreadable.pop(session, None)
        async with self._writing:  # what is being written may have them still
            for session in sessions:
                self._changes.rows.pop(session, None)
                self._changes.checkpoints.pop(session, None)
            self._changes.receipts = [each for each in self._changes.receipts if each.session not in sessions]
            self.count -= await asyncio.to_thread(forget_rows, self._database, sessions)

    # --- checkpoints and receipts -------------------------------------------------------------------------------------

    async def checkpoint(self, session: str) -> tuple[Position, Transcript] | None:
        return await asyncio.to_thread(self._read_checkpoint, session)

    def save_checkpoint(
        self, session: str, position: Position, transcript: Transcript, receipts: Receipts | None = None
    ) -> None:
        self._changes.checkpoints[session] = position, transcript
        if receipts is not None:
            self._receipts.extend(session, position, receipts)
        self._dirty.set()

    async def receipts(self, person: str, key: str) -> Receipts:
        name = person, key
        await self._load(name)
        return await self._receipts.of(self._lineage.all_of(name))

    async def _batches(self, session: str) -> list[object]:
        def read() -> list[object]:
            with self._database.connection() as connection:
                found = connection.execute("SELECT sealed FROM receipts WHERE session = %s ORDER BY upto DESC", (session,))
                return [sealed for (sealed,) in found.fetchall()]

        return await asyncio.to_thread(read)

    def _keep(self, batch: ReceiptBatch) -> None:
        self._changes.receipts.append(batch)
        self._dirty.set()

    # --- rows in memory -----------------------------------------------------------------------------------------------

    async def _load(self, name: Name) -> None:
        """Read all rows of a key anew, each as its log is now."""
        person, key = name
        where = "WHERE (session.person, session.key) = (%(person)s, %(key)s)"
        rows = await self._rows(where, complete=True, person=person, key=key)
        known = {row.session for row in rows}
        for row in self._lineage.all_of(name):
            if row.session not in known:
                self._lineage.remove(row.session)
        for row in rows:
            self._lineage.put(row)
        if rows:
            self._use(name)

    def _use(self, name: Name) -> None:
        """Keep the rows of a key in memory, and drop others if there are too many."""
        self._names[name] = None
        self._names.move_to_end(name)
        if len(self._names) <= MOST_NAMES:
            return
        for other in list(islice(self._names, len(self._names) - MOST_NAMES)):
            rows = self._lineage.all_of(other)
            if any(self._is_open(row.session) for row in rows):
                self._names.move_to_end(other)
                continue
            del self._names[other]
            for row in rows:
                self._lineage.remove(row.session)
                self._receipts.drop(row.session)

    def _pending(self, session: str) -> SessionRow | None:
        """Return a row that was put and is not in the database yet."""
        return self._changes.rows.get(session) or self._under_way.rows.get(session)

    # --- reading, on threads ------------------------------------------------------------------------------------------

    async def _rows(self, where: str, *, complete: bool = False, **values: str) -> list[SessionRow]:
        if any("\0" in value for value in values.values()):  # which no text in PostgreSQL contains
            return []
        return await asyncio.to_thread(self._read_rows, _SESSIONS + where, values, complete=complete)

    def _read_rows(self, query: str, values: dict[str, str], *, complete: bool) -> list[SessionRow]:
        with self._database.connection() as connection:
            found = connection.execute(query.encode(), values, binary=True).fetchall()
        return [row for fields, *log in found if (row := self._as_of_log(fields, log, complete=complete)) is not None]

    def _read_listed(self, person: str) -> list[ListedSession]:
        listed = list[ListedSession]()
        after = ""
        while True:
            with self._database.connection() as connection:
                found = connection.execute(_LISTED.encode(), {"person": person, "after": after}, binary=True).fetchall()
            for fields, head, size, changed, created, origin in found:
                if (row := self._as_of_log(fields, (head, size, changed), complete=False)) is not None:
                    listed.append(ListedSession(row=row, created=created, origin_key=origin or ""))
                    after = row.key
            if len(found) < PAGE:
                return listed

    def _as_of_log(self, fields: bytes, log: Iterable[int | None], *, complete: bool) -> SessionRow | None:
        """Return a row as its log is now; `complete` reads the last line where the row is behind."""
        try:
            row = decode_row(fields)
        except msgspec.MsgspecError:
            return None  # altered; without a row the log is found at the next start
        pending = self._pending(row.session)
        if pending is not None and pending.mtime_ns >= row.mtime_ns:
            row = pending
        head, size, changed = log
        if head is None or size is None or changed is None:
            self.unreadable[row.session] = "it is missing"
            return row
        if (row.size, row.mtime_ns) == (size, changed):
            return row
        if head < row.acknowledged:
            self.unreadable[row.session] = f"it ends with event {head}, but event {row.acknowledged} was acknowledged"
            return msgspec.structs.replace(row, settled=False)
        row = msgspec.structs.replace(row, head=head, size=size, mtime_ns=changed, settled=False)
        return self._completed(row) if complete else row

    def _completed(self, row: SessionRow) -> SessionRow:
        """Return the row with what the last line of its log says."""
        try:
            with self._logs.read(row.session) as lines:
                last = last_event(lines)
        except (SessionsError, InvalidLine) as error:
            if isinstance(error, StorageFailed):
                raise
            self.unreadable[row.session] = str(error)
            return row
        return msgspec.structs.replace(
            row, head=max(row.head, last.seq), at=last.at, closed=isinstance(last.event, SessionClosed)
        )

    def _read_checkpoint(self, session: str) -> tuple[Position, Transcript] | None:
        with self._database.connection() as connection:
            found = connection.execute(
                "SELECT sealed FROM checkpoint WHERE session = %s", (session,), binary=True
            ).fetchone()
        return decode_checkpoint(session, found[0]) if found else None

    # --- writing ------------------------------------------------------------------------------------------------------

    async def _check(self) -> None:
        """Compare the rows with the logs, now or, where that takes long, after the start."""
        estimate = await asyncio.to_thread(estimated_rows, self._database)
        if estimate is None:
            self._apply(await asyncio.to_thread(repair_rows, self._database, self._logs))
        else:
            self.count, self._is_checked = estimate, False

    async def _check_later(self) -> None:
        with suppress(TimeoutError):
            await asyncio.wait_for(self._closing.wait(), CHECK_SECONDS)
            return
        try:
            found = await asyncio.to_thread(repair_rows, self._database, self._logs)
        except Exception as error:
            log.warning("catalog_not_checked", reason=str(error))
            return
        self._apply(found)
        if self.rebuilt:
            log.warning("catalog_rebuilt", reason=self.rebuilt)
        for session, reason in found.unreadable.items():
            log.error("journal_unreadable", journal=f"{session}.jsonl", reason=reason)

    def _apply(self, found: Repaired) -> None:
        self.count, self.empty = found.count, found.empty
        self.unreadable |= found.unreadable
        if found.inserted:
            self.rebuilt = f"{found.inserted} sessions were not in the catalog; they were read from their logs."

    def _close(self) -> None:
        self._closing.set()
        self._dirty.set()

    async def _write_behind(self) -> None:
        while not self._closing.is_set():
            await self._dirty.wait()
            with suppress(TimeoutError):
                await asyncio.wait_for(self._closing.wait(), PAUSE)
            self._dirty.clear()
            await self._write()
        await self._write()  # changes made meanwhile, or not written before

    async def _write(self) -> None:
        async with self._writing:
            self._under_way, self._changes = self._changes, _Changes()
            if not self._under_way:
                return
            try:
                await asyncio.to_thread(self._store, self._under_way)
                self.failure = None
            except Exception as error:  # the database, or no memory or no thread: the next attempt may succeed
                self.failure = f"The catalog cannot be written: {error}"
                self._take_back(self._under_way)
            finally:
                self._under_way = _Changes()

    def _store(self, changes: _Changes) -> None:
        checkpoints = list(encode_checkpoints(changes.checkpoints))
        with self._database.connection() as connection, connection.transaction():
            connection.execute(PUT.encode(), row_values(sorted(changes.rows.values(), key=_session)))
            for session, sealed in sorted(checkpoints):
                _put_checkpoint(connection, session, changes.checkpoints[session][0].seq, sealed)
            for batch in changes.receipts:
                _put_batch(connection, batch)

    def _take_back(self, changes: _Changes) -> None:
        """Merge changes that could not be written with later ones, for the next attempt. Checkpoints are dropped, because
        they are large."""
        later = self._changes
        later.rows = changes.rows | later.rows
        later.receipts = changes.receipts + later.receipts
        self._dirty.set()


def heads_of_rows(database: Database) -> dict[str, int]:
    """Return the highest durable seq of each session in the catalog. Blocks; raises StorageFailed."""
    heads = dict[str, int]()
    with (
        database.connection() as connection,
        connection.transaction(),
        connection.cursor(name="heads", binary=True) as cursor,
    ):
        for session, fields in cursor.execute("SELECT name, fields FROM session"):
            with suppress(msgspec.MsgspecError):
                heads[session] = decode_row(fields).acknowledged
    return heads


def forget_rows(database: Database, sessions: Collection[str]) -> int:
    """Remove everything that the catalog has of sessions; return the number of its rows. Blocks; raises StorageFailed."""
    with database.connection() as connection, connection.transaction():
        removed: Any = connection.execute("DELETE FROM session WHERE name = ANY(%s)", (list(sessions),)).rowcount
        _remove_derived(connection, sessions)
    return int(removed)


def _replace_rows(database: Database, rows: Collection[SessionRow]) -> None:
    """Replace everything that the catalog has of sessions with rows. Blocks; raises StorageFailed."""
    with database.connection() as connection, connection.transaction():
        connection.execute(REPLACE.encode(), row_values(rows))
        _remove_derived(connection, [row.session for row in rows])


def _remove_derived(connection: Connection, sessions: Collection[str]) -> None:
    connection.execute("DELETE FROM checkpoint WHERE session = ANY(%s)", (list(sessions),))
    connection.execute("DELETE FROM receipts WHERE session = ANY(%s)", (list(sessions),))


def _session(row: SessionRow) -> str:
    return row.session


def _put_checkpoint(connection: Connection, session: str, seq: int, sealed: bytes) -> None:
    """Store a checkpoint of a session that exists, unless a later one is there."""
    connection.execute(
        "INSERT INTO checkpoint AS known (session, seq, sealed)"
        " SELECT name, %s, %b FROM session WHERE name = %s"
        " ON CONFLICT (session) DO UPDATE SET seq = excluded.seq, sealed = excluded.sealed WHERE excluded.seq >= known.seq",
        (seq, sealed, session),
    )


def _put_batch(connection: Connection, batch: ReceiptBatch) -> None:
    if batch.after == 0:
        connection.execute("DELETE FROM receipts WHERE session = %s", (batch.session,))
    connection.execute(
        "INSERT INTO receipts (session, upto, sealed) SELECT name, %s, %b FROM session WHERE name = %s"
        " ON CONFLICT (session, upto) DO UPDATE SET sealed = excluded.sealed",
        (batch.upto.seq, encode_batch(batch), batch.session),
    )
