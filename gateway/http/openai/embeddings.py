"""`POST /v1/embeddings`: vectors of the memory's embedding provider, in OpenAI's format ("Create embeddings")."""

from __future__ import annotations

import asyncio
import sys
from array import array
from base64 import b64encode
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from typing import Annotated, Any, Literal

import msgspec
from aiohttp import web

from gateway.http.openai.api_errors import bad_request
from gateway.http.openai.model_names import DEFAULT
from gateway.http.openai.schema import Name
from gateway.http.responses import HEADERS
from gateway.models.spending.spending import Spending
from gateway.models.spending.spending_log import Payer
from gateway.support.errors import ModelUnknown
from plugins.api.embedding import EmbeddingProvider
from plugins.memory.memory import Memory
from sessions.events.tokens import estimate

MOST_TEXTS, MOST_TOKENS = 2048, 300_000
"""The limits of a request: texts, and their estimated tokens in total, as at OpenAI."""

AT_ONCE = 16
"""Texts that are embedded at a time, so that the memory's own queries are served in between."""

Form = Literal["float", "base64"]


class EmbeddingBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for vectors. Tokens instead of text are refused: their tokenizer is unknown. `user` is ignored."""

    model: Name
    input: str | Annotated[list[str | int | list[int]], msgspec.Meta(min_length=1, max_length=MOST_TEXTS)]
    encoding_format: Form | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None
    user: Any = None


class Embeddings:
    """The embeddings endpoint of one gateway. `hold` keeps the providers open while its block runs."""

    def __init__(self, memory: Memory, hold: Callable[[], AbstractContextManager[None]], spending: Spending) -> None:
        self._spending = spending
        self._memory = memory
        self._hold = hold

    def name(self) -> str | None:
        """Return the `provider:model` that embeds; None if there is none."""
        provider = self._memory.provider()
        return None if provider is None else f"{provider.name}:{provider.model()}"

    async def answer(self, body: EmbeddingBody, person: str) -> web.Response:
        """Return the vectors of the texts, and charge them to the person.

        Raises:
            ApiError: The request is invalid.
            ModelUnknown: This model does not embed here.
            ProviderError: The provider failed, or the person's budget is spent.
        """
        texts = _texts(body.input)
        tokens = sum(estimate(text) for text in texts)
        if tokens > MOST_TOKENS:
            raise bad_request(f"input has about {tokens:,} tokens; the limit is {MOST_TOKENS:,}.", "input")
        with self._hold():
            provider = self._provider(body.model)
            _check_dimensions(body.dimensions, provider.dimensions(), body.model)
            await self._spending.check_embedding(provider, tokens, Payer(person))
            vectors = [each for part in _batches(texts) for each in await provider.embed(part, "note")]
            self._spending.charge_embedding(provider, tokens, Payer(person))
        _check_dimensions(body.dimensions, len(vectors[0]), body.model)
        named = f"{provider.name}:{provider.model()}"
        encoded = await asyncio.to_thread(_encoded, named, vectors, body.encoding_format or "float", tokens)
        return web.Response(body=encoded, content_type="application/json", headers=HEADERS)

    def _provider(self, wanted: str) -> EmbeddingProvider:
        provider = self._memory.provider()
        if provider is None:
            why = self._memory.why_no_provider() or "memory.embedding.provider is none"
            raise ModelUnknown(f"No embedding provider is available: {why.rstrip('.')}.")
        model = provider.model()
        if wanted not in (DEFAULT, model, f"{provider.name}:{model}"):
            raise ModelUnknown(
                f"{wanted[:200]!r} is not the embedding model; use {provider.name}:{model} or {DEFAULT}"
                " (memory.embedding selects the model)."
            )
        return provider


def _texts(given: str | list[str | int | list[int]]) -> list[str]:
    texts: list[str] = []
    for number, each in enumerate([given] if isinstance(given, str) else given):
        place = "input" if isinstance(given, str) else f"input[{number}]"
        if not isinstance(each, str):
            raise bad_request(f"{place}: send text, not tokens; the tokenizer may differ.", place)
        if not each.strip():
            raise bad_request(f"{place}: the text is blank.", place)
        texts.append(each)
    return texts


def _check_dimensions(wanted: int | None, made: int, model: str) -> None:
    """Raise ApiError if vectors of another length are wanted than `made`; 0 is unknown."""
    if wanted is not None and made and wanted != made:
        raise bad_request(
            f"dimensions: {model} has {made} dimensions here; memory.embedding.dimensions sets them.",
            "dimensions",
        )


def _batches(texts: Sequence[str]) -> list[Sequence[str]]:
    return [texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE)]


def _encoded(model: str, vectors: Sequence[Sequence[float]], form: Form, tokens: int) -> bytes:
    """Return the response's JSON; `tokens` are estimated, since not every provider counts them."""
    data = [
        {"object": "embedding", "index": number, "embedding": _base64(vector) if form == "base64" else list(vector)}
        for number, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return msgspec.json.encode({"object": "list", "data": data, "model": model, "usage": usage})


def _base64(vector: Sequence[float]) -> str:
    """Return a vector as base64 of little-endian 32-bit floats."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return b64encode(numbers.tobytes()).decode()
