"""Several gateways on one database: beats, deaths, claims, and the rejection of what a dead one writes."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partialmethod
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest

from sessions.events.codec import encode
from sessions.events.errors import StorageFailed
from sessions.events.events import Recorded, SessionForked
from sessions.postgres import membership, row_claims
from sessions.postgres.connections import Database
from sessions.postgres.group_commit import GroupCommitter
from sessions.postgres.membership import Membership
from sessions.postgres.postgres_store import PostgresStore
from sessions.postgres.row_claims import RowClaims
from sessions.state.transcript import Transcript
from sessions.store.catalog import Claim, Elsewhere, Name
from sessions.store.protocols import START
from sessions.store.recorder import Recorder
from tests.servers.postgres_server import postgres_server
from tests.stories import AT, opened, received
from tests.waiting import DEADLINE, until

SESSION, OTHER, FORK = (f"20261121-00000{number}-aaaaaa" for number in (1, 2, 3))
MAIN: Name = ("owner", "main")


@pytest.fixture
def url() -> Iterator[str]:
    """An empty database."""
    url = postgres_server().database()
    yield url
    postgres_server().drop(url)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Less than the usual times: what is tested is the order of things. A thread of a busy machine may miss some beats."""
    monkeypatch.setattr(membership, "BEAT_SECONDS", 0.1)
    monkeypatch.setattr(membership, "DEAD_SECONDS", 1.5)
    monkeypatch.setattr(membership, "GRACE_SECONDS", 0.5)


@dataclass(frozen=True)
class Member:
    """One gateway's part of the database."""

    store: PostgresStore
    membership: Membership
    claims: RowClaims

    async def claim(self, name: Name = MAIN) -> Claim:
        granted = await self.claims.claim(name)
        assert isinstance(granted, Claim)
        return granted

    async def session(self) -> Recorder:
        """A new session with its first event."""
        log = await self.store.create(SESSION)
        recorder = Recorder(log, START, Transcript(), lambda: datetime.fromisoformat(AT).astimezone(UTC))
        await recorder.append_durable(opened(SESSION, "main"))
        return recorder


@asynccontextmanager
async def member(url: str, folder: Path) -> AsyncIterator[Member]:
    async with AsyncExitStack() as stack:
        database = stack.enter_context(Database(url))
        committer = await stack.enter_async_context(GroupCommitter(database))
        joined = await stack.enter_async_context(Membership(database, version="1"))
        store = PostgresStore(database, "sessions", folder, committer, joined)
        yield Member(store, joined, RowClaims(database, joined))


def outside(url: str, statement: str) -> list[tuple[object, ...]]:
    """Run a statement as somebody else."""
    with psycopg.connect(url, autocommit=True, options="-c search_path=exuvia") as connection:
        found = connection.execute(statement.encode())
        return found.fetchall() if found.description else []


