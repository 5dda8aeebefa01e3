"""What requests to models cost: each stands in the ledger exactly once, and its amount follows from its line."""

from __future__ import annotations

import io
import json
import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path
from typing import Any

import msgspec
import psycopg
import pytest
from msgspec.structs import replace
from structlog.testing import capture_logs

from gateway.cli.options import Invocation
from gateway.cli.people.usage_commands import usage
from gateway.config.keys import PriceKeys, load_config
from gateway.config.settings import Settings
from gateway.metrics.counters import Counters
from gateway.models.spending import spending_log
from gateway.models.spending.budgets import Limit, newly_near
from gateway.models.spending.prices import Price, Rate, micros_of, rate_of
from gateway.models.spending.report import ledger_months, month_report
from gateway.models.spending.spending import ModelRequest, Spending
from gateway.models.spending.spending_log import (
    Ledger,
    LedgerEvent,
    Outcomes,
    Payer,
    RequestCharged,
    RequestReleased,
    RequestReserved,
    Sums,
    Zones,
    ledger_name,
    read_ledgers,
    read_outcomes,
)
from gateway.support.home import Home
from plugins.testing.contexts import ManualClock
from plugins.testing.servers.faulty_server import Fault
from plugins.testing.servers.openai_server import OpenAIServer, ScriptedResponse
from sessions.events.errors import StorageFailed
from sessions.events.messages import Usage
from sessions.files.committer import Commit, Committer
from sessions.files.journal_folder import JournalFolder
from sessions.files.journals import Journals
from sessions.postgres.connections import Database
from sessions.postgres.group_commit import GroupCommitter
from sessions.postgres.postgres_store import PostgresStore
from sessions.store import lazy_log
from tests.gateway.gateways import TOKEN, Gateway, gateway
from tests.gateway.test_absurd_usage import SAID, responds, settings, status_settles
from tests.gateway.test_plugin_services import SCRIBE
from tests.servers.postgres_server import postgres_server
from tests.shelf import Shelf
from tests.waiting import DEADLINE, deadline, until


def priced(model: str, more: str = "") -> str:
    """The configuration of a model with a price."""
    return f'[agent]\nmodel = "{model}"\n{more}[prices."{model}"]\ninput = 2.5\ncached = 1.25\noutput = 10.0\n'


ECHO = priced("scripted:echo")
UTC_ZONES = Zones(default="UTC", people={"kim": "Pacific/Kiritimati"})


def ledger(home: Path) -> list[dict[str, Any]]:
    """The lines of all ledgers of a home."""
    return [json.loads(line) for path in sorted(home.glob("spending-*.jsonl")) for line in path.read_bytes().splitlines()]


def charges(home: Path) -> list[dict[str, Any]]:
    """The charges in all ledgers of a home."""
    return [line for line in ledger(home) if line["kind"] == "request_charged"]


def exact(line: dict[str, Any]) -> int:
    """The cost of a line in millionths, computed without our code: each rate is for a million tokens."""
    used, rate = line["usage"], line["rate"]
    fresh = used["input"] - used["cached"]
    millionths = Decimal(fresh * rate["input"] + used["cached"] * rate["cached"] + used["output"] * rate["output"])
    return int((millionths / 1_000_000).quantize(Decimal(1), ROUND_HALF_UP))


async def ledger_has(home: Path, count: int) -> list[dict[str, Any]]:
    await until(lambda: len(charges(home)) >= count)
    return charges(home)


