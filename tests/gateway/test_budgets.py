"""Budgets and rates: what does not fit is refused before it is sent, whatever runs at once and whatever is killed."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import random
import shutil
import threading
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import pytest
from msgspec.structs import replace

from gateway.config.keys import load_config
from gateway.config.settings import Settings
from gateway.metrics.counters import Counters
from gateway.models.spending.budgets import BudgetSpent, TooManyRequests
from gateway.models.spending.prices import Price
from gateway.models.spending.spending import Charge, ModelRequest, Spending
from gateway.models.spending.spending_log import Ledger, Payer, RequestReleased, RequestReserved, Zones
from plugins.testing.contexts import ManualClock
from sessions.events.messages import Usage
from sessions.files.committer import Committer
from sessions.files.journals import Journals
from sessions.store.cluster import Cluster
from tests.attacks.test_identity import ANA
from tests.gateway.gateways import TOKEN, Client, Frame, gateway
from tests.gateway.test_spending import ledger, priced
from tests.waiting import deadline, until

NOON = datetime(2026, 11, 25, 12, tzinfo=UTC)  # a Wednesday
PRICE = Price(input=1.0, cached=1.0, output=1.0, currency="USD")
"""A token costs a millionth."""


@contextlib.asynccontextmanager
async def account(
    home: Path, clock: ManualClock, cluster: Cluster | None = None, /, **configured: Any
) -> AsyncIterator[Spending]:
    """The account of a home with this configuration, in which sessions are called by their person."""
    settings = Settings(load_config(None, environment={}, overrides={"agent": {"timezone": "UTC"}, **configured}))
    async with Committer() as committer:
        store = Journals(home, home / "quarantine", committer)
        kept = Ledger(store, clock.now, lambda: Zones.of(settings.current), cluster)
        async with Spending(kept, settings, Counters(), find=payer_of, monotonic=clock.monotonic) as spending:
            yield spending


async def payer_of(session: str) -> Payer | None:
    person, _, agent = session.partition("/")
    return Payer(person, agent or "main")


def asked(session: str = "ana", *, tokens: int = 60, output: int = 40, purpose: str = "answer") -> ModelRequest:
    return ModelRequest(session=session, purpose=purpose, model="a:b", price=PRICE, tokens=lambda: tokens, output=output)


def used(charge: Charge, tokens: int = 100) -> None:
    charge.settle(Usage(input=tokens), Usage)


def caps(**periods: float) -> dict[str, Any]:
    """A budget for each person, in millionths."""
    return {"budgets": {"*": {period: micros / 1e6 for period, micros in periods.items()}}}


async def test_a_request_that_does_not_fit_is_refused_with_what_was_spent_and_when_it_begins_anew(tmp_path: Path) -> None:
    async with account(tmp_path, ManualClock(NOON), **caps(day=250)) as spending:
        used(await spending.begin(asked()))
        running = await spending.begin(asked())
        with pytest.raises(BudgetSpent) as refused:
            await spending.begin(asked())
        running.end(None)
        used(await spending.begin(asked()))
    assert str(refused.value) == (
        "The budget of ana for today is $0.00025: $0.00010 are spent and $0.00010 are reserved for requests that run,"
        " and this request may cost $0.00010. It resets on 2026-11-26 at 00:00 (UTC)."
    )


@pytest.mark.parametrize(("period", "days"), [("day", 1), ("week", 5), ("month", 6)])
async def test_a_budget_begins_anew_with_its_period_and_not_before(tmp_path: Path, period: str, days: int) -> None:
    clock = ManualClock(NOON)
    async with account(tmp_path, clock, **caps(**{period: 150})) as spending:
        used(await spending.begin(asked()))
        clock.move((days - 0.51) * 86_400)
        with pytest.raises(BudgetSpent):
            await spending.begin(asked())
        clock.move(0.02 * 86_400)
        used(await spending.begin(asked()))


async def test_a_day_is_that_of_the_person(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    people = {"people": {"kim": {"token": "kim-token-0123456789-abcdef", "timezone": "Pacific/Kiritimati"}}}
    async with account(tmp_path, clock, **caps(day=150), **people) as spending:
        for person, day in (("kim", r"2026-11-27 at 00:00 \(Pacific/Kiritimati\)"), ("ana", r"2026-11-26 at 00:00 \(UTC\)")):
            used(await spending.begin(asked(person)))
            with pytest.raises(BudgetSpent, match=day):
                await spending.begin(asked(person))


async def test_a_person_an_agent_and_everybody_have_budgets_of_their_own(tmp_path: Path) -> None:
    million = 1e-6
    configured = {
        "budgets": {"*": {"day": 200 * million}, "ben": {"day": 500 * million}, "agent:coder": {"day": 300 * million}},
        "usage": {"day": 700 * million},
    }
    async with account(tmp_path, ManualClock(NOON), **configured) as spending:

        async def fits(session: str) -> str:
            try:
                used(await spending.begin(asked(session)))
            except BudgetSpent as refused:
                return str(refused).partition(" for ")[0]
            return "yes"

        assert [await fits("ana") for _ in range(3)] == ["yes", "yes", "The budget of ana"]
        assert [await fits("ben/coder") for _ in range(4)] == ["yes"] * 3 + ["The budget of the agent coder"]
        assert [await fits("ben") for _ in range(3)] == ["yes", "yes", "The budget of ben"]
        assert await fits("zoe") == "The budget of everybody together"


async def test_what_costs_nothing_always_fits(tmp_path: Path) -> None:
    async with account(tmp_path, ManualClock(NOON), **caps(day=0)) as spending:
        free = ModelRequest(session="ana", purpose="answer", model="local:tiny", price=None, tokens=lambda: 9, output=9)
        (await spending.begin(free)).settle(Usage(input=9), Usage)


async def test_a_warning_comes_once_a_period(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    async with account(tmp_path, clock, **caps(day=500)) as spending:
        for _ in range(5):
            used(await spending.begin(asked()))
    async with account(tmp_path, clock, **caps(day=500)) as spending:
        clock.move(86_400)
        for _ in range(5):
            used(await spending.begin(asked()))
    warned = [(line["period"], line["spent"]) for line in ledger(tmp_path) if line["kind"] == "budget_warned"]
    assert warned == [("2026-11-25", 400), ("2026-11-26", 400)]


async def test_requests_are_limited_by_minute_and_hour(tmp_path: Path) -> None:
    clock, budgets = ManualClock(NOON), {"budgets": {"*": {"requests_per_minute": 2, "requests_per_hour": 3}}}
    async with account(tmp_path, clock, **budgets) as spending:
        for _ in range(2):
            used(await spending.begin(asked()))
        with pytest.raises(TooManyRequests, match="At most 2 requests to models a minute") as refused:
            await spending.begin(asked())
        assert refused.value.retry_after == 60
        used(await spending.begin(asked(purpose="summary")))
        used(await spending.begin(asked("ben")))
        clock.move(60)
        used(await spending.begin(asked()))
        clock.move(60)
        with pytest.raises(TooManyRequests, match="an hour"):
            await spending.begin(asked())


LEFT = RequestReserved(
    request="left",
    person="ana",
    agent="main",
    session="ana",
    purpose="answer",
    model="a:b",
    usage=Usage(input=70),
    micros=70,
)


async def test_a_reservation_that_a_crash_left_behind_is_charged_and_marked(tmp_path: Path) -> None:
    clock = ManualClock(NOON)
    async with account(tmp_path, clock, **caps(day=150)) as spending, spending.ledger.writing() as writer:
        await writer.append_durable(LEFT)
    async with account(tmp_path, clock, **caps(day=150)) as spending:
        with pytest.raises(BudgetSpent, match=r"0\.000070 are spent, and this"):
            await spending.begin(asked())
    for _ in range(2):  # only once
        async with account(tmp_path, clock) as spending:
            assert not (await spending.ledger.sums()).open
    charged = [line for line in ledger(tmp_path) if line["kind"] == "request_charged"]
    assert [(line["micros"], line["estimated"]) for line in charged] == [(70, True)]


class _Others:
    """The other gateways of a cluster, as far as a ledger asks."""

    id = "one.1"
    gone = "two.1"

    def is_gone(self, gateway: str) -> bool:
        return gateway == self.gone


async def test_a_request_that_a_crash_interrupts_is_charged_once_without_a_budget_too(tmp_path: Path) -> None:
    clock, after = ManualClock(NOON), tmp_path / "after"
    async with account(tmp_path, clock) as spending:
        used(await spending.begin(asked()))
        (await spending.begin(asked())).end(None)
        await spending.begin(asked("ben", tokens=70, output=5))
        await until(lambda: len(ledger(tmp_path)) == 5)
        shutil.copytree(tmp_path, after, ignore=shutil.ignore_patterns("after"))  # what a crash would leave behind
    for _ in range(2):
        async with account(after, clock) as spending:
            assert not (await spending.ledger.sums()).open
    charged = [line for line in ledger(after) if line["kind"] == "request_charged"]
    assert [(line["person"], line["micros"], line.get("estimated", False)) for line in charged] == [
        ("ana", 100, False),
        ("ben", 75, True),
    ]


async def test_a_request_waits_until_its_reservation_survives_a_kill_and_not_for_the_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, after, write = ManualClock(NOON), tmp_path / "after", os.pwrite
    writing, page, disk = threading.Event(), threading.Event(), threading.Event()

    def slow(descriptor: int, content: bytes, offset: int) -> int:
        writing.set()
        page.wait()
        return write(descriptor, content, offset)

    async with account(tmp_path, clock, **caps(day=1000)) as spending:
        used(await spending.begin(asked()))
        await until(lambda: len(ledger(tmp_path)) == 2)
        monkeypatch.setattr(os, "pwrite", slow)
        monkeypatch.setattr("sessions.files.append_file.sync_content", lambda _: disk.wait())
        try:
            beginning = asyncio.create_task(spending.begin(asked(tokens=70, output=5)))
            await asyncio.to_thread(writing.wait)
            assert not beginning.done()
            page.set()
            async with deadline():
                running = await beginning
            shutil.copytree(tmp_path, after, ignore=shutil.ignore_patterns("after"))  # what a kill would leave behind
            used(running, 20)
        finally:
            page.set()
            disk.set()
    monkeypatch.undo()
    for home, spent in ((after, 175), (tmp_path, 120)):
        async with account(home, clock) as spending:
            assert set((await spending.ledger.sums()).spent.values()) == {spent}


async def test_what_a_gateway_that_is_gone_has_reserved_is_charged_at_the_next_request_until_it_says_what_it_was(
    tmp_path: Path,
) -> None:
    clock, others = ManualClock(NOON), _Others()
    async with account(tmp_path, clock, cast("Cluster", others), **caps(day=1000)) as spending:
        async with spending.ledger.writing() as writer:
            for gateway in ("two.1", "three.1"):
                await writer.append_durable(replace(LEFT, request=gateway, gateway=gateway))

        async def sums_after(seconds: float) -> tuple[list[int], list[int]]:
            """What is spent, and what is reserved, after a request at that time."""
            clock.move(seconds)
            (await spending.begin(asked())).end(None)
            sums = await spending.ledger.sums()
            return list(set(sums.spent.values())), list(set(sums.reserved.values()))

        assert await sums_after(1) == ([], [140]), "a gateway that has just joined may not be known"
        assert await sums_after(10) == ([70], [70])
        late = spending.ledger
        late.append(replace(LEFT.charged(), request="two.1", usage=Usage(input=20), micros=20, estimated=False))
        assert await sums_after(0) == ([20], [70])
        sums = await spending.ledger.sums()
        assert [(each.requests, each.input, each.micros, each.estimated) for each in sums.entries.values()] == [
            (1, 20, 20, 0)
        ]
        assert list(sums.sessions["ana"].values()) == [20]
        others.gone = "three.1"
        assert await sums_after(0) == ([90], [])
        late.append(RequestReleased(request="three.1"))
        assert await sums_after(0) == ([20], [])
    reserved = [line for line in ledger(tmp_path) if line["kind"] == "request_reserved"]
    assert [line["gateway"] for line in reserved] == ["two.1", "three.1", *[_Others.id] * 5]


async def test_the_end_of_a_month_between_a_request_and_its_charge_loses_nothing(tmp_path: Path) -> None:
    clock = ManualClock(datetime(2026, 11, 30, 23, 59, 59, tzinfo=UTC))
    async with account(tmp_path, clock, **caps(day=1000)) as spending:
        running = await spending.begin(asked())
        clock.move(2)
        used(await spending.begin(asked("ben")))
        used(running)
        assert spending.ledger.state is not None
        assert not spending.ledger.state.reserved
    assert sum(line["micros"] for line in ledger(tmp_path) if line["kind"] == "request_charged") == 200


@pytest.mark.parametrize("seed", range(3))
async def test_fifty_persons_with_twenty_requests_each_overspend_nothing_whatever_is_killed(
    tmp_path: Path, seed: int
) -> None:
    chance, clock, cap, most = random.Random(seed), ManualClock(NOON), 1000, 100
    spent: dict[str, int] = {}
    tasks: list[asyncio.Task[None]] = []

    async def turn(spending: Spending, person: str) -> None:
        charge = None
        try:
            charge = await spending.begin(asked(person))
            await asyncio.sleep(chance.random() / 100)
            tokens = chance.randint(1, most)
            spent[person] = spent.get(person, 0) + tokens
            used(charge, tokens)
        except BudgetSpent:
            pass
        finally:
            if charge is not None:
                charge.end(lambda: Usage(input=most))

    async with account(tmp_path, clock, **caps(day=cap)) as spending:
        for _ in range(20):
            tasks += [asyncio.create_task(turn(spending, f"person{number}")) for number in range(50)]
        await asyncio.sleep(0.005)
        for task in chance.sample(tasks, 200):
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        sums = await spending.ledger.sums()
        assert not sums.reserved
        assert not sums.open
    charged: dict[str, int] = {}
    for line in ledger(tmp_path):
        if line["kind"] == "request_charged":
            charged[line["person"]] = charged.get(line["person"], 0) + line["micros"]
    assert max(charged.values()) <= cap
    assert all(charged[person] >= tokens for person, tokens in spent.items())
    assert sum(charged.values()) > 50 * cap * 0.3, "the budgets were used"


BUDGET = '[budgets."*"]\nday = 0.0001\nmodel = "{model}"\n'


async def ended(client: Client, text: str) -> Frame:
    await client.send(text)
    return await client.until_event("turn_ended")


async def test_a_turn_is_refused_in_words_and_the_next_period_goes_on(tmp_path: Path) -> None:
    file = priced("scripted:echo", '[usage]\nreserved_output = 5\n[budgets."*"]\nday = 0.0001\n')
    async with gateway(tmp_path, file=file) as g:
        client = await g.connect()
        refused = await ended(client, "a text that is not short " * 40)
        assert refused["outcome"] == "failed"
        assert refused["error"]["code"] == "budget_spent"
        assert "The budget of owner for today is $0.00010" in refused["error"]["sentence"]
        assert "- the budget of owner by day: $0.00 of $0.00010 (0 %)" in await client.command("/usage")
        body = {"model": "scripted:echo", "messages": [{"role": "user", "content": "word " * 400}]}
        headers = {"Authorization": f"Bearer {TOKEN}"}
        async with g.http.post(f"{g.url}/v1/chat/completions", json=body, headers=headers) as response:
            assert response.status == 429
            assert (await response.json())["error"]["code"] == "insufficient_quota"
    assert [line for line in ledger(tmp_path) if line["kind"] == "request_charged"] == []


async def test_a_person_is_told_once_in_the_chat_when_most_of_their_budget_is_spent(tmp_path: Path) -> None:
    """Of the budget of everybody the owner is told."""
    file = f"""
