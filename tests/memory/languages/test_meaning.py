"""Notes are found by what they mean: in other words by the bundled model, in another language by the multilingual one."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from pathlib import Path

from plugins.api.memory.scope import EVERYTHING
from plugins.api.memory_settings import EmbeddingKeys, MemoryKeys
from plugins.memory.memory import Memory
from plugins.memory.sources.notes import Notes
from plugins.providers.local.embeddings import LocalEmbeddings
from plugins.providers.local.installable_models import BUNDLED, MULTILINGUAL
from tests.memory.languages.notes import read_notes
from tests.plugins.test_local_embeddings import context, needs_bundled, needs_multilingual

DISTRACTORS = {
    "memory/cooking.md": "The lasagna needs forty minutes at 180 degrees.\n",
    "memory/travel.md": "The ferry to the island leaves at seven from the old port.\n",
    "memory/team.md": "Maria leads the design team since August, Tom went to sales.\n",
    "memory/garden.md": "Water the tomatoes in the evening, never at noon.\n",
    "memory/meeting.md": "The weekly meeting was moved from Monday to Wednesday.\n",
    "memory/printer.md": "The printer on the second floor jams with thick paper.\n",
}

MEANT = {
    "memory/choice.md": ("Finally decided to replace MySQL with PostgreSQL", "Database choice for the project"),
    "memory/builds.md": ("Configured incremental compilation to avoid full builds", "How to reduce unnecessary rebuilds"),
    "memory/speed.md": ("Optimized P99 latency from 800ms to 200ms", "Performance issue discussed last time"),
    "memory/host.md": ("The machine running the gateway", "Mac Studio gateway host"),
}

WRITTEN = {
    "memory/socket.md": ("handleWebSocketReconnect", "handleWebSocketReconnect failure to reconnect"),
    "memory/refused.md": ("The proxy says ECONNREFUSED after the restart", "ECONNREFUSED"),
}


def memory_of(folder: Path, provider: LocalEmbeddings | None, notes: Mapping[str, str]) -> Memory:
    """The memory of a workspace with these notes."""
    (folder / "workspace/memory").mkdir(parents=True)
    for path, text in notes.items():
        (folder / "workspace" / path).write_text(text)
    keys = MemoryKeys(embedding=EmbeddingKeys(provider="local" if provider else "none"))
    return Memory(
        folder / "memory.sqlite",
        [Notes(folder / "workspace")],
        keys=lambda: keys,
        providers={"local": provider} if provider else {},
        today=lambda: date(2026, 11, 21),
    )


async def first(memory: Memory, question: str) -> str:
    return (await memory.search(question, EVERYTHING)).hits[0].chunk.path


@needs_bundled
async def test_the_bundled_model_finds_what_is_meant_in_other_words(tmp_path: Path) -> None:
    notes = {path: note for path, (note, _) in {**MEANT, **WRITTEN}.items()}
    async with LocalEmbeddings(context()) as provider, memory_of(tmp_path, provider, {**DISTRACTORS, **notes}) as memory:
        assert (await memory.update(lambda _: None)).unembedded == 0
        for path, (_, question) in {**MEANT, **WRITTEN}.items():
            assert await first(memory, question) == path, question


async def test_exact_words_need_no_model(tmp_path: Path) -> None:
    notes = {path: note for path, (note, _) in {**MEANT, **WRITTEN}.items()}
    async with memory_of(tmp_path, None, {**DISTRACTORS, **notes}) as memory:
        for path, (_, question) in WRITTEN.items():
            assert await first(memory, question) == path, question


@needs_multilingual
async def test_the_multilingual_model_finds_notes_by_questions_in_another_language(tmp_path: Path) -> None:
    notes = read_notes()
    asked, missed = 0, []
    settings = context(provider="local", model=MULTILINGUAL.name)
    async with (
        LocalEmbeddings(settings) as provider,
        memory_of(tmp_path, provider, {note.path: note.text + "\n" for note in notes}) as memory,
    ):
        assert (await memory.update(lambda _: None)).unembedded == 0
        for note in notes:
            if note.cross:
                asked += 1
                found = [hit.chunk.path for hit in (await memory.search(note.cross, EVERYTHING, results=5)).hits]
                if note.path not in found:
                    missed.append((note.note, note.cross, found))
    assert len(missed) <= 0.2 * asked, missed


def test_each_model_says_what_to_install() -> None:
    for model in (BUNDLED, MULTILINGUAL):
        assert model.weights() or model.extra in str(model.missing())