async def test_every_request_of_every_purpose_is_charged_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Shelf(tmp_path / "shelf", monkeypatch).install("scribing", "scribe", SCRIBE)
    home = tmp_path / "home"
    async with OpenAIServer(respond=responds(1003)).serving() as server:
        wanted = settings(server) | {"plugins.allow": ["scribe"], "agent.titles": True}
        async with gateway(home, settings=wanted, file=priced("openai:gpt-test")) as g:
            client = await g.connect()
            await client.chat(SAID * 20)
            await client.until_event("session_titled")  # the next turn would cancel the request for it
            for _ in range(2):
                await client.chat(SAID * 20)
            await client.command("/compact")
            await client.send("Write it down.")
            await client.until_event("tool_returned")
            await client.until_event("turn_ended")
            await status_settles(client, home)
            body = {"model": "openai:gpt-test", "messages": [{"role": "user", "content": "hi"}]}
            async with g.http.post(f"{g.url}/v1/chat/completions", json=body, headers=bearer()) as response:
                assert response.status == 200
            await until(lambda: len(charges(home)) == len(server.requests))
            shown = await client.command("/usage")
            assert (await get_usage(g))["total"]["micros"] > 0
        lines = charges(home)
    assert {line["purpose"] for line in lines} >= {
        "answer",
        "flush",
        "summary",
        "title",
        "extraction",
        "api",
        "plugin:scribe",
    }
    assert len({line["request"] for line in lines}) == len(lines) == len(server.requests)
    assert {line["person"] for line in lines if not line["purpose"].startswith("plugin:")} == {"owner"}
    total = sum(line["micros"] for line in lines)
    assert total == sum(map(exact, lines)) > 0
    today = datetime.now(UTC)
    sums = read_ledgers(JournalFolder(home), ledger_months(today.date()), UTC_ZONES)
    report = month_report(sums, today.date(), "USD", today)
    assert report.total.micros == total == sum(part.micros for part in report.purposes)
    (journal,) = (home / "sessions").iterdir()
    replied = [json.loads(line) for line in journal.read_bytes().splitlines() if b'"model_replied"' in line]
    assert [event["cost"] for event in replied] == [line["micros"] for line in lines if line["purpose"] == "answer"]
    assert "- this month: $0.0" in shown
    assert "unknown" not in shown


def bearer() -> dict[str, str]:
    return {"Authorization": f"Bearer {TOKEN}"}


async def get_usage(g: Gateway) -> dict[str, Any]:
    async with g.http.get(f"{g.url}/api/usage", headers=bearer()) as response:
        assert response.status == 200
        body: dict[str, Any] = await response.json()
        return body


async def test_a_cancelled_answer_is_charged_as_estimated(tmp_path: Path) -> None:
    script = [{"text": "one two three four five six", "delay_ms": 40}]
    async with gateway(tmp_path, script=script, file=priced("scripted:script")) as g:
        client = await g.connect()
        await client.send("hi")
        await client.until_type("delta")
        await client.say("cancel", session="main")
        await client.until_event("turn_ended")
        (line,) = await ledger_has(tmp_path, 1)
    assert line["estimated"] is True
    assert line["micros"] == exact(line) > 0


async def test_a_request_without_an_answer_is_sent_once_and_charged_as_estimated(tmp_path: Path) -> None:
    """The service may have read it, and charge for it."""
    async with deadline(), OpenAIServer(Fault(end="silence")).serving() as server:
        wanted = settings(server) | {"providers.openai.first_seconds": 2.0}
        async with gateway(tmp_path, settings=wanted, file=priced("openai:gpt-test")) as g:
            body = {"model": "openai:gpt-test", "messages": [{"role": "user", "content": "hi"}]}
            async with g.http.post(f"{g.url}/v1/chat/completions", json=body, headers=bearer()) as response:
                assert response.status >= 500
            (line,) = await ledger_has(tmp_path, 1)
        assert len(server.requests) == 1
    assert {each["request"] for each in ledger(tmp_path)} == {line["request"]}
    assert line["estimated"] is True
    assert line["micros"] == exact(line) > 0


async def test_a_request_that_was_refused_costs_nothing(tmp_path: Path) -> None:
    script = [{"error": "bad_request"}, {"text": "Well."}]
    async with gateway(tmp_path, script=script, file=priced("scripted:script")) as g:
        client = await g.connect()
        await client.send("hi")
        await client.until_event("turn_ended")
        assert await client.chat("again") == "Well."
        (line,) = await ledger_has(tmp_path, 1)
    assert "estimated" not in line


