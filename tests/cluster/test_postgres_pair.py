"""Two servers of PostgreSQL: what was committed survives a failover, unless nothing waited for a frozen standby."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import psycopg

from benchmarks.cluster.postgres_pair import PostgresPair
from tests.waiting import DEADLINE

FLUSHED = "SELECT flush_lsn >= %s::pg_lsn FROM pg_stat_replication"


def connected(pair: PostgresPair) -> psycopg.Connection[tuple[int]]:
    """A connection to the primary."""
    return psycopg.connect(pair.url("postgres", target_session_attrs="read-write"), autocommit=True)


def numbers(pair: PostgresPair) -> list[int]:
    with connected(pair) as connection:
        return [number for (number,) in connection.execute("SELECT number FROM kept ORDER BY number")]


def test_what_was_committed_survives_two_failovers() -> None:
    with PostgresPair(durable=False) as pair:
        with connected(pair) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS number")
        for number in (2, 3):
            before = pair.primary
            pair.fail_over()
            assert pair.standby == before
            assert numbers(pair) == list(range(1, number))
            pair.join()
            with connected(pair) as connection:
                connection.execute("INSERT INTO kept VALUES (%s)", (number,))
        assert numbers(pair) == [1, 2, 3]


def test_a_commit_waits_for_a_frozen_standby() -> None:
    with PostgresPair(durable=False) as pair, connected(pair) as connection, ThreadPoolExecutor() as threads:
        connection.execute("CREATE TABLE kept (number integer)")
        pair.server(pair.standby).freeze()
        waiting = threads.submit(connection.execute, "INSERT INTO kept VALUES (1)")
        with connected(pair) as other:
            while not other.execute("SELECT 1 FROM pg_stat_activity WHERE wait_event = 'SyncRep'").fetchone():
                assert not waiting.done()
            pair.server(pair.standby).wake()
            waiting.result(DEADLINE)
        assert numbers(pair) == [1]


def test_without_synchronous_replication_a_frozen_standby_loses_what_was_committed() -> None:
    with PostgresPair(synchronous=False, durable=False) as pair:
        with connected(pair) as connection:
            connection.execute("CREATE TABLE kept AS SELECT 1 AS number")
            written = connection.execute("SELECT pg_current_wal_lsn()::text").fetchone()
            while connection.execute(FLUSHED, written).fetchone() != (True,):
                pass
            pair.server(pair.standby).freeze()
            connection.execute("INSERT INTO kept VALUES (2)")
        pair.server(pair.primary).kill()
        pair.restart_standby()
        pair.promote()
        assert numbers(pair) == [1]
