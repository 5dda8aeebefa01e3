"""Logs to which several gateways append: each sees what the others wrote, nothing is lost, and what is decided on a state
holds for the state that it is appended to."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, TypeAlias

import msgspec
import psycopg
import pytest
from structlog.testing import capture_logs

from sessions.events.codec import FIRST, encode_line
from sessions.events.errors import StorageFailed
from sessions.postgres import advisory_lock, row_lines
from sessions.postgres.connections import Database
from sessions.postgres.group_commit import GroupCommitter
from sessions.postgres.postgres_store import PostgresStore
from sessions.store import lazy_log
from sessions.store.lazy_log import LazyLog, LogFormat
from sessions.store.protocols import START, Lines
from sessions.store.reading import StoredLog, verify_lines
from sessions.store.rewriting import rechained
from tests.servers.postgres_server import postgres_server
from tests.stories import AT
from tests.waiting import DEADLINE, deadline


class Taken(msgspec.Struct, frozen=True, tag_field="kind", tag="taken"):
    """Somebody took a number."""

    number: int
    by: str


Numbers: TypeAlias = dict[int, str]


def fold(numbers: Numbers, event: Taken, *, seq: int, at: str, turn: int | None, size: int) -> Numbers:
    assert event.number not in numbers, "it was free when it was taken"
    return {**numbers, event.number: event.by}


FORM: LogFormat[Taken, Numbers] = LogFormat(name="numbers", events=(Taken,), empty={}, fold=fold)


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database."""
    url = postgres_server().database()
    yield url
    postgres_server().drop(url)


@asynccontextmanager
async def one_of_several(url: str, folder: Path) -> AsyncIterator[tuple[PostgresStore, LazyLog[Taken, Numbers]]]:
    """The log, as one gateway has it."""
    with Database(url) as database:
        async with GroupCommitter(database) as committer:
            store = PostgresStore(database, "home", folder, committer, shared=True)
            log = LazyLog(FORM, store, lambda: datetime.fromisoformat(AT).astimezone(UTC), unusable="No number is taken")
            yield store, log
            await log.close()


async def take(log: LazyLog[Taken, Numbers], by: str) -> int:
    """Take the smallest free number."""
    async with log.writing() as writer:
        number = len(writer.state)
        await writer.append_durable(Taken(number, by))
        return number


async def test_what_one_gateway_appends_the_others_see_and_continue(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_log, "FRESH_SECONDS", 0.0)
    async with one_of_several(url, tmp_path) as (store, here), one_of_several(url, tmp_path) as (_, there):
        assert await there.durable_state() == {}
        assert await take(here, "here") == 0
        assert await there.durable_state() == {0: "here"}
        assert await take(there, "there") == 1
        assert await here.durable_state() == {0: "here", 1: "there"}
        assert await take(here, "here") == 2
        assert len(await there.lines(1, limit=10**6)) == 3
        assert StoredLog(store, "numbers").verify().events == 3


async def test_many_of_several_gateways_append_at_once_and_each_decides_on_the_last_state(url: str, tmp_path: Path) -> None:
    async with one_of_several(url, tmp_path) as (store, here), one_of_several(url, tmp_path) as (_, there):
        taken = await asyncio.gather(*(take(log, name) for _ in range(20) for log, name in ((here, "h"), (there, "t"))))
        assert sorted(taken) == list(range(40))
        assert StoredLog(store, "numbers").verify().events == 40


async def test_the_state_is_read_again_after_a_second_only(url: str, tmp_path: Path) -> None:
    async with one_of_several(url, tmp_path) as (_, here), one_of_several(url, tmp_path) as (_, there):
        await take(here, "here")
        assert await there.durable_state() == {0: "here"}
        await take(here, "here")
        before = there._as_of
        assert await there.durable_state() == {0: "here"}
        there._as_of = before - lazy_log.FRESH_SECONDS
        assert await there.durable_state() == {0: "here", 1: "here"}


async def test_an_append_without_its_turn_is_rejected_and_the_log_is_read_again(url: str, tmp_path: Path) -> None:
    async with one_of_several(url, tmp_path) as (store, here), one_of_several(url, tmp_path) as (_, there):
        await take(here, "here")
        async with there.writing() as writer:
            with psycopg.connect(url, autocommit=True) as outside:  # the connection of a gateway that was declared dead
                outside.execute("SELECT pg_terminate_backend(pid) FROM pg_locks WHERE locktype = 'advisory'")
            assert await take(here, "here") == 1
            with pytest.raises(StorageFailed, match="opened by another gateway, or removed"):
                await writer.append_durable(Taken(1, "there"))
        assert await take(there, "there") == 2
        assert StoredLog(store, "numbers").verify().events == 3