@pytest.mark.parametrize(
    ("reported", "micros"), [(0.0123456, 12346), (0, 0), (-1, None), (1e30, None), ("0.5", None), (True, None)]
)
async def test_the_cost_that_a_service_reports_counts(tmp_path: Path, reported: object, micros: int | None) -> None:
    answer = ScriptedResponse("A crab sheds its shell.", counts=1000, cost=reported)
    async with (
        OpenAIServer(respond=lambda _: answer).serving() as server,
        gateway(tmp_path, settings=settings(server), file=priced("openai:gpt-test")) as g,
    ):
        client = await g.connect()
        await client.chat("hi")
        line = (await ledger_has(tmp_path, 1))[0]
    assert line.get("reported", False) is (micros is not None)
    assert line["micros"] == (exact(line) if micros is None else micros)


async def test_deleting_a_conversation_leaves_what_it_cost(tmp_path: Path) -> None:
    async with gateway(tmp_path, file=ECHO) as g:
        client = await g.connect()
        await client.chat("a long enough message to cost something", session="other")
        before = charges(tmp_path) or await ledger_has(tmp_path, 1)
        await client.command("/delete other")
        await client.chat("hi")
        after = await ledger_has(tmp_path, 2)
        assert after[:1] == before
        report = await get_usage(g)
    assert report["total"]["micros"] == sum(line["micros"] for line in after)


async def test_another_person_sees_only_what_they_spent(tmp_path: Path) -> None:
    ana = "ana-token-0123456789-abcdefgh"
    async with gateway(tmp_path, file=priced("scripted:echo", f'[people.ana]\ntoken = "{ana}"\n')) as g:
        await (await g.connect()).chat("the owner's words, which are many")
        client = await g.connect(ana)
        await client.chat("hello there")
        lines = await ledger_has(tmp_path, 2)
        async with g.http.get(f"{g.url}/api/usage", headers={"Authorization": f"Bearer {ana}"}) as response:
            report = await response.json()
        everybody = await get_usage(g)
    assert [part["name"] for part in report["people"]] == ["ana"]
    assert report["total"]["micros"] == lines[1]["micros"]
    assert sorted(part["name"] for part in everybody["people"]) == ["ana", "owner"]


def charged(micros: int = 1000, *, person: str = "ana", currency: str = "USD") -> RequestCharged:
    return RequestCharged(
        request="r",
        person=person,
        agent="main",
        session="s",
        purpose="answer",
        model="a:b",
        usage=Usage(input=10, output=1),
        micros=micros,
        rate=Rate(input=1, cached=1, output=1),
        currency=currency,
    )


async def months(home: Path, times: Sequence[datetime]) -> None:
    """Write one request into the ledgers at each time."""
    clock = ManualClock(times[0])
    async with Committer() as committer:
        kept = Ledger(Journals(home, home / "quarantine", committer), clock.now, lambda: UTC_ZONES)
        for time in times:
            clock.move((time - clock.now()).total_seconds())
            async with kept.writing() as writer:
                await writer.append_durable(charged())
        await kept.close()


async def test_each_month_has_a_ledger_and_a_restart_sums_the_same(tmp_path: Path) -> None:
    times = [
        datetime(2026, 10, 31, 23, 59, tzinfo=UTC),
        datetime(2026, 11, 1, tzinfo=UTC),
        datetime(2026, 11, 20, tzinfo=UTC),
    ]
    await months(tmp_path, times)
    assert sorted(path.name for path in tmp_path.glob("*.jsonl")) == ["spending-2026-10.jsonl", "spending-2026-11.jsonl"]
    november = date(2026, 11, 1)
    sums = read_ledgers(JournalFolder(tmp_path), ledger_months(november), UTC_ZONES)
    report = month_report(sums, november, "USD", datetime(2026, 11, 16, tzinfo=UTC))
    assert (report.total.requests, report.total.micros) == (2, 2000)
    assert report.forecast == 4000, "half of the month has passed"
    assert [day.name for day in report.days] == ["2026-11-01", "2026-11-20"]


def test_the_day_of_a_request_is_that_of_the_person() -> None:
    sums = Sums(UTC_ZONES)
    for person in ("ana", "kim"):
        sums.add(charged(person=person), "2026-11-02T12:00:00.000Z")
    assert [(entry.person, entry.day.day) for entry in sums.entries] == [("ana", 2), ("kim", 3)]


