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

from sessions.events.errors import StorageFailed
from sessions.postgres import advisory_lock
from sessions.postgres.connections import Database
from sessions.postgres.group_commit import GroupCommitter
from sessions.postgres.postgres_store import PostgresStore
from sessions.store import lazy_log
from sessions.store.lazy_log import LazyLog, LogFormat
from sessions.store.reading import StoredLog
from sessions.store.rewriting import rechained
from tests.servers.postgres_server import postgres_server
from tests.stories import AT


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