async def test_a_turn_that_nobody_gives_up_is_reported(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(advisory_lock, "WAIT_SECONDS", 0.05)
    async with one_of_several(url, tmp_path) as (_, here), one_of_several(url, tmp_path) as (_, there):
        async with here.writing():
            with pytest.raises(StorageFailed, match=r"Another process has held home/numbers for 0\.05 s"):
                await take(there, "there")
        assert await take(there, "there") == 0


async def test_a_cancelled_wait_leaves_no_lock(url: str, tmp_path: Path) -> None:
    async with one_of_several(url, tmp_path) as (_, here), one_of_several(url, tmp_path) as (_, there):
        async with here.writing():
            waiting = asyncio.create_task(take(there, "there"))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.wait([waiting])
        assert await take(here, "here") == 0
        assert await take(there, "there") == 1


async def test_a_log_that_another_gateway_has_rewritten_is_read_again(url: str, tmp_path: Path) -> None:
    async with one_of_several(url, tmp_path) as (_, here), one_of_several(url, tmp_path) as (_, there):
        await take(here, "here")
        await take(there, "there")
        await here.rewrite(lambda lines: rechained(lines, lambda line: line.replace(b'"by":"there"', b'"by":"nobody"')))
        assert await take(there, "there") == 2
        assert await here.durable_state() == {0: "here", 1: "nobody", 2: "there"}


async def test_a_log_that_was_made_shorter_is_continued_by_all_gateways(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(advisory_lock, "WAIT_SECONDS", DEADLINE)
    async with one_of_several(url, tmp_path) as (store, here), one_of_several(url, tmp_path) as (_, there):
        for number in range(5):
            assert await take(there if number % 2 else here, "somebody") == number

        def fewer(_: Lines) -> Iterator[bytes]:
            yield encode_line(1, AT, None, Taken(0, "all"), FIRST)[0]

        async with there.writing() as writer:
            rewriting = asyncio.create_task(here.rewrite(fewer))
            assert await writer.append_durable(Taken(5, "in its turn")) == 6
        await rewriting
        assert FORM.read(store) == {0: "all"}
        assert await take(there, "there") == 1
        assert await take(here, "here") == 2
        assert StoredLog(store, "numbers").verify().events == 3
        with psycopg.connect(url) as outside:
            assert outside.execute("SELECT count(*), max(seq) FROM exuvia.line").fetchone() == (3, 3)


async def test_a_log_that_is_rewritten_or_removed_while_it_is_read_is_read_as_it_was(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A backup verifies it, and then copies it."""
    monkeypatch.setattr(row_lines, "MOST_LINES", 2)
    async with one_of_several(url, tmp_path) as (store, log):
        for _ in range(6):
            await take(log, "somebody")
        with store.read("numbers") as lines:
            reading = lines.forward(START)
            before = [next(reading)]
            await log.rewrite(lambda each: rechained(each, lambda line: line.replace(b'"by":"somebody"', b'"by":"no"')))
            before += reading
            assert len(before) == 6
            assert all(b'"by":"somebody"' in line for line in before)
            await log.close()
            await store.remove("numbers")
            assert verify_lines(lines, START, lambda _: None).seq == 6
        assert store.stamp("numbers") is None


async def test_what_nobody_waits_for_is_appended_in_the_next_turn(url: str, tmp_path: Path) -> None:
    async with one_of_several(url, tmp_path) as (_, here), one_of_several(url, tmp_path) as (_, there):
        append = await there.appender()
        async with here.writing() as writer:
            append(Taken(7, "there"))
            await writer.append_durable(Taken(0, "here"))
        append(Taken(8, "there"))
        await there.close()
        async with here.writing() as writer:
            assert writer.state == {0: "here", 7: "there", 8: "there"}


async def test_an_append_whose_answer_was_lost_is_not_repeated(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_log, "RETRY_SECONDS", 0.0)
    stored, lost = GroupCommitter._append, list[int]()

    def append(self: GroupCommitter, connection: Any, batch: Any) -> set[int]:
        found = stored(self, connection, batch)
        if not lost:
            lost.append(1)
            raise psycopg.OperationalError("the connection was lost")
        return found

    async with one_of_several(url, tmp_path) as (store, log):
        await take(log, "first")
        monkeypatch.setattr(GroupCommitter, "_append", append)
        add = await log.appender()
        for number in (1, 2, 3):
            add(Taken(number, "me"))
        await log.close()
        assert FORM.read(store) == {0: "first", 1: "me", 2: "me", 3: "me"}  # the fold refuses a number that is taken
    assert lost == [1]


async def test_a_log_is_closed_in_time_without_a_database_and_what_is_dropped_is_reported(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with one_of_several(url, tmp_path) as (store, log):
        await take(log, "first")
        with monkeypatch.context() as away, capture_logs() as reports:
            away.setattr(lazy_log, "FLUSH_SECONDS", 0.05)
            away.setattr(GroupCommitter, "_append", _unreachable)
            add = await log.appender()
            add(Taken(1, "me"))
            add(Taken(2, "me"))
            async with deadline():
                await log.close()
            assert log.problem == "" or "did not confirm a commit" in log.problem
        (dropped,) = [each for each in reports if each["event"] == "events_dropped"]
        assert (dropped["log"], dropped["events"], dropped["kinds"]) == ("numbers", 2, ["taken"])
        assert FORM.read(store) == {0: "first"}


async def test_closing_tries_again_what_could_not_be_appended(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_log, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(lazy_log, "TURNS", 1)
    async with one_of_several(url, tmp_path) as (store, log):
        await take(log, "first")
        with monkeypatch.context() as away:
            away.setattr(GroupCommitter, "_append", _unreachable)
            (await log.appender())(Taken(1, "me"))
            assert log._appending is not None
            await log._appending
        await log.close()
        assert FORM.read(store) == {0: "first", 1: "me"}


def _unreachable(*_: object) -> set[int]:
    raise psycopg.OperationalError("the connection was lost")
