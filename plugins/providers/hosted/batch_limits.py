"""The size of embedding requests: known limits of a server, and those that its refusals reveal; splitting long texts.

A request that may have been refused for its size is split in halves; once they succeed, no larger one is sent again. A
single text that is refused as too long is embedded in pieces, and so is every text of its length from then on.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import TypeAlias

from plugins.providers.hosted.embedding_errors import may_be_too_large
from plugins.support.errors import BadRequest, ContextOverflow, ProviderError
from plugins.support.vector_checks import Vector, unit
from sessions.events.tokens import estimate

MIN_PIECE = 32
"""The minimum length of a piece in characters."""

_GAP = re.compile(r"\s+")

SendBatch: TypeAlias = Callable[[Sequence[str]], Awaitable[list[Vector]]]
"""One request: returns the vectors of some texts. Raises ContextOverflow if they are too many or too long, and BadRequest if
they are refused in other words."""


class BatchLimits:
    """Limits of a request, adjusted by refusals; 0 is unknown: `most` texts with `total` tokens, and `tokens` and
    `characters` of a text. `may_be_too_large` returns True for a refusal of several texts after which fewer are tried."""

    def __init__(
        self,
        *,
        most: int,
        total: int = 0,
        tokens: int = 0,
        characters: int = 0,
        may_be_too_large: Callable[[ProviderError], bool] = may_be_too_large,
    ) -> None:
        self.most = most
        self._may_be_too_large = may_be_too_large
        self._total = total
        self._tokens = tokens
        self._characters = characters
        self._splits = 0

    async def embed(self, texts: Sequence[str], send: SendBatch) -> list[Vector]:
        """Return the vectors of texts of any number and length. Raises what `send` raises, and BadRequest for a text that is
        refused even in short pieces."""
        split = [pieces(text, self._fits) for text in texts]
        vectors = iter(await self._embed_batches([piece for parts in split for piece in parts], send))
        return [mean_vector([next(vectors) for _ in parts], parts) for parts in split]

    def _fits(self, text: str) -> bool:
        if self._characters and len(text) > self._characters:
            return False
        return not self._tokens or estimate(text) <= self._tokens

    async def _embed_batches(self, texts: Sequence[str], send: SendBatch) -> list[Vector]:
        vectors: list[Vector] = []
        while len(vectors) < len(texts):
            # Split again after each request, which may have changed the limits.
            batch = next(batches(texts[len(vectors) :], self.most, self._total))
            vectors += await self._embed_batch(batch, send)
        return vectors

    async def _embed_batch(self, texts: Sequence[str], send: SendBatch) -> list[Vector]:
        try:
            return await send(texts)
        except (ContextOverflow, BadRequest) as error:
            if len(texts) > 1 and self._may_be_too_large(error):
                return await self._embed_halves(texts, send)
            if not isinstance(error, ContextOverflow):
                raise
            return [await self._embed_pieces(texts[0], send, error)]

    async def _embed_halves(self, texts: Sequence[str], send: SendBatch) -> list[Vector]:
        splits, half = self._splits, (len(texts) + 1) // 2
        vectors = await self._embed_batch(texts[:half], send)
        vectors += await self._embed_batches(texts[half:], send)
        if self._splits == splits:  # else the length of one text was the reason
            self.most = min(self.most, half)
        return vectors

    async def _embed_pieces(self, text: str, send: SendBatch, refusal: ContextOverflow) -> Vector:
        if len(text) < 2 * MIN_PIECE:
            raise BadRequest(f"A text of {len(text)} characters was refused as too long. {refusal}") from refusal
        self._splits += 1
        parts = halves(text)
        self._tokens = min(self._tokens or estimate(text), max(estimate(part) for part in parts))
        return mean_vector([vector for part in parts for vector in await self._embed_batches([part], send)], parts)


def batches(texts: Sequence[str], most: int, total: int) -> Iterator[Sequence[str]]:
    """Yield the texts in batches of up to `most` texts and, unless one alone exceeds it, `total` tokens (0: no limit)."""
    start, tokens = 0, 0
    for index, text in enumerate(texts):
        size = estimate(text)
        if index > start and (index - start >= most or (total and tokens + size > total)):
            yield texts[start:index]
            start, tokens = index, 0
        tokens += size
    if texts:
        yield texts[start:]


def pieces(text: str, fits: Callable[[str], bool]) -> list[str]:
    """Split a text into pieces that fit, preferably at white space. Joined, they are the text."""
    if fits(text) or len(text) < 2 * MIN_PIECE:
        return [text]
    return [piece for half in halves(text) for piece in pieces(half, fits)]


def halves(text: str) -> tuple[str, str]:
    """Split a text near its middle, preferably at white space."""
    middle, reach = len(text) // 2, len(text) // 4
    gaps = [gap.end() for gap in _GAP.finditer(text, middle - reach, middle + reach)]
    cut = min(gaps, key=lambda end: abs(end - middle), default=middle)
    return text[:cut], text[cut:]


def mean_vector(vectors: Sequence[Vector], texts: Sequence[str]) -> Vector:
    """Return the vector of a text from those of its pieces: their mean, weighted by length."""
    if len(vectors) == 1:
        return vectors[0]
    weights = [len(text) for text in texts]
    return unit([sum(w * x for w, x in zip(weights, numbers, strict=True)) for numbers in zip(*vectors, strict=True)])
