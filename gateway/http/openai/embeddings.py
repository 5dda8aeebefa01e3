"""`POST /v1/embeddings`: vectors by whoever makes the memory's, in OpenAI's form (API reference, "Create embeddings")."""

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
from gateway.support.errors import ModelUnknown
from plugins.api.embedding import EmbeddingProvider
from plugins.memory.memory import Memory
from sessions.events.tokens import estimate

MOST_TEXTS, MOST_TOKENS = 2048, 300_000
"""Texts of a request, and estimated tokens of all together, as at OpenAI."""

AT_ONCE = 16
"""Texts that are asked for at a time, so that the memory's own questions find their turn between."""

Form = Literal["float", "base64"]


class EmbeddingBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A request for vectors. Tokens instead of text are refused: whose they are nobody can know. `user` changes nothing."""

    model: Name
    input: str | Annotated[list[str | int | list[int]], msgspec.Meta(min_length=1, max_length=MOST_TEXTS)]
    encoding_format: Form | None = None
    dimensions: Annotated[int, msgspec.Meta(ge=1)] | None = None
    user: Any = None


class Embeddings:
    """Makes vectors for one gateway. `hold` keeps the providers open while the block runs."""

    def __init__(self, memory: Memory, hold: Callable[[], AbstractContextManager[None]]) -> None:
        self._memory = memory
        self._hold = hold

    def name(self) -> str | None:
        """The `provider:model` that makes them; None if nobody does."""
        provider = self._memory.provider()
        return None if provider is None else f"{provider.name}:{provider.model()}"

    async def answer(self, body: EmbeddingBody) -> web.Response:
        """The vectors of the texts. Raises Refused, ModelUnknown or a ProviderError."""
        texts = _texts(body.input)
        tokens = sum(estimate(text) for text in texts)
        if tokens > MOST_TOKENS:
            raise bad_request(f"input has about {tokens:,} tokens; a request may have {MOST_TOKENS:,}.", "input")
        with self._hold():
            provider = self._provider(body.model)
            _check_dimensions(body.dimensions, provider.dimensions(), body.model)
            vectors = [each for part in _parts(texts) for each in await provider.embed(part, "note")]
        _check_dimensions(body.dimensions, len(vectors[0]), body.model)
        named = f"{provider.name}:{provider.model()}"
        encoded = await asyncio.to_thread(_encoded, named, vectors, body.encoding_format or "float", tokens)
        return web.Response(body=encoded, content_type="application/json", headers=HEADERS)

    def _provider(self, wanted: str) -> EmbeddingProvider:
        provider = self._memory.provider()
        if provider is None:
            why = self._memory.why_nobody() or "memory.embedding.provider is none"
            raise ModelUnknown(f"Nobody makes vectors here: {why.rstrip('.')}.")
        model = provider.model()
        if wanted not in (DEFAULT, model, f"{provider.name}:{model}"):
            raise ModelUnknown(
                f"{wanted[:200]!r} makes no vectors here; {provider.name}:{model} does, as {DEFAULT}"
                " (memory.embedding chooses another)."
            )
        return provider


def _texts(given: str | list[str | int | list[int]]) -> list[str]:
    texts: list[str] = []
    for number, each in enumerate([given] if isinstance(given, str) else given):
        place = "input" if isinstance(given, str) else f"input[{number}]"
        if not isinstance(each, str):
            raise bad_request(f"{place}: send texts, not tokens: models here have tokens of other kinds.", place)
        if not each.strip():
            raise bad_request(f"{place}: a text without a word has no vector.", place)
        texts.append(each)
    return texts


def _check_dimensions(wanted: int | None, made: int, model: str) -> None:
    """Refused where vectors of another length are asked for than are `made`; 0 is not known yet."""
    if wanted is not None and made and wanted != made:
        raise bad_request(
            f"dimensions: {model} gives vectors of {made} numbers here; memory.embedding.dimensions says how many.",
            "dimensions",
        )


def _parts(texts: Sequence[str]) -> list[Sequence[str]]:
    return [texts[start : start + AT_ONCE] for start in range(0, len(texts), AT_ONCE)]


def _encoded(model: str, vectors: Sequence[Sequence[float]], form: Form, tokens: int) -> bytes:
    """The answer's JSON; `tokens` are estimated, since not every provider counts them."""
    data = [
        {"object": "embedding", "index": number, "embedding": _base64(vector) if form == "base64" else list(vector)}
        for number, vector in enumerate(vectors)
    ]
    usage = {"prompt_tokens": tokens, "total_tokens": tokens}
    return msgspec.json.encode({"object": "list", "data": data, "model": model, "usage": usage})


def _base64(vector: Sequence[float]) -> str:
    """A vector as base64 of 32-bit floats, the lower byte first."""
    numbers = array("f", vector)
    if sys.byteorder == "big":
        numbers.byteswap()
    return b64encode(numbers.tobytes()).decode()
