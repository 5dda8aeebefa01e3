"""How much a server takes at once: what is known of it, and what its refusals teach.

Where a request is refused that may hold too much, its halves are asked for instead; once they are taken, no larger one is
sent again. A text that is refused alone as too long is embedded in pieces, and so is every text of its length from then on.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

from plugins.providers.hosted.embedding_errors import may_be_too_much
from plugins.support.embedding.text_splitting import FEWEST, batches, halves, pieces, together
from plugins.support.embedding.vector_checks import Vector
from plugins.support.errors import BadRequest, ContextOverflow, ProviderError
from sessions.events.tokens import estimate

Ask: TypeAlias = Callable[[Sequence[str]], Awaitable[list[Vector]]]
"""One request: the vectors of some texts. It raises ContextOverflow where they are too many or too long, and BadRequest
where they are refused in other words."""


class BatchLimits:
    """`most` is how many texts a request holds, `total` how many tokens, `tokens` and `characters` how many of them one text
    has at most; 0 is unknown. `too_much` says after which refusals of several texts fewer are tried."""

    def __init__(
        self,
        *,
        most: int,
        total: int = 0,
        tokens: int = 0,
        characters: int = 0,
        too_much: Callable[[ProviderError], bool] = may_be_too_much,
    ) -> None:
        self.most = most
        self._too_much = too_much
        self._total = total
        self._tokens = tokens
        self._characters = characters
        self._cuts = 0

    async def embedded(self, texts: Sequence[str], ask: Ask) -> list[Vector]:
        """The vectors of texts of any number and length. Raises what `ask` raises, and BadRequest for a text that is refused
        however short its pieces are."""
        laid_out = [pieces(text, self._fits) for text in texts]
        vectors = iter(await self._several([piece for parts in laid_out for piece in parts], ask))
        return [together([next(vectors) for _ in parts], parts) for parts in laid_out]

    def _fits(self, text: str) -> bool:
        if self._characters and len(text) > self._characters:
            return False
        return not self._tokens or estimate(text) <= self._tokens

    async def _several(self, texts: Sequence[str], ask: Ask) -> list[Vector]:
        done: list[Vector] = []
        while len(done) < len(texts):
            # Laid out anew after each request, which may have taught something.
            portion = next(batches(texts[len(done) :], self.most, self._total))
            done += await self._portion(portion, ask)
        return done

    async def _portion(self, texts: Sequence[str], ask: Ask) -> list[Vector]:
        try:
            return await ask(texts)
        except (ContextOverflow, BadRequest) as error:
            if len(texts) > 1 and self._too_much(error):
                return await self._halved(texts, ask)
            if not isinstance(error, ContextOverflow):
                raise
            return [await self._cut(texts[0], ask, error)]

    async def _halved(self, texts: Sequence[str], ask: Ask) -> list[Vector]:
        cuts, half = self._cuts, (len(texts) + 1) // 2
        vectors = await self._portion(texts[:half], ask)
        vectors += await self._several(texts[half:], ask)
        if self._cuts == cuts:  # else it was refused for the length of one text
            self.most = min(self.most, half)
        return vectors

    async def _cut(self, text: str, ask: Ask, refusal: ContextOverflow) -> Vector:
        if len(text) < 2 * FEWEST:
            raise BadRequest(f"A text of {len(text)} characters is refused as too long. {refusal}") from refusal
        self._cuts += 1
        parts = halves(text)
        self._tokens = min(self._tokens or estimate(text), max(estimate(part) for part in parts))
        return together([vector for part in parts for vector in await self._several([part], ask)], parts)
