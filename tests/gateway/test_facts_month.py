"""A scripted month of facts: what expires, what stays, what fades; a restart at any moment changes nothing."""

from __future__ import annotations

import random
from datetime import timedelta
from pathlib import Path

import msgspec
import pytest

from plugins.api.fact_values import FactDraft
from plugins.api.memory_settings import FactKeys, MemoryKeys
from plugins.facts.fact_events import FactsDistilled, FactsDropped
from plugins.facts.scoring import current_importance
from tests.gateway.facts_month import AGED, BEGAN, DAYS, EACH_DAY, PINNED, lived, outcome, steps


async def test_a_month_ends_with_a_hundred_facts_including_the_pinned_one(tmp_path: Path) -> None:
    month = await lived(tmp_path / "home")
    book = await month.facts.book()
    kept, daily = book.layer("longterm"), book.layer("daily")
    found = sum(len(about[1]) for _, what, about in steps() if what == "turn") - DAYS * EACH_DAY
    assert found > 150
    assert len(kept) == 100
    pinned = await month.find(PINNED)
    assert (pinned.pinned, current_importance(pinned, month.at)) == (True, 0.3)
    left = sorted(current_importance(fact, month.at) for fact in kept if not fact.pinned)
    assert left[0] > current_importance(pinned, month.at)  # the pin is current_importance least of all and stays
    assert min(fact.created for fact in daily) >= (month.at - timedelta(days=31)).isoformat()
    assert len(daily) < found - 20
    # Each fact was distilled once, in batches of twenty or when a day had passed.
    events = [each.event for fact in (*kept, *daily) for each in (await month.facts.events_of(fact.id, None)).events]
    distilled = [event for event in events if isinstance(event, FactsDistilled)]
    assert book.undistilled() == [fact for fact in daily if fact.created > (month.at - timedelta(days=1)).isoformat()]
    assert distilled
    await month.stop()


async def test_unused_facts_fade_go_stale_and_come_back_with_use(tmp_path: Path) -> None:
    month = await lived(tmp_path / "home")
    aged = await month.find(AGED)
    assert aged.used == ""
    assert current_importance(aged, BEGAN + timedelta(days=30)) == 0.8
    assert current_importance(aged, BEGAN + timedelta(days=60)) == pytest.approx(0.4)
    assert current_importance(aged, BEGAN + timedelta(days=90)) == pytest.approx(0.2)
    (found,) = await month.facts.recall("Petra office door", "ann")
    assert (found.fact.id, found.staleness) == (aged.id, 0.5)
    await month.restart()
    assert await month.facts.recall("Petra office door", "ann") == [found]  # to ask again, or to start again, takes nothing
    await month.stop()


async def test_facts_more_than_sixty_percent_alike_are_kept_once(tmp_path: Path) -> None:
    month = await lived(tmp_path / "home")
    memory = MemoryKeys(facts=FactKeys(cap=1000))
    month.settings.offer(msgspec.structs.replace(month.settings.current, memory=memory))
    (one,) = await month.facts.write([FactDraft(content="alfa brava charla delto echor foxtra", importance=0.9)], "ann")
    # Six words of ten are sixty percent of the union, and not above it; of nine they are.
    (ten,) = await month.facts.write(
        [FactDraft(content="alfa brava charla delto echor foxtra kilowa limaxo mikeno novema")], "ann"
    )
    assert {one.id, ten.id} <= set((await month.facts.book()).facts)
    (gone,) = await month.facts.write([FactDraft(content="alfa brava charla delto echor foxtra golfa hotela indigo")], "ann")
    found = await month.facts.events_of(gone.id, None)
    dropped = found.events[-1].event
    assert isinstance(dropped, FactsDropped)
    assert dropped.why == "duplicate"
    assert one.id in (await month.facts.book()).facts
    await month.stop()


async def test_a_month_with_restarts_at_any_of_its_moments_is_the_same_month(tmp_path: Path) -> None:
    straight = await lived(tmp_path / "straight")
    expected = await outcome(straight)
    await straight.stop()
    count = len(list(steps()))
    for number, restarts in enumerate([range(count), random.Random(3).sample(range(count), 12)]):
        broken = await lived(tmp_path / str(number), list(restarts))
        assert await outcome(broken) == expected
        await broken.stop()
