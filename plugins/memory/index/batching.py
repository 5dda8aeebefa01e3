"""Batches of texts for embedding providers, since those of third parties need not split or count texts."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import structlog

from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory_settings import EmbeddingKeys
from plugins.api.plugin_services import Purpose
from plugins.providers.hosted.batch_limits import BatchLimits
from plugins.support.embedding.vector_checks import Vector
from plugins.support.errors import BadAnswer, BadRequest, ContextOverflow, ProviderError

if TYPE_CHECKING:
    from plugins.api.memory.memory_backend import Identity

MOST = 256
"""Maximum texts per request if `batch_size` is not set, the same as for `context.embed`."""

log = structlog.get_logger("exuvia.memory")

Vectors: TypeAlias = Sequence[Sequence[float]]

PLAIN = "How long are the vectors?"
"""A text that every working model can embed."""


class EmbeddingFailures:
    """Embeds texts, and remembers those that failed until the gateway ends; a changed text is a new one."""

    def __init__(self, embedded: Callable[[list[str], Purpose], Awaitable[tuple[Identity, Vectors]]]) -> None:
        self._embedded = embedded
        self._set_aside: dict[tuple[Identity, str], str] = {}

    def without(self, identity: Identity, texts: Mapping[str, str]) -> dict[str, str]:
        """Return the texts, by digest, that have not failed."""
        return {digest: text for digest, text in texts.items() if (identity, digest) not in self._set_aside}

    def told(self, identity: Identity) -> str:
        """Return how many texts failed and why the last one did, "" for none."""
        why = [reason for (of, _), reason in self._set_aside.items() if of == identity]
        return f"No vector can be made of {len(why)}, and of the last because: {why[-1]}" if why else ""

    async def vectors(self, batch: Mapping[str, str]) -> tuple[Identity, dict[str, Sequence[float]]]:
        """Return vectors by digest, without texts that cannot be embedded.

        Raises:
            ProviderError: The provider failed for another reason than the texts.
        """
        try:
            made_by, vectors = await self._embedded(list(batch.values()), "note")
        except (BadRequest, BadAnswer):
            return await self._one_by_one(batch)
        return made_by, dict(zip(batch, vectors, strict=True))

    async def _one_by_one(self, batch: Mapping[str, str]) -> tuple[Identity, dict[str, Sequence[float]]]:
        made_by, _ = await self._embedded([PLAIN], "note")
        found: dict[str, Sequence[float]] = {}
        for digest, text in batch.items():
            try:
                made_by, (found[digest],) = await self._embedded([text], "note")
            except (BadRequest, BadAnswer) as error:
                self._set_aside[made_by, digest] = str(error)
                log.warning("text_without_vector", text=text.partition("\n")[0], reason=str(error))
        return made_by, found


class BatchedEmbedding:
    """Embeds any number of texts of any length within the configured and observed limits of the provider."""

    def __init__(self, keys: Callable[[], EmbeddingKeys]) -> None:
        self._keys = keys
        self._of: tuple[EmbeddingProvider, int, int] | None = None
        self._portions = BatchLimits(most=MOST)

    async def embedded(self, provider: EmbeddingProvider, texts: Sequence[str], purpose: Purpose) -> Sequence[Vector]:
        """Return the vectors of texts.

        Raises:
            ProviderError: The request failed; BadRequest if a text is too long however it is split, never ContextOverflow.
        """

        async def ask(portion: Sequence[str]) -> list[Vector]:
            vectors = await provider.embed(portion, purpose)
            if len(vectors) != len(portion):
                raise BadAnswer(f"{provider.name} gave {len(vectors)} vectors for {len(portion)} texts.")
            return [list(vector) for vector in vectors]

        return await self._fitting(provider).embed(texts, ask)

    def _fitting(self, provider: EmbeddingProvider) -> BatchLimits:
        keys = self._keys()
        of = (provider, keys.batch_size or MOST, keys.max_input_length or 0)
        if of != self._of:
            self._of = of
            self._portions = BatchLimits(most=of[1], characters=of[2], may_be_too_large=_too_much)
        return self._portions


def _too_much(error: ProviderError) -> bool:
    # Built-in providers already retry with less if the reason is unclear.
    return isinstance(error, ContextOverflow)
