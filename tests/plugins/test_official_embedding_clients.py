"""The vendors' own Python clients against the fakes of their embeddings: what the clients send and understand, they do too.
from tests.waiting import DEADLINE

Two of the clients are in the extra `wire`, which `make test` installs; the others are large. One that is missing is skipped.
"""

from __future__ import annotations

from typing import Any

import aiohttp
import pytest

from plugins.testing.servers.embedding_server import vector_of
from tests.servers.embedding_vendors import (
    GeminiEmbeddingServer,
    MistralEmbeddingServer,
    OllamaEmbeddingServer,
    OpenAIEmbeddingServer,
    VoyageEmbeddingServer,
)
from tests.waiting import DEADLINE

TEXTS = ["one", "two"]


def expected(dimensions: int, share: float = 1.0) -> list[Any]:
    return [pytest.approx([number * share for number in vector_of(text, dimensions)]) for text in TEXTS]


async def test_openais_client_embeds_with_the_fake() -> None:
    openai = pytest.importorskip("openai", reason="the client of OpenAI is in the extra `wire`")
    async with (
        OpenAIEmbeddingServer().serving() as server,
        openai.AsyncOpenAI(api_key=server.KEY, base_url=server.url, max_retries=0, timeout=DEADLINE) as client,
    ):
        made = await client.embeddings.create(model=server.MODEL, input=TEXTS, dimensions=16)
        assert [entry.embedding for entry in made.data] == expected(16)
        with pytest.raises(openai.NotFoundError, match="does not exist"):
            await client.embeddings.create(model="none-such", input=TEXTS)
        server.most = 1
        with pytest.raises(openai.BadRequestError, match="array too long"):
            await client.embeddings.create(model=server.MODEL, input=TEXTS)


async def test_ollamas_client_embeds_with_the_fake() -> None:
    ollama = pytest.importorskip("ollama", reason="the client of Ollama is in the extra `wire`")
    async with (
        OllamaEmbeddingServer().serving() as server,
        ollama.AsyncClient(host=server.url, headers={"Authorization": f"Bearer {server.KEY}"}) as client,
    ):
        made = await client.embed(model=server.MODEL, input=TEXTS, truncate=False)
        assert [list(vector) for vector in made.embeddings] == expected(8)
        with pytest.raises(ollama.ResponseError, match="not found"):
            await client.embed(model="none-such", input=TEXTS, truncate=False)


@pytest.mark.filterwarnings("ignore:Inheritance class AiohttpClientSession:DeprecationWarning")
async def test_googles_client_embeds_with_the_fake() -> None:
    genai = pytest.importorskip("google.genai", reason="the client of Google is not installed: pip install google-genai")
    async with (
        GeminiEmbeddingServer().serving() as server,
        genai.Client(api_key=server.KEY, http_options={"base_url": server.url}).aio as client,
    ):
        made = await client.models.embed_content(
            model=server.MODEL,
            contents=TEXTS,
            config={"task_type": "RETRIEVAL_DOCUMENT", "output_dimensionality": 16},
        )
        assert [entry.values for entry in made.embeddings] == expected(16, 0.7)
        assert server.purposes == ["RETRIEVAL_DOCUMENT"]


async def test_mistrals_client_embeds_with_the_fake() -> None:
    mistral = pytest.importorskip("mistralai.client", reason="the client of Mistral is not installed: pip install mistralai")
    async with (
        MistralEmbeddingServer().serving() as server,
        mistral.Mistral(api_key=server.KEY, server_url=server.url.removesuffix("/v1")) as client,
    ):
        made = await client.embeddings.create_async(model=server.MODEL, inputs=TEXTS)
        assert [entry.embedding for entry in made.data] == expected(8)


async def test_voyages_client_embeds_with_the_fake() -> None:
    voyage = pytest.importorskip("voyageai", reason="the client of Voyage is not installed: pip install voyageai")
    async with VoyageEmbeddingServer().serving() as server, aiohttp.ClientSession() as session:
        voyage.aiosession.set(session)  # one that it opens itself, it never closes
        client = voyage.AsyncClient(api_key=server.KEY, base_url=server.url)
        made = await client.embed(TEXTS, model=server.MODEL, input_type="document", truncation=False, output_dimension=256)
        assert made.embeddings == expected(256)
        assert server.purposes == ["document"]
