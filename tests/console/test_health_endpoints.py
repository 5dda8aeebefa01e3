"""How the gateway is, over HTTP for its owner; and the ring of samples that the small plots are made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.conversations.routing.switchboard import SwitchboardLoad
from gateway.metrics.counters import Counters
from gateway.metrics.process import LoopLag
from gateway.status import last_hour
from gateway.status.last_hour import KEPT, LastHour
from plugins.testing.contexts import ManualClock
from sessions.events.messages import Usage
from tests.console.asked import ask
from tests.gateway.gateways import gateway

BOB = "a-token-for-bob-that-is-long-enough"


def ring(figures: Counters) -> tuple[LastHour, ManualClock]:
    clock = ManualClock()
    busy = SwitchboardLoad(conversations=2, running=1, waiting=3, subscriptions=1)
    return LastHour(figures, LoopLag(figures.lag_seconds), lambda: busy, clock), clock


def test_a_sample_has_the_increases_since_the_previous_one() -> None:
    figures = Counters()
    figures.turns.add("replied", by=5)
    samples, clock = ring(figures)
    figures.turns.add("replied", by=2)
    figures.turns.add("failed")
    figures.turn_errors.add("overflow")
    figures.provider_errors.add("openai", "rate_limited", by=2)
    figures.messages.add(by=4)
    figures.tokens.add("m", "input", by=100)
    for seconds in (1.0, 3.0):
        figures.steps["answer"].observe(seconds)
    figures.sync_seconds.observe(0.002)
    samples.take()
    clock.move(10)
    samples.take()
    first, second = samples.samples
    assert (first.turns, first.errors, first.messages, first.tokens) == (3, 3, 4, 100)
    assert (first.steps, first.sync, first.syncs) == ({"answer": 2.0}, 0.002, 1)
    assert (first.running, first.waiting) == (1, 3)
    assert first.memory > 1_000_000
    assert (second.turns, second.errors, second.steps, second.sync, second.syncs) == (0, 0, {}, None, 0)
    assert second.at - first.at == 10


def test_samples_of_one_hour_are_kept() -> None:
    samples, clock = ring(Counters())
    for _ in range(KEPT + 5):
        clock.move(last_hour.EVERY)
        samples.take()
    assert len(samples.samples) == KEPT
    assert samples.samples[-1].at - samples.samples[0].at == 3600 - last_hour.EVERY


def test_spent_tokens_are_counted_by_purpose_and_model() -> None:
    figures = Counters()
    for purpose in ("answer", "answer", "summary"):
        figures.count_spent(purpose, "m", Usage(input=10, output=2, cached=4))
    assert figures.spent.counts == {
        ("answer", "m", "input"): 20,
        ("answer", "m", "output"): 4,
        ("answer", "m", "cached"): 8,
        ("summary", "m", "input"): 10,
        ("summary", "m", "output"): 2,
        ("summary", "m", "cached"): 4,
    }


async def test_health_is_for_the_owner_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(last_hour, "EVERY", 0.05)
    settings = {"people.bob.token": BOB, "plugins.allow": ["no-such-plugin"]}
    async with gateway(tmp_path, settings=settings) as running:
        client = await running.connect()
        await client.chat("Good evening")
        health = (await ask(running, "/api/health")).json
        while not any(sample["turns"] for sample in health["samples"]):
            health = (await ask(running, "/api/health")).json
        refused = await ask(running, "/api/health", token=BOB)
        status = (await ask(running, "/status.json")).json
    assert health["overview"].keys() == status.keys()
    assert health["overview"]["turns"]["replied"] == 1
    assert {spent["purpose"] for spent in health["spent"]} == {"answer"}
    taken = next(sample for sample in health["samples"] if sample["turns"])
    assert set(taken["steps"]) <= set(Counters().steps)
    plugins = {plugin["name"]: plugin for plugin in health["plugins"]}
    assert any(plugin["ours"] and plugin["provides"] for plugin in plugins.values())
    assert plugins["no-such-plugin"]["refused"]
    assert refused.status == 403