def test_nobody_is_warned_of_a_budget_of_nothing() -> None:
    """Something may be charged all the same: what began before the budget was set, or has no price in advance."""
    sums = Sums(UTC_ZONES)
    none = Limit(scope="all", period="day", key="2026-11-30", cap=0, begins=date(2026, 12, 1), zone="")
    sums.spent["USD", none.scope, none.key] = 5
    assert newly_near([none], sums, "USD") == []


def test_other_currencies_are_left_out() -> None:
    sums = Sums(UTC_ZONES)
    sums.add(charged(), "2026-11-02T00:00:00.000Z")
    sums.add(charged(currency="EUR"), "2026-11-02T00:00:00.000Z")
    assert month_report(sums, date(2026, 11, 1), "EUR", datetime(2026, 11, 1, tzinfo=UTC)).total.requests == 1


@pytest.mark.parametrize(
    ("used", "micros"), [(Usage(input=1), 3), (Usage(input=3, cached=2), 5), (Usage(input=1, cached=9), 1)]
)
def test_amounts_are_rounded_half_up(used: Usage, micros: int) -> None:
    assert micros_of(Rate(input=2_500_000, cached=1_250_000, output=1), used) == micros


async def test_dollars_are_converted_where_a_rate_is_configured(tmp_path: Path) -> None:
    configured = {"usage": {"currency": "EUR", "per_dollar": 0.5}}
    own = Settings(load_config(None, environment={}, overrides=configured))
    clock = ManualClock(datetime(2026, 11, 1, tzinfo=UTC))
    async with Committer() as committer:
        store = Journals(tmp_path, tmp_path / "quarantine", committer)
        async with Spending(Ledger(store, clock.now, lambda: UTC_ZONES), own, Counters(), find=nobody) as spending:
            dollars = Price(input=4.0, cached=2.0, output=8.0, currency="USD", at="2026-10-27")
            charge = await spending.begin(ModelRequest(session="s", purpose="answer", model="a:b", price=dollars))
            assert charge.settle(Usage(input=100, cached=50, output=10), Usage) == 190
    (line,) = charges(tmp_path)
    assert (line["currency"], line["rate"]["at"]) == ("EUR", "2026-10-27")


class Vectors:
    """An embedding provider at an address; it counts `counted` tokens."""

    name = "openai"

    def __init__(self, address: str, counted: int | None) -> None:
        self._address, self._counted = address, counted

    def address(self, model: str) -> str:
        return self._address

    def model(self) -> str:
        return "text-embedding-3-small"

    def take_counted(self) -> int | None:
        return self._counted


async def test_embedded_texts_are_charged_by_what_was_counted_and_cost_nothing_on_this_machine(tmp_path: Path) -> None:
    vendor, local = "https://api.openai.com/v1", "http://127.0.0.1:11434"
    async with Committer() as committer:
        store = Journals(tmp_path, tmp_path / "quarantine", committer)
        book = Ledger(store, ManualClock().now, lambda: UTC_ZONES)
        config = Settings(load_config(None, environment={}, overrides={}))
        async with Spending(book, config, Counters(), find=nobody) as spending:
            for address, counted in ((vendor, 1_000_000), (vendor, None), (local, 70), ("", 70)):
                provider: Any = Vectors(address, counted)
                spending.charge_embedding(provider, 500_000, Payer("", "coder"))
    assert [
        (each["purpose"], each["agent"], each["usage"]["input"], each["micros"], each.get("estimated", False))
        for each in charges(tmp_path)
    ] == [("embedding", "coder", 1_000_000, 20_000, False), ("embedding", "coder", 500_000, 10_000, True)]


class _CountedCommits(Committer):
    """A committer that counts the commits that it is asked for."""

    submitted = 0

    def submit(self, journal: Commit) -> None:
        self.submitted += 1
        super().submit(journal)


