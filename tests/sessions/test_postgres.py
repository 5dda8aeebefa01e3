"""The PostgreSQL store on a real server: fencing, deadlines, lost connections, damage and what it says."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import psycopg
import pytest

from benchmarks.ports import free_port
from sessions.events.errors import JournalDamaged, StorageFailed, UnknownSession
from sessions.postgres import connections
from sessions.postgres.connections import Database
from sessions.postgres.group_commit import GroupCommitter
from sessions.postgres.postgres_store import PostgresStore
from sessions.postgres.schema import MIGRATIONS
from sessions.state.transcript import Transcript
from sessions.store.protocols import START, Position
from sessions.store.reading import StoredLog
from sessions.store.recorder import Recorder
from tests.servers.postgres_server import postgres_server
from tests.stories import AT, opened, received
from tests.waiting import until

SESSION = "20261121-000001-aaaaaa"
OTHER = "20261121-000002-aaaaaa"


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database."""
    url = postgres_server().database()
    yield url
    postgres_server().drop(url)


@asynccontextmanager
async def store_in(url: str, folder: Path) -> AsyncIterator[PostgresStore]:
    with Database(url) as database:
        async with GroupCommitter(database) as committer:
            yield PostgresStore(database, "sessions", folder, committer)


async def begun(store: PostgresStore, session: str = SESSION) -> Recorder:
    """A new session with its first event."""
    recorder = Recorder(await store.create(session), START, Transcript(), lambda: datetime.fromisoformat(AT).astimezone(UTC))
    await recorder.append_durable(opened(session, "main"))
    return recorder


async def reopened(store: PostgresStore, session: str = SESSION, *, least: int = 0) -> Position:
    """The last position of a log that is opened and closed."""
    log, last = await store.open(session, fold=lambda _: None, least=least)
    await log.close()
    return last


