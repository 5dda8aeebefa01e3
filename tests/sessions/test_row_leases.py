"""Leases on a real server: one gateway at a time has each, and another one soon after its holder has died."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import psycopg
import pytest

from sessions.postgres import membership, row_leases
from sessions.postgres.connections import Database
from sessions.postgres.group_commit import GroupCommitter
from sessions.postgres.membership import Membership
from sessions.postgres.row_leases import RowLeases
from tests.servers.postgres_server import postgres_server
from tests.waiting import until


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """An empty database, whose gateways are impatient."""
    monkeypatch.setattr(row_leases, "LOOK_SECONDS", 0.02)
    monkeypatch.setattr(membership, "BEAT_SECONDS", 0.02)
    url = postgres_server().database()
    yield url
    postgres_server().drop(url)


@dataclass
class Member:
    """A gateway, and the names of the work that it does at present."""

    member: Membership
    leases: RowLeases
    running: set[str] = field(default_factory=set)

    def work(self, name: str) -> Callable[[], Awaitable[None]]:
        async def run() -> None:
            self.running.add(name)
            try:
                await asyncio.Event().wait()
            finally:
                self.running.discard(name)

        return run

    def want(self, name: str) -> asyncio.Task[None]:
        return asyncio.create_task(self.leases.hold(name, self.work(name)))


@asynccontextmanager
async def member_of(url: str) -> AsyncIterator[Member]:
    with Database(url) as database:
        async with (
            GroupCommitter(database),
            Membership(database) as member,
            RowLeases(database, member) as leases,
        ):
            yield Member(member, leases)


async def ended(*tasks: asyncio.Task[None]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.wait(tasks)


async def test_one_gateway_has_a_lease_and_the_next_when_it_leaves(url: str) -> None:
    async with member_of(url) as other:
        async with member_of(url) as first:
            mine = first.want("channel/bot")
            await until(lambda: first.running == {"channel/bot"})
            theirs, more = other.want("channel/bot"), other.want("schedules")
            await until(lambda: other.running == {"schedules"})
            assert (first.leases.holds("channel/bot"), other.leases.holds("channel/bot")) == (True, False)
            await ended(mine)
            await until(lambda: other.running == {"channel/bot", "schedules"})
        await ended(theirs, more)
        assert other.running == set()


async def test_a_gateway_that_was_declared_dead_stops_and_another_begins(url: str) -> None:
    async with member_of(url) as first, member_of(url) as other:
        tasks = [first.want("channel/bot")]
        await until(lambda: first.running == {"channel/bot"})
        tasks.append(other.want("channel/bot"))
        incarnation = first.member.id
        with psycopg.connect(url, autocommit=True) as outside:
            outside.execute("UPDATE exuvia.gateway SET dead = true WHERE id = %s", (incarnation,))
        await until(lambda: other.running == {"channel/bot"} and not first.running)
        await until(lambda: first.member.id not in ("", incarnation))
        assert not first.leases.holds("channel/bot")
        await ended(*tasks)


async def test_without_contact_to_the_database_a_lease_counts_as_lost_until_it_is_back(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with member_of(url) as first:
        task = first.want("channel/bot")
        await until(lambda: first.running == {"channel/bot"})
        with monkeypatch.context() as away:
            away.setattr(row_leases, "LOST_SECONDS", 0.0)
            await until(lambda: not first.running)
        await until(lambda: first.running == {"channel/bot"})
        await ended(task)


async def test_a_gateway_that_is_stopping_gives_its_leases_up(url: str) -> None:
    async with member_of(url) as first, member_of(url) as other:
        tasks = [first.want("schedules")]
        await until(lambda: first.running == {"schedules"})
        tasks.append(other.want("schedules"))
        await first.member.drain()
        await until(lambda: other.running == {"schedules"} and not first.running)
        await ended(*tasks)


async def test_work_that_ends_or_fails_is_over(url: str) -> None:
    async with member_of(url) as first:
        done = []

        async def work() -> None:
            done.append(1)

        async def fails() -> None:
            raise ValueError("it failed")

        await first.leases.hold("once", work)
        assert done == [1]
        with pytest.raises(ValueError, match="it failed"):
            await first.leases.hold("once", fails)


def test_a_lease_counts_as_lost_before_another_gateway_may_take_it() -> None:
    assert row_leases.LOST_SECONDS + row_leases.LOOK_SECONDS <= membership.DEAD_SECONDS