[agent]
model = "scripted:echo"
[prices."scripted:echo"]
input = 0.0
output = 10.0
[usage]
month = 0.0005
reserved_output = 10
[people.ana]
token = "{ANA}"
[budgets.ana]
day = 0.00035
"""
    async with gateway(tmp_path, file=file) as running:
        owner, ana = await running.connect(), await running.connect(ANA)
        for _ in range(3):
            await ana.chat("x" * 40)  # for ten tokens of ten millionths
        await owner.chat("x" * 40)
        told = {
            who: [event["notice"] for _, event in client.events() if event["kind"] == "model_replied" and "notice" in event]
            for who, client in (("ana", ana), ("owner", owner))
        }
        assert [each.partition(" is spent")[0] for each in told["ana"]] == ["The budget of ana for today"]
        assert [each.partition(" is spent")[0] for each in told["owner"]] == [
            "The budget of everybody together for this month"
        ]


async def test_a_cheaper_model_answers_instead(tmp_path: Path) -> None:
    more = "[usage]\nreserved_output = 5\n" + BUDGET.format(model="scripted:script")
    script = [{"text": "From the cheaper one."}]
    (tmp_path / "script.jsonl").write_text(json.dumps(script[0]) + "\n")
    settings = {"providers.scripted.script": str(tmp_path / "script.jsonl")}
    async with gateway(tmp_path, file=priced("scripted:echo", more), settings=settings) as g:
        client = await g.connect()
        assert await client.chat("a text that is not short " * 40) == "From the cheaper one."


async def test_a_compaction_that_does_not_fit_is_refused_and_leaves_the_conversation_as_it_was(tmp_path: Path) -> None:
    file = priced("scripted:echo", "[usage]\nreserved_output = 5\n")
    async with gateway(tmp_path, file=file) as g:
        client = await g.connect()
        for _ in range(4):
            await client.chat("Some words that fill the conversation. " * 30)
    async with gateway(tmp_path, file=file + '[budgets."*"]\nday = 0.0\n') as g:
        client = await g.connect()
        assert "The budget of owner for today" in await client.command("/compact")
    async with gateway(tmp_path, file=file) as g:
        client = await g.connect()
        assert "Compact Complete" in await client.command("/compact")
        assert await client.chat("hi") == "hi"