def stand_still(frozen: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a gateway beat no more, as a stopped process does."""
    plain = Membership._round

    def round_(each: Membership, identity: str) -> str:
        return identity if each is frozen.membership else plain(each, identity)

    monkeypatch.setattr(Membership, "_round", round_)


async def die_and_come_back(one: Member, other: Member, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a gateway stand still until another one declares it dead, and go on as its next incarnation."""
    before = one.membership.id
    with monkeypatch.context() as stopped:
        stand_still(one, stopped)
        await until(lambda: other.membership.declared == 1)
    await until(lambda: one.membership.id not in ("", before))


async def test_a_beat_that_fails_unexpectedly_is_not_the_last(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failures, beaten = list[int](), threading.Event()
    beat = Membership._round

    def fail_once(self: Membership, identity: str) -> str:
        if not failures:
            failures.append(1)
            raise RuntimeError("can't start new thread")
        identity = beat(self, identity)
        beaten.set()
        return identity

    monkeypatch.setattr(Membership, "_round", fail_once)
    async with member(url, tmp_path):
        assert await asyncio.to_thread(beaten.wait, DEADLINE)


async def test_a_key_has_one_owner_and_the_next_one_a_higher_epoch(url: str, tmp_path: Path) -> None:
    async with member(url, tmp_path) as one, member(url, tmp_path) as two:
        await one.membership.announce("http://one.example:7117")
        claim = await one.claim()
        assert await two.claims.claim(MAIN) == Elsewhere(gateway=one.membership.id, url="http://one.example:7117")
        await one.claims.release(claim, settled=True)
        assert not one.claims.holds(claim)
        assert (await two.claim()).epoch == claim.epoch + 1
        assert [name async for name in one.claims.unowned()] == []


async def test_work_that_was_left_is_adopted_by_one_other_gateway(url: str, tmp_path: Path) -> None:
    async with member(url, tmp_path) as one, member(url, tmp_path) as two:
        for number in range(9):
            name = ("owner", f"key-{number}")
            await one.claims.release(await one.claim(name), settled=number == 8)
        await asyncio.wait_for(two.claims.until_unowned(), DEADLINE)
        found = await asyncio.gather(*(_adopted(each) for each in (one, two)))
        assert sorted(name for names in found for name in names) == [("owner", f"key-{number}") for number in range(8)]


@pytest.mark.parametrize("order", [("_claim", "_adopt"), ("_adopt", "_claim")])
async def test_an_adoption_that_a_claim_overtakes_is_forgotten(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, order: tuple[str, str]
) -> None:
    """Else the next claim of the conversation, once it was released, would be one that the database does not know."""
    went, goes_on = ({name: threading.Event() for name in order} for _ in range(2))

    def held_up(name: str, work: Callable[..., Any]) -> Callable[..., Any]:
        def done(*given: Any) -> Any:
            found = work(*given)
            went[name].set()
            goes_on[name].wait(DEADLINE)
            return found

        return done

    async with member(url, tmp_path) as one, member(url, tmp_path) as two:
        await one.claims.release(await one.claim(), settled=False)
        with monkeypatch.context() as patch:
            for name in order:
                patch.setattr(two.claims, name, held_up(name, getattr(two.claims, name)))
            tasks: dict[str, asyncio.Task[Any]] = {"_adopt": asyncio.create_task(_names(two.claims.unowned()))}
            await until(went["_adopt"].is_set)
            tasks["_claim"] = asyncio.create_task(two.claim())
            await until(went["_claim"].is_set)
            for name in order:
                goes_on[name].set()
                await tasks[name]
        claim = tasks["_claim"].result()
        await two.claims.release(claim, settled=True)
        assert (await two.claim()).epoch == claim.epoch + 1


async def _names(names: AsyncIterator[Name]) -> list[Name]:
    return [name async for name in names]


async def _adopted(by: Member) -> list[Name]:
    names = [name async for name in by.claims.unowned()]
    for name in names:
        await by.claim(name)
    return names


async def test_a_gateway_that_stands_still_is_declared_dead_and_rejected_and_comes_back_as_another(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Claim] = []
    async with member(url, tmp_path) as one, member(url, tmp_path) as two:
        one.claims.on_lost(lost.append)
        claim, before = await one.claim(), one.membership.id
        recorder = await one.session()
        with monkeypatch.context() as stopped:
            stand_still(one, stopped)
            await until(lambda: two.membership.declared == 1)
            recorder.append(received("too late", "m1"), urgent=True)
            # Or its connection is ended.
            with pytest.raises(StorageFailed, match=r"may not write it any more|did not confirm"):
                await recorder.until_durable(2)
            with pytest.raises(StorageFailed, match="declared this one dead"):
                await one.store.create("20261121-000002-aaaaaa")
        await until(lambda: one.membership.id not in ("", before))
        assert lost == [claim]
        assert not one.claims.holds(claim)
        await until(lambda: two.membership.is_gone(before))
        assert not one.membership.is_gone(before), "what it has begun may still run in this process"
        await until(lambda: not two.membership.is_gone(one.membership.id))
        await asyncio.wait_for(two.claims.until_unowned(), DEADLINE)
        assert await _adopted(two) == [MAIN]
        assert isinstance(await one.claims.claim(MAIN), Elsewhere)
        assert outside(url, "SELECT count(*) FROM line") == [(1,)]
        assert (one.membership.deaths, two.membership.deaths) == (1, 0)


async def test_a_claim_that_commits_while_its_gateway_is_declared_dead_is_freed_too(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with member(url, tmp_path) as one, member(url, tmp_path) as two:
        given = {"person": MAIN[0], "key": MAIN[1], "gateways": [one.membership.id]}
        with psycopg.connect(url, options="-c search_path=exuvia") as claiming:
            claiming.execute(row_claims._CLAIM.encode(), given)
            stand_still(one, monkeypatch)
            waiting = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND datname = current_database()"
            await until(lambda: outside(url, waiting) != [(0,)])  # or several, of attempts that took too long
        await until(lambda: outside(url, "SELECT count(*) FROM gateway WHERE dead") == [(1,)])
        assert (await two.claim()).epoch == 3


async def test_a_gateway_that_comes_back_does_not_take_the_log_from_the_next_owner(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with member(url, tmp_path) as one, member(url, tmp_path) as two:
        await one.claim()
        session = await one.session()
        await die_and_come_back(one, two, monkeypatch)
        session.append(received("too late", "m1"), urgent=True)
        with pytest.raises(StorageFailed):
            await session.until_durable(2)
        with pytest.raises(StorageFailed, match="does not have any more"):  # nobody has it yet
            await one.store.open(SESSION, fold=lambda _: None)
        await _adopted(two)
        log, last = await two.store.open(SESSION, fold=lambda _: None)
        with pytest.raises(StorageFailed, match="does not have any more"):
            await one.store.open(SESSION, fold=lambda _: None, least=1)
        recorder = Recorder(log, last, Transcript(), lambda: datetime.fromisoformat(AT).astimezone(UTC))
        await recorder.append_durable(received("in time", "m2"))
        await recorder.close()


async def test_a_gateway_that_comes_back_begins_no_session_of_a_conversation_that_it_has_lost(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither as the next incarnation, nor once another gateway has the conversation: it would have two sessions at once."""
    async with member(url, tmp_path) as one, member(url, tmp_path) as two:
        await one.claim()
        parent = await one.session()
        forked = SessionForked(session=FORK, key="main-fork", parent=SESSION, parent_seq=1, left=())
        line, _ = encode(Recorded(seq=2, at=AT, turn=None, event=forked), parent.position.sum)
        await one.claim(("owner", "main-fork"))
        await die_and_come_back(one, two, monkeypatch)
        for _ in range(2):
            begun = await one.store.create(OTHER)
            recorder = Recorder(begun, START, Transcript(), lambda: datetime.fromisoformat(AT).astimezone(UTC))
            with pytest.raises(StorageFailed, match="may not write it any more"):
                await recorder.append_durable(opened(OTHER, "main"))
            await one.store.discard_empty(OTHER)
            with pytest.raises(StorageFailed, match="does not have any more"):
                await one.store.copy(SESSION, parent.position, line, FORK)
            await _adopted(two)
        assert outside(url, "SELECT name FROM session") == outside(url, "SELECT name FROM log") == [(SESSION,)]
        await two.store.copy(SESSION, parent.position, line, FORK)
        assert outside(url, "SELECT count(*) FROM session") == [(2,)]


async def test_an_outage_of_the_database_kills_nobody(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with member(url, tmp_path) as one, member(url, tmp_path) as two:
        claim = await one.claim()

        def refused(*_: object, **__: object) -> None:
            raise StorageFailed("The database is away.")

        with monkeypatch.context() as away:
            away.setattr(Database, "connect", refused)
            outside(
                url,
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'exuvia %'"
                " AND datname = current_database()",
            )
            await until(lambda: min(each.membership.silent_seconds for each in (one, two)) > 1.5)
        await until(lambda: max(each.membership.silent_seconds for each in (one, two)) < 0.5)
        beats = outside(url, "SELECT sum(beat) FROM gateway")[0][0]
        await until(lambda: int(str(outside(url, "SELECT sum(beat) FROM gateway")[0][0])) > int(str(beats)) + 20)
        assert one.claims.holds(claim)
        assert outside(url, "SELECT count(*) FROM gateway WHERE dead") == [(0,)]


async def test_no_claim_is_forgotten_whose_release_or_adoption_was_not_answered(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def lost(self: RowClaims, *given: Any, plain: Callable[..., Any], **named: Any) -> None:
        plain(self, *given, **named)
        raise StorageFailed("The answer was lost.")

    def unreachable(_: Database) -> None:
        raise StorageFailed("The database is away.")

    async with member(url, tmp_path) as one:
        claims = one.claims
        with monkeypatch.context() as away:
            claim = await one.claim()
            away.setattr(Database, "connection", unreachable)
            await claims.release(claim, settled=True)
        await asyncio.wait_for(claims.until_unowned(), DEADLINE)
        assert await _adopted(one) == [MAIN]
        assert [name async for name in claims.unowned()] == [], "now it is known"

        await claims.release(await one.claim(), settled=False)
        with monkeypatch.context() as unanswered:
            unanswered.setattr(RowClaims, "_adopt", partialmethod(lost, plain=RowClaims._adopt))
            with pytest.raises(StorageFailed, match="The answer was lost"):
                await _adopted(one)
        assert outside(url, "SELECT holder FROM chat") == [(one.membership.id,)]
        await asyncio.wait_for(claims.until_unowned(), DEADLINE)
        assert await _adopted(one) == [MAIN]

        claim = await one.claim()
        with monkeypatch.context() as silent:
            silent.setattr("sessions.postgres.row_claims.CONTACT_SECONDS", -1.0)
            silent.setattr(Database, "connection", unreachable)  # which would take seconds
            await claims.release(claim, settled=True)
        await asyncio.wait_for(claims.until_unowned(), DEADLINE)
        assert await _adopted(one) == [MAIN]


async def test_who_waits_for_the_database_goes_on_once_it_has_contact_again(
    url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreachable(_: Membership) -> None:
        raise StorageFailed("The database is away.")

    async with member(url, tmp_path) as one:
        waiting = asyncio.create_task(one.claims.until_regained(one.claims.regained))
        with monkeypatch.context() as away:
            away.setattr(Membership, "_connect", unreachable)
            ended = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> pg_backend_pid()"
            outside(url, f"{ended} AND datname = current_database()")
            await until(lambda: one.membership.silent_seconds > 1)
            assert not waiting.done()
        await asyncio.wait_for(waiting, DEADLINE)
        assert one.claims.regained == 1


@pytest.mark.parametrize(("away", "grace"), [(1.75, 1.75), (60.0, 5.0)])
def test_the_patience_after_an_outage_is_that_of_the_outage(
    away: float, grace: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A statement that took long must not hold the others' conversations up for as long as a failover may take."""
    monkeypatch.setattr(membership, "GRACE_SECONDS", 5.0)
    one = Membership(Database("postgresql://nowhere/exuvia"))
    one._loop = cast(Any, SimpleNamespace(call_soon_threadsafe=lambda *_: None))
    one._had_failed, one._contact = True, 1000.0
    one._note_contact(1000.0 + away)
    assert one._grace_until == 1000.0 + away + membership.DEAD_SECONDS + grace


async def test_a_gateway_that_leaves_frees_its_claims_at_once(url: str, tmp_path: Path) -> None:
    async with member(url, tmp_path) as two:
        async with member(url, tmp_path) as one:
            await one.claim()
            assert [row.held for row in await asyncio.to_thread(two.membership.rows)] == [0, 1]
        assert await _adopted(two) == [MAIN]
        assert len(await asyncio.to_thread(two.membership.rows)) == 1


async def test_a_gateway_that_drains_takes_no_claims(url: str, tmp_path: Path) -> None:
    async with member(url, tmp_path) as one:
        await one.membership.drain()
        assert await one.claims.claim(MAIN) == Elsewhere(gateway="", url="")
        assert [row.draining for row in await asyncio.to_thread(one.membership.rows)] == [True]
