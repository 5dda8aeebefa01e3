"""Texts in portions that whoever makes vectors takes: strangers' providers need not cut or count, ours do so themselves."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from plugins.embedding import EmbeddingProvider
from plugins.embeddings.portions import Portions
from plugins.embeddings.vectors import Vector
from plugins.errors import BadAnswer, ContextOverflow, ProviderError
from plugins.memory.settings import EmbeddingKeys
from plugins.services import Purpose

MOST = 256
"""Texts at once where `batch_size` says nothing: as many as `house.embed` gives."""


class Portioned:
    """`keys` say how many texts are given at once, and how long one may be; what a provider refuses as too long says more,
    which is remembered as long as the same one is asked."""

    def __init__(self, keys: Callable[[], EmbeddingKeys]) -> None:
        self._keys = keys
        self._of: tuple[EmbeddingProvider, int, int] | None = None
        self._portions = Portions(most=MOST)

    async def embedded(self, provider: EmbeddingProvider, texts: Sequence[str], purpose: Purpose) -> Sequence[Vector]:
        """The vectors of texts of any number and length. Raises a ProviderError; a BadRequest for a text that is too long
        in however short pieces, and never a ContextOverflow."""

        async def ask(portion: Sequence[str]) -> list[Vector]:
            vectors = await provider.embed(portion, purpose)
            if len(vectors) != len(portion):
                raise BadAnswer(f"{provider.name} gave {len(vectors)} vectors for {len(portion)} texts.")
            return [list(vector) for vector in vectors]

        return await self._fitting(provider).embedded(texts, ask)

    def _fitting(self, provider: EmbeddingProvider) -> Portions:
        keys = self._keys()
        of = (provider, keys.batch_size or MOST, keys.max_input_length or 0)
        if of != self._of:
            self._of = of
            self._portions = Portions(most=of[1], characters=of[2], too_much=_too_much)
        return self._portions


def _too_much(error: ProviderError) -> bool:
    # Ours have tried less already where a refusal says nothing of why.
    return isinstance(error, ContextOverflow)
