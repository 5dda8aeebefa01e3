"""Comparing the catalog's rows in a database with the logs, and making those that are missing.

A row is inserted and removed with its log, so nothing can differ while there are as many rows as logs, unless somebody has
changed the tables. Counting them takes longer the more there are. Where that would delay the start, only both ends of the
logs are looked at: an emptied catalog, and one whose making was interrupted, have no rows there.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager

import msgspec

from sessions.catalog.scan import scan_logs
from sessions.events.errors import StorageFailed
from sessions.postgres.connections import Connection, Database
from sessions.postgres.row_lines import RowReader
from sessions.postgres.session_rows import BEGIN, SESSIONS, row_values
from sessions.store.protocols import Lines, Stamp

SMALL_BYTES = 32 * 1024 * 1024
"""Size of the tables of logs and sessions up to which the rows are counted at the start."""

ENDS = 100
"""Number of logs that are looked at where the rows are not counted, at each end."""

PAGE = 10_000
"""Logs that are read at a time."""

BEGINNING = 60
"""Seconds for which a log without a line is left alone: another gateway may be about to write its first one."""

LONGEST_SECONDS = 600.0
"""Seconds that a comparison may take."""

_SIZE = """
    SELECT pg_relation_size('log') + pg_relation_size('session'),
           (SELECT greatest(reltuples, 0)::bigint FROM pg_class WHERE oid = 'session'::regclass)
"""

_ENDS_WITHOUT_ROW = f"""
    SELECT EXISTS (
        SELECT FROM (
            (SELECT name FROM log WHERE store = '{SESSIONS}' AND head > 0 ORDER BY name LIMIT %(ends)s)
            UNION ALL
            (SELECT name FROM log WHERE store = '{SESSIONS}' AND head > 0 ORDER BY name DESC LIMIT %(ends)s)
        ) AS ends WHERE NOT EXISTS (SELECT FROM session WHERE session.name = ends.name)
    )
"""  # noqa: S608 - constants of ours

_WITHOUT_ROW = f"""
    SELECT name, size, changed, id FROM log
    WHERE store = '{SESSIONS}' AND name > %s AND NOT EXISTS (SELECT FROM session WHERE session.name = log.name)
        AND (head > 0 OR changed < extract(epoch FROM clock_timestamp() - make_interval(secs => {BEGINNING})) * 1000000000)
    ORDER BY name LIMIT {PAGE}
"""  # noqa: S608 - constants of ours

_COUNTS = f"""
    SELECT (SELECT count(*) FROM log WHERE store = '{SESSIONS}'), (SELECT count(*) FROM session)
"""  # noqa: S608 - constants of ours

_WITHOUT_LOG = f"""
    SELECT name FROM session WHERE NOT EXISTS (SELECT FROM log WHERE log.store = '{SESSIONS}' AND log.name = session.name)
"""  # noqa: S608 - constants of ours


class Repaired(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a comparison: the number of rows, how many were missing and have been inserted, the reason for each
    session whose log is missing or unreadable, and the logs without any acknowledged line."""

    count: int
    inserted: int = 0
    unreadable: dict[str, str] = {}
    empty: list[str] = []


def estimated_rows(database: Database) -> int | None:
    """Return about how many rows there are if comparing them with the logs can wait; None if it is done at once. Blocks;
    raises StorageFailed."""
    with database.connection() as connection:
        size, rows = connection.execute(_SIZE).fetchone() or (0, 0)
        if size <= SMALL_BYTES:
            return None
        (incomplete,) = connection.execute(_ENDS_WITHOUT_ROW.encode(), {"ends": ENDS}).fetchone() or (True,)
    return None if incomplete else rows


def repair_rows(database: Database, logs: RowReader) -> Repaired:
    """Insert the rows that are missing, and find the sessions without a log. Blocks; raises StorageFailed."""
    with _patient(database) as connection:
        present, count = connection.execute(_COUNTS).fetchone() or (0, 0)
        if present == count:
            return Repaired(count=count)
        found = connection.execute(_WITHOUT_LOG.encode()).fetchall()
        unreadable, empty = {session: "it is missing" for (session,) in found}, list[str]()
        after, inserted = "", 0
        while some := _logs_without_row(connection, logs, after):
            scanned = scan_logs(some, {})
            for session, why in scanned.unknown.items():  # else its key would continue in another session
                raise StorageFailed(f"{logs.location(session)} cannot be read: {why}.")
            unreadable |= scanned.unreadable
            empty += scanned.empty
            connection.execute(BEGIN.encode(), row_values(scanned.changed))
            inserted += len(scanned.changed)
            after = some.last
        (count,) = connection.execute("SELECT count(*) FROM session").fetchone() or (0,)
        awaited = connection.execute("SELECT succeeds FROM session WHERE succeeds = ANY(%s)", (empty,)).fetchall()
    empty = sorted(set(empty).difference(session for (session,) in awaited))
    return Repaired(count=count, inserted=inserted, unreadable=unreadable, empty=empty)


@contextmanager
def _patient(database: Database) -> Iterator[Connection]:
    """Open a connection whose statements may take long; errors of the database are raised as StorageFailed."""
    with closing(database.connect(seconds=LONGEST_SECONDS)) as connection, database.errors("cannot be read"):
        yield connection


def _logs_without_row(connection: Connection, logs: RowReader, after: str) -> _Some | None:
    found = connection.execute(_WITHOUT_ROW.encode(), (after,), binary=True).fetchall()
    stamps = [(name, Stamp(size=size, changed=changed, identity=id_)) for name, size, changed, id_ in found]
    return _Some(logs, stamps) if stamps else None


class _Some:
    """Some of the logs of a reader, as a `LogReader`."""

    def __init__(self, logs: RowReader, stamps: list[tuple[str, Stamp]]) -> None:
        self.last = stamps[-1][0]
        self._logs = logs
        self._stamps = stamps

    def listed(self) -> Iterator[tuple[str, Stamp]]:
        yield from self._stamps

    def stamp(self, session: str) -> Stamp | None:
        return self._logs.stamp(session)

    def location(self, session: str) -> str:
        return self._logs.location(session)

    @contextmanager
    def read(self, session: str) -> Iterator[Lines]:
        with self._logs.read(session) as lines:
            yield lines
