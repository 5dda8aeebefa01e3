"""An examination of the server: what the promise of the store depends on, and how fast it is."""

from __future__ import annotations

import time
from statistics import median

import msgspec

from sessions.postgres.connections import Connection, Database
from sessions.postgres.schema import MIGRATIONS, version_of

SAMPLES = 20
"""Number of statements of each kind that are timed."""

_SETTINGS = """
    SELECT current_setting('server_version'), current_setting('synchronous_standby_names'), current_setting('fsync'),
           current_setting('full_page_writes'), pg_backend_pid(), extract(epoch FROM clock_timestamp())
"""


class ServerReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was found on a server. Times are in milliseconds.

    `standbys` is the setting `synchronous_standby_names`. `answer_ms` is the median time of a statement, `commit_ms` that of
    a commit, which waits for the disk and the standbys. `clock_ms` is how far the server's clock is ahead of this machine's.
    `tables` is the version of the tables, 0 if there are none, and `newest` the one that this program makes.
    """

    server: str
    version: str
    standbys: str
    fsync: bool
    full_page_writes: bool
    pooler: bool
    answer_ms: float
    commit_ms: float
    clock_ms: float
    tables: int
    newest: int = len(MIGRATIONS)


def examine(database: Database) -> ServerReport:
    """Examine a server. Nothing is stored, except for a few empty records in its write-ahead log. Blocks; raises
    StorageFailed."""
    with database.connection() as connection:
        answer = _median_ms(connection, "SELECT 1")
        commit = _median_ms(connection, "SELECT pg_logical_emit_message(true, 'exuvia', '')")
        begun = time.time()
        found = connection.execute(_SETTINGS).fetchone()
        ended = time.time()
        assert found is not None
        version, standbys, fsync, full_pages, process, clock = found
        return ServerReport(
            server=database.name,
            version=version,
            standbys=standbys,
            fsync=fsync == "on",
            full_page_writes=full_pages == "on",
            pooler=process != connection.info.backend_pid,
            answer_ms=answer,
            commit_ms=commit,
            clock_ms=round((float(clock) - (begun + ended) / 2) * 1000, 3),
            tables=version_of(connection),
        )


def _median_ms(connection: Connection, statement: str) -> float:
    taken = []
    for _ in range(SAMPLES):
        begun = time.perf_counter()
        connection.execute(statement.encode())
        taken.append(time.perf_counter() - begun)
    return round(median(taken) * 1000, 3)
