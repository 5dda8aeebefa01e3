"""What `memory_search` is narrowed to, and what either tool shows in a group."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exuvia import PluginContext, ToolFailed
from plugins.api.memory.chunks import Chunk
from plugins.api.memory.source import Listing, Reading
from plugins.api.memory_settings import EmbeddingKeys, MemoryKeys
from plugins.memory.memory import Memory
from plugins.memory.memory_tools import MemoryGet, MemorySearch
from plugins.memory.sources.notes import Notes
from plugins.testing.contexts import NOON, in_memory_services
from tests.memory.places import FakeSource
from tests.plugins.workspaces import call, context

SAID = "sessions/20261101-120000-aaaaaa.jsonl"


class Sessions(FakeSource):
    """A source with the messages of two people about tea, each readable by its author alone."""

    name = "sessions"

    def list_documents(self, known: Mapping[str, str]) -> Listing:
        return Listing(stamps={SAID: "1", SAID.replace("aaaaaa", "bbbbbb"): "1"})

    def read(self, path: str, state: str) -> Reading | None:
        owner = "owner" if path == SAID else "bo"
        text = f"{owner}: green tea\nassistant: noted"
        chunk = Chunk(path=path, first=2, last=6, headings=(), text=text, day="2026-11-01", owner=owner)
        return Reading(chunks=[msgspec.structs.replace(chunk, senders=(owner, "assistant"))])


@pytest.fixture
async def rules(tmp_path: Path) -> AsyncIterator[PluginContext]:
    (tmp_path / "memory").mkdir()
    (tmp_path / "MEMORY.md").write_text("The tea is in the kitchen.\n")
    (tmp_path / "memory/2026-10-01.md").write_text("Black tea today.\n")
    (tmp_path / "memory/2026-11-20.md").write_text("No tea today.\n")
    keys = MemoryKeys(embedding=EmbeddingKeys(provider="none"))
    sources: list[Any] = [Notes(tmp_path), Sessions()]
    async with Memory(tmp_path / "m.sqlite", sources, keys=lambda: keys, providers={}, today=NOON.date) as memory:
        yield msgspec.structs.replace(context(tmp_path), services=in_memory_services(memory=memory))


async def found(rules: PluginContext, *, group: bool = False, **arguments: object) -> set[str]:
    context = msgspec.structs.replace(call(), group=group)
    answer = msgspec.json.decode((await MemorySearch(rules).run({"query": "tea", **arguments}, context)).text)
    return {each["citation"].partition("#")[0].rpartition("/")[2] for each in answer["results"]}


DAYS = {"2026-10-01.md", "2026-11-20.md"}


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({}, {"MEMORY.md", *DAYS, "20261101-120000-aaaaaa.jsonl"}),
        ({"source": "notes"}, {"MEMORY.md", *DAYS}),
        ({"source": "sessions"}, {"20261101-120000-aaaaaa.jsonl"}),
        ({"from": "2026-10-15"}, {"2026-11-20.md", "20261101-120000-aaaaaa.jsonl"}),
        ({"to": "2026-10-15"}, {"2026-10-01.md"}),
        ({"from": "2026-11-20", "to": "2026-11-20"}, {"2026-11-20.md"}),
        ({"sender": "Assistant"}, {"20261101-120000-aaaaaa.jsonl"}),
        ({"sender": "bo"}, set()),
    ],
    ids=lambda value: str(value) if isinstance(value, dict) else "",  # a set has another order in each process
)
async def test_a_search_is_narrowed_by_day_sender_and_source(rules: PluginContext, arguments: Any, names: set[str]) -> None:
    assert await found(rules, **arguments) == names


async def test_in_a_group_neither_tool_shows_what_is_private(rules: PluginContext) -> None:
    assert await found(rules, group=True, source="notes") == DAYS
    group = msgspec.structs.replace(call(), group=True)
    assert msgspec.json.decode((await MemoryGet(rules).run({"path": "MEMORY.md"}, group)).text)["text"] == ""
    assert msgspec.json.decode((await MemoryGet(rules).run({"path": "MEMORY.md"}, call())).text)["text"] != ""


async def test_a_note_is_read_by_the_name_that_its_person_knows_it_by(rules: PluginContext) -> None:
    (rules.workspace / "people" / "bo" / "memory").mkdir(parents=True)
    (rules.workspace / "people/bo/MEMORY.md").write_text("White tea.\n")
    (rules.workspace / "people/bo/memory/tea.md").write_text("Mint tea.\n")
    bo = msgspec.structs.replace(call(), person="bo")
    told = {
        path: msgspec.json.decode((await MemoryGet(rules).run({"path": path}, bo)).text)
        for path in ("MEMORY.md", "memory/tea.md", "people/bo/MEMORY.md", "people/ana/MEMORY.md", "memory/2026-11-20.md")
    }
    assert [each["text"] for each in told.values()] == ["White tea.\n", "Mint tea.\n", "White tea.\n", "", ""]
    assert told["MEMORY.md"]["path"] == "people/bo/MEMORY.md"
    assert told["memory/2026-11-20.md"]["path"] == "people/bo/memory/2026-11-20.md"


@pytest.mark.parametrize("arguments", [{"from": "yesterday"}, {"source": "dreams"}, {"query": ""}, {"to": 7}], ids=str)
async def test_what_cannot_be_meant_is_refused_with_a_reason(rules: PluginContext, arguments: dict[str, object]) -> None:
    with pytest.raises(ToolFailed, match="Invalid arguments"):
        await MemorySearch(rules).run({"query": "tea", **arguments}, call())