def outside(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run a statement as somebody else."""
    with psycopg.connect(url, autocommit=True, options="-c search_path=exuvia") as connection:
        found = connection.execute(statement.encode())
        return found.fetchall() if found.description else []


# --- one writer -------------------------------------------------------------------------------------------------------


async def test_what_an_earlier_owner_appends_is_rejected_and_others_are_not_concerned(url: str, tmp_path: Path) -> None:
    async with store_in(url, tmp_path) as store:
        mine, other = await begun(store), await begun(store, OTHER)
        outside(url, f"UPDATE log SET epoch = epoch + 1 WHERE name = '{SESSION}'")
        mine.append(received("lost", "m1"), urgent=True)
        await other.append_durable(received("kept", "m2"))
        with pytest.raises(StorageFailed, match="opened by another gateway"):
            await mine.until_durable(2)
        assert [len(StoredLog(store, each).lines(1, 10**6)) for each in (SESSION, OTHER)] == [1, 2]
        assert outside(url, "SELECT count(*) FROM line") == [(3,)]
        await other.close()


async def test_a_writer_that_does_not_know_the_head_is_rejected(url: str, tmp_path: Path) -> None:
    async with store_in(url, tmp_path) as store:
        recorder = await begun(store)
        outside(url, "UPDATE log SET head = 7")
        with pytest.raises(StorageFailed):
            await recorder.append_durable(received("lost", "m1"))
        assert outside(url, "SELECT count(*) FROM line") == [(1,)]


async def test_a_removed_log_leaves_no_line_of_an_append_that_was_under_way(url: str, tmp_path: Path) -> None:
    async with store_in(url, tmp_path) as store:
        await (await begun(store)).close()
        with psycopg.connect(url, options="-c search_path=exuvia") as late:
            late.execute("UPDATE log SET head = 2")
            late.execute("INSERT INTO line (log, seq, ends, line) SELECT id, 2, 1000, 'late' FROM log")
            removing = asyncio.create_task(store.remove(SESSION))
            await until(lambda: outside(url, "SELECT count(*) FROM pg_locks WHERE NOT granted") == [(1,)])
        await removing
        assert outside(url, "SELECT (SELECT count(*) FROM log), (SELECT count(*) FROM line)") == [(0, 0)]


async def test_the_isolation_that_an_administrator_has_set_does_not_count(url: str, tmp_path: Path) -> None:
    outside(url, f"ALTER DATABASE \"{url.rpartition('/')[2]}\" SET default_transaction_isolation = 'serializable'")
    with Database(url) as database, database.connection() as connection:
        assert connection.execute("SHOW transaction_isolation").fetchone() == ("read committed",)


# --- deadlines and lost connections -----------------------------------------------------------------------------------


async def test_an_append_that_takes_too_long_is_not_cancelled_and_is_read_back(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with store_in(url, tmp_path) as store:
        recorder = await begun(store)
        with psycopg.connect(url) as blocker:
            blocker.execute("SELECT 1 FROM exuvia.log FOR UPDATE")
            monkeypatch.setattr(connections, "ANSWER_SECONDS", 0.2)
            with pytest.raises(StorageFailed, match=r"it did not answer within 0\.2 s"):
                await recorder.append_durable(received("late", "m1"))
            monkeypatch.undo()
        await until(lambda: outside(url, "SELECT head FROM log") == [(2,)])
        assert recorder.durable == 1
        assert (await reopened(store)).seq == 2


async def test_an_idle_connection_that_the_server_has_closed_costs_no_message(url: str, tmp_path: Path) -> None:
    async with store_in(url, tmp_path) as store:
        recorder = await begun(store)
        assert len(StoredLog(store, SESSION).lines(1, 10**6)) == 1
        outside(
            url,
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity"
            " WHERE datname = current_database() AND pid <> pg_backend_pid()",
        )
        await recorder.append_durable(received("hello", "m1"))
        assert len(StoredLog(store, SESSION).lines(1, 10**6)) == 2
        await recorder.close()


async def test_a_commit_is_never_less_than_synchronous(url: str) -> None:
    outside(url, f"ALTER DATABASE {url.rpartition('/')[2]} SET synchronous_commit = off")
    with Database(url) as database, database.connection() as connection:
        assert connection.execute("SHOW synchronous_commit").fetchone() == ("on",)


# --- what it says -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "sentence"),
    [
        (
            "postgresql://exuvia:hunter22@127.0.0.1:{closed}/chats",
            "The database chats on 127.0.0.1:{closed} cannot be reached",
        ),
        ("postgresql://postgres@127.0.0.1:{port}/missing", '"missing" does not exist. Check the URL'),
        ("postgresql://postgres:hunter22@[::1", "The database's URL is invalid"),
    ],
)
async def test_a_database_that_cannot_be_used_is_named_without_its_password(
    tmp_path: Path, wrong: str, sentence: str
) -> None:
    ports = {"closed": free_port(), "port": postgres_server().port}
    with pytest.raises(StorageFailed) as refused:
        async with store_in(wrong.format(**ports), tmp_path):
            pass
    assert sentence.format(**ports) in str(refused.value)
    assert "hunter22" not in str(refused.value)
    assert "\n" not in str(refused.value)


async def test_tables_of_a_later_program_are_left_alone(url: str, tmp_path: Path) -> None:
    async with store_in(url, tmp_path):
        pass
    outside(url, f"INSERT INTO migration (version) VALUES ({len(MIGRATIONS) + 1})")
    with pytest.raises(StorageFailed, match=f"this program knows only {len(MIGRATIONS)}"):
        async with store_in(url, tmp_path):
            pass


# --- reading ----------------------------------------------------------------------------------------------------------


async def test_a_log_of_many_pages_is_read_in_both_directions_from_anywhere(url: str, tmp_path: Path) -> None:
    async with store_in(url, tmp_path) as store:
        recorder = await begun(store)
        for number in range(2500):
            recorder.append(received("x" * (60_000 if number % 500 == 3 else 20), f"m{number}"))
        await recorder.append_durable(received("the last", "last"))
        with store.read(SESSION) as lines:
            forward = list(lines.forward(START))
            ends = [sum(map(len, forward[: number + 1])) for number in range(len(forward))]
            assert len(forward) == 2502
            assert [end for _, end in lines.backward()] == ends[::-1]
            for place in (1, 4, 999, 1000, 1001, 2501):
                before = lines.position_before(place + 1)
                assert before is not None
                assert (before.seq, before.offset) == (place, ends[place - 1])
                assert next(lines.forward(before)) == forward[place]
                assert next(lines.backward(ends[place] - 1)) == (forward[place - 1], ends[place - 1])
        assert (await reopened_after(store, recorder)).offset == ends[-1]


async def reopened_after(store: PostgresStore, recorder: Recorder) -> Position:
    await recorder.close()
    return await reopened(store)


@pytest.mark.parametrize(("missing", "line"), [("1", 1), ("2", 2), ("3", 3)])
async def test_lines_that_are_missing_are_damage(url: str, tmp_path: Path, missing: str, line: int) -> None:
    async with store_in(url, tmp_path) as store:
        recorder = await begun(store)
        recorder.append(received("one", "m1"))
        await recorder.append_durable(received("two", "m2"))
        await recorder.close()
        outside(url, f"DELETE FROM line WHERE seq = {missing}")
        with pytest.raises(JournalDamaged) as damaged:
            await reopened(store)
        assert damaged.value.line == line
        with pytest.raises(JournalDamaged) as found:
            await store.verify(SESSION)
        assert found.value.line == line
        assert (tmp_path / f"{SESSION}-line-{line}.damage").exists()


async def test_a_fork_whose_answer_was_lost_is_there_once(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with store_in(url, tmp_path) as store:
        recorder = await begun(store)
        (line,) = StoredLog(store, SESSION).lines(1, 10**6)
        plain = psycopg.Transaction.__exit__

        def lose(transaction: psycopg.Transaction, *error: object) -> bool:
            plain(transaction, *error)  # type: ignore[arg-type]
            raise psycopg.OperationalError("the connection was lost")

        monkeypatch.setattr(psycopg.Transaction, "__exit__", lose)
        await store.copy(SESSION, recorder.position, line, OTHER)
        monkeypatch.undo()
        assert [session for session, _ in store.listed()] == [SESSION, OTHER]
        assert outside(url, "SELECT head, size FROM log ORDER BY name") == [(1, len(line)), (2, 2 * len(line))]
        await recorder.close()


async def test_a_fork_of_a_log_that_is_gone_leaves_nothing(url: str, tmp_path: Path) -> None:
    async with store_in(url, tmp_path) as store:
        with pytest.raises(StorageFailed, match="was removed or is damaged"):
            await store.copy(SESSION, Position(seq=1, offset=10), b"line\n", OTHER)
        assert list(store.listed()) == []


async def test_no_text_is_an_id_that_cannot_be_looked_up(url: str, tmp_path: Path) -> None:
    async with store_in(url, tmp_path) as store:
        with pytest.raises(UnknownSession), store.read("a\0b"):
            pass
        assert store.stamp("a\0b") is None