async def test_a_charge_without_a_price_shares_a_sync_with_the_next_ones(tmp_path: Path) -> None:
    price, one = Price(input=1.0, cached=1.0, output=1.0, currency="USD"), Usage(input=1, output=1)
    committer = _CountedCommits()
    async with committer:
        book = Ledger(Journals(tmp_path, tmp_path / "quarantine", committer), ManualClock().now, lambda: UTC_ZONES)
        config = Settings(load_config(None, environment={}, overrides={}))
        async with Spending(book, config, Counters(), find=nobody) as spending:
            free = ModelRequest(session="s", purpose="answer", model="a:b", price=None)
            for _ in range(3):
                charge = await spending.begin(free)
                before = committer.submitted
                charge.settle(one, Usage)
                assert committer.submitted == before
            assert sum(each.requests for each in (await book.sums()).entries.values()) == 3
            assert len(charges(tmp_path)) == 3, "whoever asks for the sums does not wait for the next commit"
            charge = await spending.begin(msgspec.structs.replace(free, price=price, output=1000))
            await until(lambda: len(ledger(tmp_path)) == 4 and committer.pending == 0)
            before = committer.submitted
            charge.settle(one, Usage)
            assert committer.submitted == before + 1


async def nobody(_: str) -> Payer | None:
    return None


def test_a_configured_price_has_the_configured_currency() -> None:
    assert rate_of(Price(input=0.075, cached=0.0, output=1.0, currency="EUR")) == Rate(
        input=75000, cached=0, output=1_000_000
    )
    assert PriceKeys(input=1.0, output=1.0).cached is None


async def test_the_command_prints_the_report_of_a_month(tmp_path: Path) -> None:
    await months(tmp_path, [datetime(2026, 10, 5, tzinfo=UTC)])
    out = io.StringIO()
    call = Invocation(Home(tmp_path), tmp_path / "config.toml", {}, out)
    assert usage(call, "2026-10", None) == 0
    assert re.search(r"^2026-10: \$0\.0010 for 1 requests", out.getvalue())
    assert ledger_name(date(2026, 10, 5)) == "spending-2026-10"
    for person, requests in (("ana", 1), ("ben", 0)):
        out.truncate(0)
        out.seek(0)
        assert usage(call._replace(as_json=True), "2026-10", person) == 0
        assert json.loads(out.getvalue())["total"]["requests"] == requests


async def test_charges_that_wait_for_the_database_at_the_end_of_a_month_are_in_its_ledger(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lazy_log, "FLUSH_SECONDS", DEADLINE)
    monkeypatch.setattr(lazy_log, "RETRY_SECONDS", 0.0)
    url, clock = postgres_server().database(), ManualClock(datetime(2026, 11, 30, 23, tzinfo=UTC))

    def unreachable(*_: object) -> set[int]:
        raise psycopg.OperationalError("the connection was lost")

    with Database(url) as database:
        async with GroupCommitter(database) as committer:
            store = PostgresStore(database, "home", tmp_path, committer, shared=True)
            ledger = Ledger(store, clock.now, lambda: UTC_ZONES)
            await ledger.ready()
            with monkeypatch.context() as away:
                away.setattr(lazy_log, "FLUSH_SECONDS", 0.05)
                away.setattr(GroupCommitter, "_append", unreachable)
                ledger.append(charged(person="ana"))
                clock.move(2 * 3600)
                with pytest.raises(StorageFailed):
                    await ledger.ready()
            async with deadline():
                await ledger.ready()
                await ledger.close()
            november, december = date(2026, 11, 1), date(2026, 12, 1)
            assert [entry.person for entry in read_ledgers(store, [november], UTC_ZONES).entries] == ["ana"]
            assert not read_ledgers(store, [december], UTC_ZONES).entries
    postgres_server().drop(url)


RUNNING = RequestReserved(
    request="running", person="ana", agent="main", session="s", purpose="answer", model="m", usage=Usage(), micros=1000
)
SETTLED = replace(RUNNING.charged(), micros=300, estimated=False)


