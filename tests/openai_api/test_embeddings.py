"""Vectors over OpenAI's API: whoever makes those of the memory makes them for programs, too."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import openai
import pytest

from plugins.testing.servers.embedding_server import vector_of
from plugins.testing.servers.faulty_server import Fault
from tests.gateway.gateways import gateway
from tests.openai_api.asking import client_of
from tests.servers.embedding_vendors import OpenAIEmbeddingServer

TEXTS = ["one", "two"]


@asynccontextmanager
async def embedding(
    home: Path, *answers: Any, file: str | None = None, **settings: Any
) -> AsyncIterator[tuple[OpenAIEmbeddingServer, Any]]:
    """The service behind the gateway, and OpenAI's client in front of it."""
    async with OpenAIEmbeddingServer(*answers).serving() as server:
        own = {"provider": "openai", "base_url": server.url, "api_key": server.KEY, "model": server.MODEL} | settings
        wanted = {f"memory.embedding.{name}": value for name, value in own.items()}
        async with gateway(home, settings=wanted, file=file) as g, client_of(g) as client:
            yield server, client


async def test_openais_client_embeds(tmp_path: Path) -> None:
    async with embedding(tmp_path) as (server, client):
        made = await client.embeddings.create(model="exuvia", input=TEXTS)  # it asks for base64 by itself
        plain = await client.embeddings.create(model=server.MODEL, input=TEXTS, encoding_format="float")
        coded = await client.embeddings.create(model="exuvia", input="one", encoding_format="base64")
        one = await client.embeddings.create(model="exuvia", input="one", dimensions=server.dimensions)
        names = [model.id async for model in client.models.list()]
    numbers = [pytest.approx(vector_of(text, server.dimensions), abs=1e-6) for text in TEXTS]
    assert [each.embedding for each in made.data] == numbers
    assert [each.embedding for each in plain.data] == numbers
    assert [each.embedding for each in one.data] == numbers[:1]
    assert isinstance(coded.data[0].embedding, str)
    assert [each.index for each in made.data] == [0, 1]
    assert (made.model, made.usage.prompt_tokens) == (f"openai:{server.MODEL}", 2)
    assert names[-1] == f"openai:{server.MODEL}"


async def test_many_texts_come_back_in_their_order(tmp_path: Path) -> None:
    texts = [f"text {number}" for number in range(50)]
    async with embedding(tmp_path) as (server, client):
        made = await client.embeddings.create(model="exuvia", input=texts)
    assert [each.embedding[0] for each in made.data] == [pytest.approx(vector_of(t, server.dimensions)[0]) for t in texts]


async def test_an_invalid_embedding_request_gets_one_sentence(tmp_path: Path) -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"input": [[1, 2]]}, "send text, not tokens"),
        ({"input": [1, 2]}, "send text, not tokens"),
        ({"input": []}, "length >= 1"),
        ({"input": ["x"] * 2049}, "length <= 2048"),
        ({"input": ["one", " "]}, r"input\[1\]: the text is blank"),
        ({"input": ["lorem ipsum " * 20_000] * 10}, "the limit is 300,000"),
        ({"dimensions": 7}, "dimensions: exuvia has"),
        ({"encoding_format": "hex"}, "'hex'"),
        ({"extra_body": {"input_kind": "x"}}, "Unrecognized request argument supplied: input_kind"),
    ]
    async with embedding(tmp_path) as (server, client):
        await client.embeddings.create(model="exuvia", input="known from here on: how long vectors are")
        for change, words in wrong:
            with pytest.raises(openai.BadRequestError, match=words):
                await client.embeddings.create(**{"model": "exuvia", "input": "one"} | change)
        with pytest.raises(openai.NotFoundError, match=f"openai:{server.MODEL} or exuvia"):
            await client.embeddings.create(model="text-embedding-9", input="one")


async def test_a_failing_embedding_provider_is_a_server_error(tmp_path: Path) -> None:
    async with embedding(tmp_path, Fault(status=401, body=b'{"error": {"message": "No."}}')) as (_, client):
        with pytest.raises(openai.InternalServerError) as caught:
            await client.embeddings.create(model="exuvia", input="one")
        assert (caught.value.status_code, caught.value.code) == (502, "credentials_refused")


async def test_texts_that_do_not_fit_into_a_budget_are_not_embedded(tmp_path: Path) -> None:
    table = f'[prices."openai:{OpenAIEmbeddingServer.MODEL}"]\ninput = 1.0\noutput = 0.0\n'
    budget = '[budgets."*"]\nday = 0.00001\n'  # ten tokens
    async with embedding(tmp_path, file=table + budget) as (server, client):
        await client.embeddings.create(model="exuvia", input="one")
        asked = len(server.requests)
        with pytest.raises(openai.RateLimitError, match="The budget of owner for today") as refused:
            await client.embeddings.create(model="exuvia", input="a text that is longer than that " * 10)
        assert refused.value.code == "insufficient_quota"
        assert len(server.requests) == asked


async def test_without_an_embedding_provider_the_error_says_so(tmp_path: Path) -> None:
    async with gateway(tmp_path, settings={"memory.embedding.provider": "none"}) as g, client_of(g) as client:
        with pytest.raises(openai.NotFoundError, match="No embedding provider is available"):
            await client.embeddings.create(model="exuvia", input="one")
