"""A model in a subprocess: what its library does wrong ends that and not the gateway, and all of its memory comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import assert_never

from plugins.api.services import Purpose
from plugins.providers.local.process import (
    COMMAND,
    Broke,
    Done,
    Load,
    Piece,
    Refused,
    TooLong,
    Vector,
    Worker,
    WorkerGone,
    Working,
)
from plugins.support.embedding.text_splitting import FEWEST, halves, together
from plugins.support.embedding.vector_checks import unit
from plugins.support.errors import BadAnswer, BadRequest, Unreachable


class ModelInProcess:
    """See `plugins.providers.local.embeddings.Engine`. `load` says what the subprocess is to load, when the first text
    comes; `before`
    is what is written before a text that is for something."""

    def __init__(
        self,
        *,
        name: str,
        dimensions: Callable[[], int],
        missing: Callable[[], str | None],
        load: Callable[[], Load],
        environment: Mapping[str, str],
        before: Callable[[Purpose], str] = lambda _: "",
    ) -> None:
        self.name = name
        self.dimensions = dimensions
        self.missing = missing
        self._load = load
        self._environment = environment
        self._before = before
        self._one_at_a_time = asyncio.Lock()
        self._worker: Worker | None = None

    async def vector(self, text: str, purpose: Purpose) -> list[float]:
        """The vector of a text; of one that is too long, the mean of its pieces'. Raises a ProviderError."""
        said = await self._asked(self._before(purpose) + (text if text.strip() else "."), purpose)
        match said:
            case Vector(vector=vector):
                return unit(vector)
            case TooLong(window=window):
                if len(text) < 2 * FEWEST:
                    raise BadRequest(f"The local embedding model reads {window} tokens, which is too few for any note.")
                pieces = halves(text)
                return together([await self.vector(piece, purpose) for piece in pieces], pieces)
            case Refused(sentence=sentence):
                raise BadRequest(f"The local embedding model refuses a text: {sentence}")
            case Broke(sentence=sentence):
                await self.unload()
                raise Unreachable(f"The local embedding model broke off: {sentence}.")
            case Piece() | Working() | Done():
                raise BadAnswer("The local embedding model's process answered as a chat model.")
            case never:
                assert_never(never)

    async def _asked(self, text: str, purpose: Purpose) -> Piece | Working | Done | Vector | TooLong | Refused | Broke:
        text = text.encode("utf-8", "replace").decode()  # half of a pair is no character
        async with self._one_at_a_time:
            try:
                worker = await self._loaded()
                await worker.embed(text, query=purpose == "query")
                return await worker.hear()
            except (WorkerGone, OSError) as error:
                raise Unreachable(f"The local embedding model cannot be used: {error}.") from None

    async def _loaded(self) -> Worker:
        if self._worker and not self._worker.alive:
            await self._worker.end()
            self._worker = None
        self._worker = self._worker or await Worker.start(COMMAND, self._load(), self._environment)
        return self._worker

    async def unload(self) -> None:
        """End the subprocess."""
        async with self._one_at_a_time:
            if self._worker:
                await self._worker.end()
            self._worker = None
