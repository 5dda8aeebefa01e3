"""Keys of the configuration that no other test covers: another value changes the behaviour."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner

from gateway.cli.main import cli
from gateway.config.agents import AgentKeys
from gateway.config.keys import CompactionKeys, load_config
from gateway.conversations.context.conversation_config import compaction_rules
from gateway.conversations.notes.workspace_memory import chosen_sources
from gateway.support.home import Home as GatewayHome
from plugins.api.fact_values import draft_fact
from plugins.api.memory_settings import EmbeddingKeys, FactKeys, MemoryKeys, SearchKeys
from plugins.facts.fact_events import FactsExtracted
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.memory import Memory
from plugins.memory.search.candidates import Candidate
from plugins.memory.search.ranking import rank
from plugins.memory.search.search import Question, found_for, rules_of
from plugins.memory.sources.notes import Notes
from plugins.testing.contexts import NOON
from plugins.testing.memory_backend_checks import document
from sessions.events.messages import AssistantMessage, UserMessage
from sessions.state.compaction import Rules, Sizes, budget, compaction_trigger, plan
from tests.facts.test_facts import Home
from tests.gateway.gateways import gateway
from tests.gateway.test_fact_finding import of_kind
from tests.memory.places import Place
from tests.shelf import Shelf
from tests.stories import view_of
from tests.waiting import until

# --- [compaction] -----------------------------------------------------------------------------------------------------

TALK = view_of([message for n in range(20) for message in (UserMessage(text=f"q{n}"), AssistantMessage(text="a"))])
SIZES = Sizes(head=100, messages=(1_000,) * 40)


def figures(**keys: Any) -> Rules:
    """Return the budget of a configuration."""
    return compaction_rules(msgspec.convert(keys, CompactionKeys), AgentKeys(), NOON).thresholds


def trigger(rules: Rules) -> str | None:
    """Return the trigger of a compaction for 40,100 tokens in a window of 200,000."""
    return compaction_trigger(40_100, TALK, SIZES, budget(200_000, rules), rules)


def kept(rules: Rules) -> int:
    """Return the number of messages kept if as few as possible are."""
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


@pytest.mark.parametrize("enabled", [True, False])
async def test_what_leaves_is_flushed_only_where_that_is_wanted(enabled: bool, tmp_path: Path) -> None:
    story = [
        {"text": "said by the script"},
        {"text": "- The sky is painted on Tuesdays.", "purpose": "flush"},
        {"text": "## Goals\n\n- Paint the sky.", "purpose": "summary"},
    ]
    settings = {"compaction.memory_flush.enabled": enabled, "agent.context_window": 2_000, "memory.recall.mode": "off"}
    async with gateway(tmp_path, script=story, settings=settings) as running:
        client = await running.connect()
        for number in range(6):
            await client.chat(f"question {number} " + "with many words " * 60)
        await client.command("/compact")
        await client.command("/new")  # which flushes too
        session = next(iter(running.journals().values()))
    kinds = [event["kind"] for event in session]
    asked = {event["purpose"] for event in session if event["kind"] == "request_sent"}
    notes = "".join(path.read_text() for path in (tmp_path / "workspace" / "memory").glob("*.md"))
    assert "context_compacted" in kinds
    assert ("memory_flushed" in kinds, "flush" in asked) == (enabled, enabled)
    assert ("The sky is painted on Tuesdays." in notes, "note_appended" in kinds) == (enabled, enabled)


# --- [memory.search] --------------------------------------------------------------------------------------------------

TODAY = date(2026, 11, 21)
OLD = Candidate(key=1, note="a", text="tea with milk", cosine=0.9, phrase=0.2, day=TODAY - timedelta(days=30))
TWIN = Candidate(key=10, note="b", text="tea with milk", cosine=0.85, phrase=0.2, day=TODAY)
WORDS = Candidate(key=20, note="c", text="a kettle", cosine=0.2, phrase=0.9, day=TODAY)


def order(**keys: Any) -> list[int]:
    """Return the keys of the candidates, best first, for a configuration of the search."""
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


@pytest.mark.parametrize(("multiplier", "looked_at"), [(1, 2), (5, 10)])
def test_so_many_candidates_are_looked_at_for_each_result(multiplier: int, looked_at: int, tmp_path: Path) -> None:
    keys = SearchKeys(candidate_multiplier=multiplier)
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        index.store(document(f"memory/{number}.md", f"tea number {number}") for number in range(30))
        asked = Question(text="tea")
        _, candidates = found_for(index, asked, results=2, multiplier=keys.candidate_multiplier, today=TODAY)
        assert len(candidates) == looked_at


# --- the rest of [memory] ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sources", [["notes"], ["sessions"], ["notes", "sessions"]])
def test_what_is_searched_is_what_the_sources_name(sources: list[str], tmp_path: Path) -> None:
    config = load_config(None, environment={}, overrides={"memory": {"sources": sources}})
    assert [source.name for source in chosen_sources(GatewayHome(tmp_path), config)] == sources


@pytest.mark.parametrize(("cache", "embedded"), [(50_000, 2), (0, 3)])
async def test_vectors_of_what_no_note_says_are_kept_up_to_the_size_of_the_cache(
    cache: int, embedded: int, tmp_path: Path
) -> None:
    place = Place(tmp_path)
    keys = MemoryKeys(embedding=EmbeddingKeys(provider="counted", cache=cache))
    async with Memory(
        place.file,
        [Notes(place.workspace)],
        keys=lambda: keys,
        providers={"counted": place.provider},
        today=lambda: TODAY,
    ) as memory:
        for text in ("We fly to Lisbon.", "We fly to Porto.", "We fly to Lisbon."):
            place.put("memory/a.md", text)
            await memory.update(lambda _: None)
    assert len(place.provider.texts) == embedded


ALIKE = """
from exuvia import hookimpl

