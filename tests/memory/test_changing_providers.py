"""The embedding provider changes or fails while the gateway runs: vectors are never mixed, and indexing continues."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from operator import mul
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.config.keys import load_config
from gateway.config.settings import Settings
from gateway.conversations.notes.workspace_memory import open_memory
from gateway.models.providers import open_embeddings
from gateway.support.clock import SystemClock
from gateway.support.home import Home
from plugins.api.context import ProviderContext
from plugins.api.memory.scope import EVERYTHING
from plugins.host.loading import load_plugins
from plugins.http.client import Transport
from plugins.memory.memory import Memory
from plugins.support.errors import BadAnswer
from plugins.testing.servers.embedding_server import EmbeddingBehavior, EmbeddingServer, vector_of
from tests.plugins.workspaces import provider_context
from tests.servers.embedding_vendors import MistralEmbeddingServer, OllamaEmbeddingServer, OpenAIEmbeddingServer


class Other(MistralEmbeddingServer):
    """A server whose vectors lie elsewhere, and are as long as those of the first."""

    def given(self, text: str, length: int) -> list[float]:
        return vector_of(f"other {text}", length)


class Running:
    """A memory whose configuration can be changed."""

    def __init__(self, memory: Memory, change: Callable[..., Any]) -> None:
        self.memory = memory
        self.change = change

    async def compared(self, question: str, server: EmbeddingServer) -> int:
        """Return how many of the chunks that were found have a cosine; all vectors must be the server's own."""
        found = await self.memory.search(question, EVERYTHING)
        asked = server.given(question, server.dimensions)
        cosines = {hit.chunk.embedded(): hit.ranked.candidate.cosine for hit in found.hits}
        for text, cosine in cosines.items():
            if cosine is not None:
                own = sum(map(mul, asked, server.given(text, server.dimensions)))
                assert cosine == pytest.approx(own, abs=5e-3)
        return sum(cosine is not None for cosine in cosines.values())

    async def update(self) -> int:
        """Embed what has no vector; returns how many have none afterwards."""
        return (await self.memory.update(lambda _: None)).unembedded


@asynccontextmanager
async def running(folder: Path, *notes: str, **embedding: Any) -> AsyncIterator[Running]:
    """A memory with these notes, as the gateway opens it."""
    home = Home(folder)
    (home.workspace("workspace") / "memory").mkdir(parents=True)
    for number, note in enumerate(notes):
        (home.workspace("workspace") / f"memory/{number}.md").write_text(note)

    def config(**embedding: Any) -> Any:
        return load_config(None, environment={}, overrides={"memory": {"embedding": embedding}})

    settings = Settings(config(**embedding))
    async with Transport() as transport:

        def context(name: str, known: Any) -> ProviderContext:
            return msgspec.structs.replace(
                provider_context(folder), settings=known, environment={}, transport=transport, clock=SystemClock()
            )

        hooks, clock = load_plugins(()), SystemClock()
        async with (
            open_embeddings(hooks.embedding_providers(), context) as providers,
            open_memory(home, settings, providers, hooks.memory_backends, clock) as memory,
        ):

            async def change(**embedding: Any) -> None:
                await providers.reconfigure(config(**embedding))
                settings.offer(config(**embedding))

            await change(**embedding)
            yield Running(memory, change)


def account(provider: str, server: EmbeddingServer) -> dict[str, Any]:
    return {"provider": provider, "base_url": server.url, "api_key": server.KEY}


async def test_vectors_of_two_providers_stand_side_by_side_and_are_never_compared(tmp_path: Path) -> None:
    async with OpenAIEmbeddingServer().serving() as one, Other().serving() as other:
        first, second = account("openai", one), account("mistral", other)
        async with running(tmp_path, "tea in the garden", "tea in the kitchen", **first) as place:
            assert await place.update() == 0
            assert await place.compared("tea?", one) == 2
            made = len(one.taken)

            await place.change(**second)
            await place.compared("tea?", other)
            assert await place.update() == 0
            assert await place.compared("tea?", other) == 2
            assert len(one.taken) == made, "nothing was asked of the one that was left"

            await place.change(**first)
            assert await place.compared("tea?", one) == 2
            assert await place.update() == 0
            assert one.taken[made:] == [["tea?"]], "its vectors were kept: only the question was embedded"


async def test_what_is_on_its_way_when_the_provider_changes_is_kept_as_the_former_ones(tmp_path: Path) -> None:
    slowly = EmbeddingBehavior()
    slowly.delay = 0.1
    async with (
        OpenAIEmbeddingServer(slowly).serving() as one,
        OllamaEmbeddingServer().serving() as other,
        running(tmp_path, "tea", **account("openai", one), dimensions=8) as place,
    ):
        updating = asyncio.create_task(place.memory.update(lambda _: None))
        while not one.answering:
            await asyncio.sleep(0.01)
        await place.change(**account("ollama", other))
        await updating
        assert ["search_document: memory/0\ntea"] in other.taken
        made = list(one.taken)
        await place.change(**account("openai", one), dimensions=8)
        assert await place.update() == 0
        assert one.taken == made == [["memory/0\ntea"]], "what it was making when it was left is its own, and kept"


async def test_a_text_of_which_no_vector_can_be_made_keeps_no_other_from_having_one(tmp_path: Path) -> None:
    class Choosy(OpenAIEmbeddingServer):
        def given(self, text: str, length: int) -> list[float]:
            return [0.0] * length if "poison" in text else super().given(text, length)

    notes = [*(f"note number {number}" for number in range(20)), "the zebra is poison"]
    async with Choosy().serving() as server, running(tmp_path, *notes, **account("openai", server)) as place:
        assert await place.update() == 1
        asked = len(server.requests)
        found = await place.memory.search("zebra", EVERYTHING)
        assert found.hits[0].chunk.text == "the zebra is poison"
        (remark,) = found.remarks
        assert "1 of 21 chunks have no vector yet" in remark
        assert "1 text cannot be embedded, the last one because: openai: The server returned a vector that is all" in remark
        assert await place.update() == 1
        assert len(server.requests) == asked + 1, "the question, and not the text again"


async def test_a_provider_that_makes_no_vector_of_anything_ends_the_update(tmp_path: Path) -> None:
    notes = [f"note number {number}" for number in range(20)]
    zeros = EmbeddingBehavior(lambda vectors: [[0.0] * 8 for _ in vectors])
    async with (
        OpenAIEmbeddingServer(zeros).serving() as server,
        running(tmp_path, *notes, **account("openai", server)) as place,
    ):
        with pytest.raises(BadAnswer, match="all zeros"):
            await place.update()
        assert len(server.requests) <= 8, "the notes and a plain question, each once more; and what is done behind it"
