"""Another value, another behaviour: the keys of the configuration that no other test turns."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.configuration.keys import AgentKeys, CompactionKeys
from gateway.conversations.compaction_rules import compaction_rules
from plugins.conformance.clock import NOON
from plugins.facts.events import FactsExtracted
from plugins.facts.settings import FactKeys
from plugins.facts.values import draft
from plugins.memory.candidates import Candidate
from plugins.memory.ranking import rank
from plugins.memory.searching import rules_of
from plugins.memory.settings import SearchKeys
from sessions.compaction import Rules, Sizes, budget, due, plan
from sessions.messages import AssistantMessage, UserMessage
from tests.facts.test_facts import Home
from tests.gateway.gateways import gateway
from tests.gateway.test_fact_finding import of_kind, until
from tests.stories import view_of

# --- [compaction] -----------------------------------------------------------------------------------------------------

TALK = view_of([message for n in range(20) for message in (UserMessage(text=f"q{n}"), AssistantMessage(text="a"))])
SIZES = Sizes(head=100, messages=(1_000,) * 40)


def figures(**keys: Any) -> Rules:
    """The figures that a configuration amounts to."""
    return compaction_rules(msgspec.convert(keys, CompactionKeys), AgentKeys(), NOON).figures


def trigger(rules: Rules) -> str | None:
    """Why 40,100 tokens in a window of 200,000 would be compacted."""
    return due(40_100, TALK, SIZES, budget(200_000, rules), rules)


def kept(rules: Rules) -> int:
    """How many messages stay where as few as can be are kept."""
    found = plan(TALK, SIZES, budget(200_000, rules), rules, below=180_000, least=True)
    assert found is not None
    return len(TALK) - found.first


@pytest.mark.parametrize(
    ("keys", "observed", "expected"),
    [
        ({"reserve_tokens_floor": 5_000}, lambda rules: budget(200_000, rules).compact_at, (180_000, 195_000)),
        ({"keep_recent_tokens": 700}, lambda rules: budget(200_000, rules).recent, (20_000, 700)),
        ({"keep_recent_messages": 9}, kept, (3, 9)),
        ({"threshold_tokens": 15_000}, trigger, (None, "threshold")),
        ({"ratio": 0.1}, trigger, (None, "ratio")),
        ({"messages": 12}, trigger, (None, "messages")),
        (
            {"memory_flush": {"soft_threshold_tokens": 1_000}},
            lambda rules: budget(200_000, rules).flush_at,
            (176_000, 179_000),
        ),
    ],
)
def test_each_figure_of_compaction_moves_what_it_names(
    keys: dict[str, Any], observed: Callable[[Rules], Any], expected: tuple[Any, Any]
) -> None:
    assert (observed(figures()), observed(figures(**keys))) == expected


@pytest.mark.parametrize("enabled", [True, False])
async def test_a_conversation_is_compacted_before_it_no_longer_fits_only_where_that_is_wanted(
    enabled: bool, tmp_path: Path
) -> None:
    settings = {"compaction.enabled": enabled, "agent.context_window": 2_000, "memory.recall.mode": "off"}
    async with gateway(tmp_path, settings=settings) as running:
        client = await running.connect()
        for number in range(6):
            await client.chat(f"{number} " + "many words " * 60)
        (session,) = running.journals().values()
    assert any(event["kind"] == "compaction_began" for event in session) == enabled


async def test_the_model_that_summarises_may_be_another_than_the_sessions(tmp_path: Path) -> None:
    story = [{"text": "said by the script"}, {"text": "## Goals\n\n- Paint the sky.", "purpose": "summary"}]
    settings = {"agent.model": "scripted:echo", "compaction.model": "scripted:script", "memory.recall.mode": "off"}
    async with gateway(tmp_path, script=story, settings=settings) as running:
        client = await running.connect()
        for number in range(6):
            said = f"question {number} " + "with many words " * 60
            assert await client.chat(said) == said
        assert "**Compact Complete!**" in await client.command("/compact")
        (session,) = running.journals().values()
    (compacted,) = [event for event in session if event["kind"] == "context_compacted"]
    assert compacted["model"] == "scripted:script"


# --- [memory.search] --------------------------------------------------------------------------------------------------

TODAY = date(2026, 11, 21)
OLD = Candidate(key=1, note="a", text="tea with milk", cosine=0.9, phrase=0.2, day=TODAY - timedelta(days=30))
TWIN = Candidate(key=10, note="b", text="tea with milk", cosine=0.85, phrase=0.2, day=TODAY)
WORDS = Candidate(key=20, note="c", text="a kettle", cosine=0.2, phrase=0.9, day=TODAY)


def order(**keys: Any) -> list[int]:
    """The keys of the candidates, best first, by a configuration of the search."""
    keys = {"fusion": "copaw", "temporal_decay": {"enabled": False}, "mmr": {"enabled": False}, **keys}
    return [each.candidate.key for each in rank([OLD, TWIN, WORDS], rules_of(msgspec.convert(keys, SearchKeys)), TODAY)]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, [1, 10, 20]),
        ({"vector_weight": 0.1, "text_weight": 0.9}, [20, 1, 10]),
        ({"temporal_decay": {"enabled": True}}, [10, 20, 1]),
        ({"temporal_decay": {"enabled": True, "half_life_days": 3000.0}}, [1, 10, 20]),
        ({"temporal_decay": {"enabled": True, "share": 0.01}}, [1, 10, 20]),
        ({"mmr": {"enabled": True, "lambda": 0.3}}, [1, 20, 10]),
        ({"mmr": {"enabled": True, "lambda": 1.0}}, [1, 10, 20]),
        ({"min_score": 0.6}, [1, 10]),
        ({"max_results": 1}, [1]),
    ],
)
def test_each_key_of_the_ranking_changes_what_is_found_first(keys: dict[str, Any], expected: list[int]) -> None:
    assert order(**keys) == expected


# --- [memory.facts] ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("days", "there"), [(30, 1), (5, 0)])
async def test_daily_facts_stay_for_as_long_as_is_said(days: int, there: int, tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.keys = FactKeys(retention_days=days)
    async with home.facts() as facts:
        port = draft("The port is 3000.", "fact", [], 0.5)
        await facts.extracted(FactsExtracted(session="s", ordinal=1), [port], owner="ann", origin=None)
        home.days = 10
        await facts.extracted(FactsExtracted(session="s", ordinal=2), [], owner="ann", origin=None)
        assert len(await facts.listed("ann")) == there


async def test_a_fact_that_was_not_used_for_so_long_counts_half(tmp_path: Path) -> None:
    home = Home(tmp_path)
    scores = []
    async with home.facts() as facts:
        await facts.write([draft("The port is 3000.", "fact", [], 0.5)], "model", owner="ann")
        home.days = 10
        for days in (14.0, 5.0):
            home.keys = FactKeys(stale_after_days=days)
            (found,) = await facts.recall("Which port?", "ann")
            scores.append(found.score)
    assert scores[1] == pytest.approx(scores[0] / 2)


@pytest.mark.parametrize("most", [1, 3])
async def test_a_turn_leaves_no_more_facts_than_are_wanted_by_the_model_that_is_named(most: int, tmp_path: Path) -> None:
    rows = [{"content": f"Fact {word}", "type": "fact", "importance": 0.8, "tags": []} for word in ("one", "two", "three")]
    story = [{"text": "from the script"}, {"purpose": "extraction", "text": json.dumps({"facts": rows})}]
    settings = {
        "agent.model": "scripted:echo",
        "memory.facts.model": "scripted:script",
        "memory.facts.max_facts": most,
        "memory.facts.quiet_seconds": 0.05,
        "memory.embedding.provider": "none",
        "memory.recall.mode": "off",
    }
    async with gateway(tmp_path, script=story, settings=settings) as running:
        client = await running.connect()
        await client.chat("My favourite numbers are one, two and three, remember them all.")
        await until(lambda: of_kind(running, "facts_extracted"))
        (event,) = of_kind(running, "facts_extracted")
    assert len(event["entries"]) == most
    assert event["model"] == "scripted:script"
