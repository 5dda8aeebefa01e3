"""The catalog in PostgreSQL, with two gateways: each finds what the other wrote a moment ago, also if it was killed."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import psycopg
import pytest

from gateway.conversations.routing.conversation_runner import CatalogWriter
from sessions.catalog import postgres_catalog, row_repair
from sessions.catalog.postgres_catalog import PostgresCatalog, heads_of_rows
from sessions.events.errors import JournalDamaged, StorageFailed
from sessions.events.events import SessionClosed, SessionTitled, Succession, TurnEnded
from sessions.postgres.connections import Database
from sessions.postgres.group_commit import GroupCommitter
from sessions.postgres.postgres_store import PostgresStore
from sessions.postgres.schema import migrate
from sessions.state.transcript import Transcript
from sessions.store.fork import fork
from sessions.store.protocols import START
from sessions.store.receipts import Receipts
from sessions.store.recorder import Recorder, open_session
from tests.servers.postgres_server import postgres_server
from tests.sessions.journal_files import session_id
from tests.stories import AT, opened, received
from tests.waiting import until

NOW = datetime.fromisoformat(AT).astimezone(UTC)
FIRST, SECOND, THIRD = (f"20261121-00000{number}-aaaaaa" for number in (1, 2, 3))


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database."""
    url = postgres_server().database()
    yield url
    postgres_server().drop(url)


@dataclass
class Writer:
    """The gateway that writes."""

    database: Database
    store: PostgresStore
    catalog: PostgresCatalog

    async def begun(self, session: str, key: str = "main", *, succeeds: Succession | None = None) -> Recorder:
        recorder = Recorder(await self.store.create(session), START, Transcript(), lambda: NOW)
        await recorder.append_durable(opened(session, key, succeeds=succeeds))
        return recorder


@asynccontextmanager
async def writing(url: str, folder: Path) -> AsyncIterator[Writer]:
    with Database(url) as database:
        async with GroupCommitter(database) as committer:
            store = PostgresStore(database, "sessions", folder, committer)
            async with PostgresCatalog(database, store.is_open) as catalog:
                yield Writer(database, store, catalog)


@asynccontextmanager
async def another(url: str) -> AsyncIterator[PostgresCatalog]:
    """The catalog of another gateway of the same database."""
    with Database(url) as database:
        async with PostgresCatalog(database, lambda _: False) as catalog:
            yield catalog