class TwoLedgers:
    """The ledgers of two gateways that share a database, at the end of a month: the second has reserved a request in the old
    month's log, and the first has opened the new one since."""

    def __init__(self, stores: Sequence[PostgresStore], clock: ManualClock) -> None:
        self.store, self.clock = stores[0], clock
        self.here, self.there = (Ledger(store, clock.now, lambda: UTC_ZONES) for store in stores)

    async def sums_after_a_request(self) -> Sums:
        """Return the sums of the first ledger after what its next request has caused."""
        async with self.here.writing() as writer:
            await writer.until_durable(writer.head)
        if self.here._settling is not None:
            await self.here._settling
        return await self.here.sums()

    def charged(self) -> list[tuple[date, int]]:
        """Return what both logs together have charged, by day."""
        entries = read_ledgers(self.store, [date(2026, 11, 1), date(2026, 12, 1)], UTC_ZONES).entries
        return [(entry.day, spent.micros) for entry, spent in entries.items()]


@asynccontextmanager
async def month_ends(home: Path) -> AsyncIterator[TwoLedgers]:
    url, clock = postgres_server().database(), ManualClock(datetime(2026, 11, 30, 23, 59, 50, tzinfo=UTC))
    with Database(url) as database:
        async with GroupCommitter(database) as committer:
            stores = [PostgresStore(database, "home", home, committer, shared=True) for _ in range(2)]
            two = TwoLedgers(stores, clock)
            async with two.there.writing() as writer:
                await writer.append_durable(RUNNING)
            clock.move(15)
            await two.sums_after_a_request()
            yield two
            await two.here.close()
            await two.there.close()
    postgres_server().drop(url)


@pytest.mark.parametrize(
    ("outcome", "day"), [(SETTLED, [(date(2026, 12, 1), 300)]), (RequestReleased(request=RUNNING.request), [])]
)
async def test_a_request_that_another_gateway_settles_in_the_log_of_the_month_before_is_charged_once(
    tmp_path: Path, outcome: LedgerEvent, day: list[tuple[date, int]]
) -> None:
    async with month_ends(tmp_path) as two:
        two.there.append(outcome)
        await two.there.close()
        two.clock.move(21 * 60)
        sums = await two.sums_after_a_request()
        assert (sums.open, sums.reserved, two.charged()) == ({}, {}, day)
        assert [(entry.day, spent.micros) for entry, spent in sums.entries.items()] == day
        assert set((await two.sums_after_a_request()).spent.values()) == {micros for _, micros in day}


async def test_a_request_that_nobody_settled_at_the_end_of_a_month_is_charged_once_its_log_can_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = 0

    def unreadable(*_: object) -> Outcomes:
        nonlocal reads
        reads += 1
        raise StorageFailed("The database is away.")

    async with month_ends(tmp_path) as two:
        two.clock.move(21 * 60)
        monkeypatch.setattr(spending_log, "read_outcomes", unreadable)
        with capture_logs() as reports:
            for _ in range(3):
                assert list((await two.sums_after_a_request()).open) == [RUNNING.request]
        assert (reads, [each["event"] for each in reports]) == (1, ["reservations_kept"])
        monkeypatch.setattr(spending_log, "read_outcomes", read_outcomes)
        two.clock.move(60)
        for _ in range(2):
            sums = await two.sums_after_a_request()
            assert (sums.open, sums.reserved, two.charged()) == ({}, {}, [(date(2026, 12, 1), 1000)])


async def test_charges_that_could_not_be_stored_are_reported_at_the_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def full(*_: object) -> None:
        raise StorageFailed("The disk is full.")

    monkeypatch.setattr(Journals, "create", full)
    async with Committer() as committer:
        ledger = Ledger(Journals(tmp_path, tmp_path / "quarantine", committer), ManualClock().now, lambda: UTC_ZONES)
        config = Settings(load_config(None, environment={}, overrides={}))
        with capture_logs() as reports:
            async with Spending(ledger, config, Counters(), find=nobody):
                ledger.append(charged())
        (dropped,) = [each for each in reports if each["event"] == "charges_dropped"]
        assert dropped["charges"] == 1
        assert "The disk is full." in dropped["reason"]