class Alike:
    name = "alike"
    def __init__(self, context): pass
    async def __aenter__(self): return self
    async def __aexit__(self, *_): pass
    def model(self): return "one"
    def explain_default(self): return "it is always there"
    def dimensions(self): return 2
    async def embed(self, texts, purpose): return [[1.0, 0.0] for _ in texts]

@hookimpl
def register_embedding_providers():
    return [Alike]
"""


@pytest.mark.parametrize(("said", "recalled"), [({}, False), ({"memory.recall.min_cosine": 0.9}, True)])
async def test_the_least_cosine_of_a_relevant_note_is_configurable(
    said: dict[str, Any], recalled: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Shelf(tmp_path / "shelf", monkeypatch).install("aliking", "alike", ALIKE)
    home = tmp_path / "home"
    file = '[plugins]\nallow = ["alike"]\n[memory.embedding]\nprovider = "alike"\n'
    (home / "workspace" / "memory").mkdir(parents=True)
    (home / "workspace" / "memory" / "garden.md").write_text("The crocuses stand behind the shed.\n")
    (home / "config.toml").write_text(file)
    indexed = await asyncio.to_thread(CliRunner().invoke, cli, ["memory", "index", "--home", str(home)])
    assert indexed.exit_code == 0, indexed.output
    settings = {"plugins.allow": ["alike"], "memory.embedding.provider": "alike", **said}
    async with gateway(home, settings=settings) as running:
        client = await running.connect()
        await client.command("/memory crocuses")  # the index is open from here on
        await client.chat("Which flowers do we have?")
        (session,) = running.journals().values()
    assert any(event["kind"] == "memory_recalled" for event in session) == recalled


# --- [memory.facts] ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("days", "there"), [(30, 1), (5, 0)])
async def test_daily_facts_stay_for_as_long_as_is_said(days: int, there: int, tmp_path: Path) -> None:
    home = Home(tmp_path)
    home.keys = FactKeys(retention_days=days)
    async with home.facts() as facts:
        port = draft_fact("The port is 3000.", "fact", [], 0.5)
        await facts.extracted(FactsExtracted(session="s", ordinal=1), [port], owner="ann", origin=None)
        home.days = 10
        await facts.extracted(FactsExtracted(session="s", ordinal=2), [], owner="ann", origin=None)
        assert len(await facts.listed("ann")) == there


async def test_a_fact_that_was_not_used_for_so_long_counts_half(tmp_path: Path) -> None:
    home = Home(tmp_path)
    scores = []
    async with home.facts() as facts:
        await facts.write([draft_fact("The port is 3000.", "fact", [], 0.5)], "model", owner="ann")
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


# --- [agent] ----------------------------------------------------------------------------------------------------------


async def test_the_models_instructions_are_those_that_are_configured(tmp_path: Path) -> None:
    settings = {"agent.instructions": "You are a patient teacher.", "agent.temperature": 0.25}
    async with gateway(tmp_path, settings=settings) as running:
        client = await running.connect()
        await client.chat("hello")
        (session,) = running.journals().values()
    (told,) = [event for event in session if event["kind"] == "instructions_set"]
    assert told["text"].startswith("You are a patient teacher.\n")
    assert told["parameters"] == {"temperature": 0.25}


async def test_people_see_times_as_their_clocks_show_them(tmp_path: Path) -> None:
    shown = []
    for number, timezone in enumerate(("Pacific/Kiritimati", "Pacific/Pago_Pago")):
        async with gateway(tmp_path / str(number), settings={"agent.timezone": timezone}) as running:
            client = await running.connect()
            await client.chat("hello")
            shown.append(await client.command("/history"))
    assert shown[0] != shown[1]