def outside(url: str, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(url, autocommit=True, options="-c search_path=exuvia") as connection:
        found = connection.execute(statement.encode())
        return found.fetchall() if found.description else []


async def test_a_session_is_in_the_catalog_as_soon_as_its_first_line_is_durable(url: str, tmp_path: Path) -> None:
    async with writing(url, tmp_path) as writer, another(url) as other:
        assert await other.current("owner", "main") is None
        await writer.begun(FIRST)  # and its row was not put
        row = await other.current("owner", "main")
        assert row is not None
        assert (row.session, row.head, row.settled, row.opened_at) == (FIRST, 1, False, AT)


async def test_what_a_killed_gateway_wrote_last_is_found_by_the_one_that_takes_over(url: str, tmp_path: Path) -> None:
    async with writing(url, tmp_path) as writer, another(url) as other:
        await other.receipts("owner", "main")
        recorder = await writer.begun(FIRST)
        writer.catalog.put = lambda row: None  # type: ignore[method-assign]  # killed before it wrote any row
        for number in range(1, 6):
            await recorder.append_durable(received(f"text {number}", f"m{number}"))
        receipts = await other.receipts("owner", "main")
        assert [found.seq for number in range(1, 6) if (found := receipts.find(f"m{number}"))] == [2, 3, 4, 5, 6]
        assert receipts.find("m6") is None
        await recorder.append_durable(SessionClosed(reason="new"))
        await writer.begun(SECOND, succeeds=Succession(session=FIRST, seq=7))
        current = await other.current("owner", "main")
        assert current is not None
        assert (current.session, [row.session for row in other.chain(SECOND)]) == (SECOND, [FIRST])
        first = other.row(FIRST)
        assert first is not None
        assert (first.head, first.closed, first.settled) == (7, True, False)
        assert {row.session for row in await other.unsettled()} == {FIRST, SECOND}


async def test_rows_are_written_and_one_of_a_former_owner_replaces_no_newer_one(url: str, tmp_path: Path) -> None:
    async with writing(url, tmp_path) as writer:
        recorder = await writer.begun(FIRST)
        indexer = CatalogWriter(writer.catalog)
        indexer.begin(recorder)
        await recorder.append_durable(SessionTitled(title="A title", by="owner"))
        indexer.put(recorder)
        late = writer.catalog.row(FIRST)
        assert late is not None
        await until(lambda: outside(url, "SELECT settled FROM session") == [(True,)])
        async with another(url) as other:
            found = await other.find(FIRST)
            assert found == late
            assert (await other.listed("owner"))[0].row.title == "A title"
            assert await other.unsettled() == []
            await recorder.append_durable(SessionTitled(title="Another", by="owner"))
            indexer.put(recorder)
            await until(lambda: outside(url, "SELECT changed FROM session") == outside(url, "SELECT changed FROM log"))
            other.put(late)
        found = await writer.catalog.find(FIRST)
        assert found is not None
        assert found.title == "Another"


async def test_rows_that_cannot_be_written_for_another_reason_than_the_database_are_written_later(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_catalog, "PAUSE", 0.05)
    store = PostgresCatalog._store

    def no_thread(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    async with writing(url, tmp_path) as writer:
        monkeypatch.setattr(PostgresCatalog, "_store", no_thread)
        recorder = await writer.begun(FIRST)
        indexer = CatalogWriter(writer.catalog)
        indexer.begin(recorder)
        indexer.put(recorder)
        await until(lambda: writer.catalog.failure == "The catalog cannot be written: can't start new thread")
        monkeypatch.setattr(PostgresCatalog, "_store", store)
        await until(lambda: writer.catalog.failure is None)
        assert outside(url, "SELECT settled FROM session") == [(True,)]


async def test_ids_are_stored_with_checkpoints_and_the_rest_is_read_from_the_log(url: str, tmp_path: Path) -> None:
    async with writing(url, tmp_path) as writer:
        recorder = await writer.begun(FIRST)
        indexer, receipts = CatalogWriter(writer.catalog), Receipts()
        indexer.begin(recorder)
        indexer.put(recorder)
        for number in range(1, 4):
            message = received(f"text {number}", f"m{number}")
            receipts.add(FIRST, await _durable(recorder, message), message)
        await recorder.close()
        indexer.end(recorder, receipts)
        await until(lambda: outside(url, "SELECT upto FROM receipts") == [(4,)])
        assert outside(url, "SELECT seq FROM checkpoint") == [(4,)]
        found = await open_session(writer.store, writer.catalog, FIRST)
        again = Recorder(found.log, found.position, found.transcript, lambda: NOW)
        await again.append_durable(received("text 4", "m4"))
        async with another(url) as other:
            known = await other.receipts("owner", "main")
            assert {id_: at.seq for id_ in ("m1", "m3", "m4") if (at := known.find(id_))} == {"m1": 2, "m3": 4, "m4": 5}
            assert await other.checkpoint(FIRST) is not None


async def _durable(recorder: Recorder, message: object) -> int:
    return await recorder.append_durable(message)  # type: ignore[arg-type]


async def test_lists_name_the_first_session_and_the_origin_of_a_fork(url: str, tmp_path: Path) -> None:
    async with writing(url, tmp_path) as writer:
        first = await writer.begun(FIRST)
        await first.append_durable(TurnEnded(outcome="replied", millis=7))
        await writer.begun(SECOND, succeeds=Succession(session=FIRST, seq=2))
        await fork(writer.store, FIRST, THIRD, "copy", NOW)
        async with another(url) as other:
            listed = {each.row.key: each for each in await other.listed("owner")}
            assert list(listed) == ["copy", "main"]
            assert (listed["main"].row.session, listed["main"].created) == (SECOND, first.transcript.opened_at)
            assert (listed["copy"].row.session, listed["copy"].origin_key) == (THIRD, "main")
            assert [row.session for row in await other.sessions("stranger")] == []
            assert {row.session for row in await other.every("owner")} == {FIRST, SECOND, THIRD}
            assert {row.session for row in await other.changed_since(AT)} == {FIRST, SECOND, THIRD}
            assert await other.changed_since("2027-01-01T00:00:00.000Z") == []


async def test_rows_that_are_missing_are_made_from_the_logs(url: str, tmp_path: Path) -> None:
    async with writing(url, tmp_path) as writer:
        recorder = await writer.begun(FIRST)
        await recorder.append_durable(received("text", "m1"))
    outside(url, "DELETE FROM session")
    async with another(url) as other:
        assert other.rebuilt is not None
        assert other.count == 1
        row = await other.current("owner", "main")
        assert row is not None
        assert (row.session, row.head) == (FIRST, 2)


@pytest.mark.parametrize("missing", [0, 2, 4])
async def test_the_start_with_very_many_sessions_counts_none_and_finds_missing_rows_later_or_at_the_ends_at_once(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, missing: int
) -> None:
    names = [session_id(number) for number in range(1, 6)]
    async with writing(url, tmp_path) as writer:
        for number, session in enumerate(names):
            await writer.begun(session, f"key-{number}")
    outside(url, f"DELETE FROM session WHERE name = '{names[missing]}'")
    monkeypatch.setattr(row_repair, "SMALL_BYTES", 0)
    monkeypatch.setattr(row_repair, "ENDS", 1)
    in_the_middle = 0 < missing < 4
    async with another(url) as other:
        assert (other.rebuilt is None) is in_the_middle
        assert other.count == (0 if in_the_middle else 5), "the statistics know of no row yet"
    monkeypatch.setattr(postgres_catalog, "CHECK_SECONDS", 0.01)
    async with another(url) as other:
        await until(lambda: other.count == 5)
        assert (other.rebuilt is not None) is in_the_middle
        assert len(await other.sessions("owner")) == 5


async def test_a_log_that_was_lost_or_shortened_is_reported(url: str, tmp_path: Path) -> None:
    async with writing(url, tmp_path) as writer:
        for session, key in ((FIRST, "main"), (SECOND, "work")):
            recorder = await writer.begun(session, key)
            await recorder.append_durable(TurnEnded(outcome="replied", millis=7))
            CatalogWriter(writer.catalog).put(recorder)
    outside(url, f"DELETE FROM log WHERE name = '{FIRST}'")
    outside(url, f"UPDATE log SET head = 1, size = 1, changed = changed + 1 WHERE name = '{SECOND}'")
    async with another(url) as other:
        assert other.unreadable == {FIRST: "it is missing"}
        assert await other.current("owner", "main") is not None
        assert await other.current("owner", "work") is not None
        assert other.unreadable[SECOND] == "it ends with event 1, but event 2 was acknowledged"
        with Database(url) as database:
            assert heads_of_rows(database) == {FIRST: 2, SECOND: 2}
    async with writing(url, tmp_path) as writer:
        with pytest.raises(JournalDamaged, match="missing, including all acknowledged"):
            await open_session(writer.store, writer.catalog, FIRST)


async def test_a_removed_session_stays_removed_whatever_another_gateway_still_writes(url: str, tmp_path: Path) -> None:
    async with writing(url, tmp_path) as writer, another(url) as other:
        recorder = await writer.begun(FIRST)
        row = await other.current("owner", "main")
        assert row is not None
        await recorder.close()
        await writer.store.remove(FIRST)
        await writer.catalog.remove([FIRST])
        other.put(row)
        await other._write()
        assert outside(url, "SELECT * FROM session") == []
        assert await other.find(FIRST) is None


async def test_a_replaced_session_is_in_the_catalog_at_once_and_nothing_of_what_was_there_before(
    url: str, tmp_path: Path
) -> None:
    async with writing(url, tmp_path) as writer:
        recorder, receipts = await writer.begun(FIRST), Receipts()
        indexer = CatalogWriter(writer.catalog)
        indexer.begin(recorder)
        indexer.put(recorder)
        message = received("a canary", "m1")
        receipts.add(FIRST, await _durable(recorder, message), message)
        await recorder.append_durable(SessionTitled(title="a canary", by="owner"))
        await recorder.close()
        indexer.end(recorder, receipts)
        await until(lambda: outside(url, "SELECT upto FROM receipts") == [(3,)])
        former = await writer.catalog.find(FIRST)
        assert former is not None
        assert (former.title, len(outside(url, "SELECT session FROM checkpoint"))) == ("a canary", 1)
        writer.catalog.save_checkpoint(FIRST, recorder.position, recorder.durable_transcript)  # is still to be written
        await writer.store.rewrite(FIRST, lambda lines: lines.forward(START))
        row = msgspec.structs.replace(former, title="", beginning="", size=0, mtime_ns=0, settled=False)
        await writer.catalog.replace([row])
        assert outside(url, "SELECT session FROM checkpoint UNION ALL SELECT session FROM receipts") == []
        async with another(url) as other:
            current = await other.current("owner", "main")
            assert current is not None
            assert (current.session, current.title, current.settled) == (FIRST, "", False)
            assert (await other.receipts("owner", "main")).find("m1") is not None
            other.put(former)  # as if its former owner had not written it yet
            await other._write()
        assert writer.catalog.row(FIRST) == row
        await writer.catalog._write()
    assert outside(url, "SELECT name FROM session WHERE position('canary'::bytea IN fields) > 0") == []
    assert outside(url, "SELECT session FROM checkpoint") == []


async def test_a_log_that_another_gateway_is_about_to_begin_is_not_discarded(url: str, tmp_path: Path) -> None:
    async with writing(url, tmp_path) as writer:
        await writer.store.create(FIRST)
        async with another(url) as other:
            assert other.empty == []
        outside(url, "UPDATE log SET changed = changed - 61000000000::bigint")
        async with another(url) as other:
            assert other.empty == [FIRST]


async def test_rows_of_keys_that_were_not_used_for_long_leave_the_memory(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_catalog, "MOST_NAMES", 2)
    async with writing(url, tmp_path) as writer:
        await writer.begun(FIRST, "open")
        for number in range(4):
            session = f"20261121-00001{number}-aaaaaa"
            recorder = await writer.begun(session, f"key{number}")
            await recorder.close()
            assert await writer.catalog.current("owner", f"key{number}") is not None
            assert await writer.catalog.current("owner", "open") is not None
            writer.catalog._names.move_to_end(("owner", "open"), last=False)
        assert writer.catalog.row(FIRST) is not None
        assert writer.catalog.row("20261121-000010-aaaaaa") is None


async def test_while_the_database_does_not_answer_changes_are_kept_and_reported(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgres_catalog, "PAUSE", 0.01)
    async with writing(url, tmp_path) as writer:
        recorder = await writer.begun(FIRST)
        with monkeypatch.context() as broken:
            broken.setattr(writer.database, "connect", _unreachable)
            while writer.database._idle:
                writer.database._idle.pop().close()
            CatalogWriter(writer.catalog).put(recorder)
            await until(lambda: writer.catalog.failure is not None)
            with pytest.raises(StorageFailed):
                await writer.catalog.current("owner", "main")
        await until(lambda: outside(url, "SELECT settled FROM session") == [(True,)])
        await until(lambda: writer.catalog.failure is None)


def _unreachable() -> None:
    raise StorageFailed("The database cannot be reached.")


async def test_the_tables_of_version_1_become_a_catalog(url: str, tmp_path: Path) -> None:
    async with writing(url, tmp_path) as writer:
        await writer.begun(FIRST)
    outside(url, "DROP TABLE session, checkpoint, receipts, owner, blob_part, blob, lease")
    outside(url, "DELETE FROM migration WHERE version > 2")
    with Database(url) as database, database.connection() as connection:
        migrate(database, connection)
    async with another(url) as other:
        assert await other.current("owner", "main") is not None
