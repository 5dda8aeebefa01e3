"""The PostgreSQL store keeps what a store promises."""

from __future__ import annotations

from contextlib import AsyncExitStack
from pathlib import Path

import psycopg
import pytest
from hypothesis import settings

from sessions.catalog.postgres_catalog import PostgresCatalog
from sessions.postgres.connections import Connection, Database
from sessions.postgres.group_commit import GroupCommitter
from sessions.postgres.postgres_store import PostgresStore
from sessions.store.catalog import SoleClaims
from tests.conformance.stores import StoreMachine
from tests.conformance.test_stores import OpenFiles
from tests.servers.postgres_server import postgres_server


class Rows:
    """The PostgreSQL store, and its rows as others see them. A crash closes the sockets of the gateway."""

    leaves_torn_lines = False

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._url = postgres_server().database()
        self._stack = AsyncExitStack()
        self._patch = pytest.MonkeyPatch()
        self._committer: GroupCommitter

    async def start(self) -> OpenFiles:
        async with AsyncExitStack() as stack:
            database = stack.enter_context(Database(self._url))
            self._committer = await stack.enter_async_context(GroupCommitter(database))
            store = PostgresStore(database, "sessions", self._folder, self._committer)
            catalog = await stack.enter_async_context(PostgresCatalog(database, store.is_open))
            for session in catalog.empty:
                await store.discard_empty(session)
            self._stack = stack.pop_all()
        return OpenFiles(store, catalog, SoleClaims(catalog))

    async def stop(self) -> None:
        self._patch.undo()
        await self._stack.aclose()

    async def crash(self) -> None:
        """Disconnect the gateway from outside, whatever it is doing, and let it connect no more."""
        with psycopg.connect(self._url, autocommit=True) as outside:
            self._patch.setattr(GroupCommitter, "_connect", _unreachable)
            outside.execute(
                "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
                " WHERE datname = current_database() AND pid <> pg_backend_pid()"
            )
        await self.stop()

    def fail_next_commit(self, *, stored: bool) -> None:
        plain = GroupCommitter._append

        def fail(committer: GroupCommitter, connection: Connection, batch: object) -> set[int]:
            self._patch.undo()
            if stored:
                plain(committer, connection, batch)  # type: ignore[arg-type]
            raise psycopg.OperationalError("the connection was lost")

        self._patch.setattr(GroupCommitter, "_append", fail)

    def content(self, session: str) -> bytes:
        with psycopg.connect(self._url) as outside:
            rows = outside.execute(
                "SELECT line FROM exuvia.line JOIN exuvia.log ON log.id = line.log WHERE name = %s ORDER BY seq", (session,)
            )
            return b"".join(row[0] for row in rows)

    def replace(self, session: str, content: bytes | None) -> None:
        lines = (content or b"").splitlines(keepends=True)
        with psycopg.connect(self._url) as outside:
            outside.execute(
                "DELETE FROM exuvia.line USING exuvia.log WHERE log.id = line.log AND name = %s",
                (session,),
            )
            if content is None:
                outside.execute("DELETE FROM exuvia.log WHERE name = %s", (session,))
                return
            row = outside.execute(
                "INSERT INTO exuvia.log AS log (store, name, head, size) VALUES ('sessions', %(name)s, %(head)s, %(size)s)"
                " ON CONFLICT (store, name) DO UPDATE SET head = %(head)s, size = %(size)s, changed = log.changed + 1"
                " RETURNING id",
                {"name": session, "head": len(lines), "size": len(content)},
            ).fetchone()
            assert row is not None
            ends = 0
            for seq, line in enumerate(lines, 1):
                ends += len(line)
                outside.execute("INSERT INTO exuvia.line VALUES (%s, %s, %s, %s)", (row[0], seq, ends, line))


def _unreachable(_: GroupCommitter) -> Connection:
    raise psycopg.OperationalError("the process has ended")


class RowMachine(StoreMachine):
    under_test = Rows

    def teardown(self) -> None:
        super().teardown()
        assert isinstance(self._outside, Rows)
        postgres_server().drop(self._outside._url)


TestRows = RowMachine.TestCase
TestRows.settings = settings(max_examples=12, stateful_step_count=25, deadline=None)
