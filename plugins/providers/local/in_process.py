"""An embedding model in a subprocess: a crash of its library does not end the gateway, and all its memory is freed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import assert_never

from plugins.api.plugin_services import Purpose
from plugins.providers.hosted.batch_limits import MIN_PIECE, halves, mean_vector
from plugins.providers.local import process
from plugins.providers.local.process import Load, Worker
from plugins.support.errors import BadAnswer, BadRequest, Unreachable
from plugins.support.vector_checks import unit


class ModelInProcess:
    """An `Engine` (`plugins.providers.local.embeddings`) in a subprocess. `load` returns what the subprocess loads when the
    first text arrives; `prefix` returns the prefix of a text for a purpose."""

    def __init__(
        self,
        *,
        name: str,
        dimensions: Callable[[], int],
        missing: Callable[[], str | None],
        load: Callable[[], Load],
        environment: Mapping[str, str],
        prefix: Callable[[Purpose], str] = lambda _: "",
    ) -> None:
        self.name = name
        self.dimensions = dimensions
        self.missing = missing
        self._load = load
        self._environment = environment
        self._prefix = prefix
        self._lock = asyncio.Lock()
        self._worker: Worker | None = None

    async def vector(self, text: str, purpose: Purpose) -> list[float]:
        """Return the vector of a text; for one that is too long, the mean of its pieces' vectors. Raises a ProviderError."""
        message = await self._request(self._prefix(purpose) + (text if text.strip() else "."), purpose)
        match message:
            case process.Vector(vector=vector):
                return unit(vector)
            case process.TooLong(window=window):
                if len(text) < 2 * MIN_PIECE:
                    raise BadRequest(f"The local embedding model's window of {window} tokens is too small for any note.")
                pieces = halves(text)
                return mean_vector([await self.vector(piece, purpose) for piece in pieces], pieces)
            case process.Refused(sentence=sentence):
                raise BadRequest(f"The local embedding model refused a text: {sentence}")
            case process.Broke(sentence=sentence):
                await self.unload()
                raise Unreachable(f"The local embedding model failed: {sentence}.")
            case process.Piece() | process.Working() | process.Done():
                raise BadAnswer("The local embedding model's process answered as a chat model.")
            case never:
                assert_never(never)

    async def _request(self, text: str, purpose: Purpose) -> process.WorkerMessage:
        text = text.encode("utf-8", "replace").decode()  # lone surrogates cannot be encoded
        async with self._lock:
            try:
                worker = await self._loaded()
                await worker.embed(text, query=purpose == "query")
                return await worker.receive()
            except (process.WorkerGone, OSError) as error:
                raise Unreachable(f"The local embedding model cannot be used: {error}.") from None

    async def _loaded(self) -> Worker:
        if self._worker and not self._worker.alive:
            await self._worker.end()
            self._worker = None
        self._worker = self._worker or await Worker.start(process.COMMAND, self._load(), self._environment)
        return self._worker

    async def unload(self) -> None:
        """End the subprocess."""
        async with self._lock:
            if self._worker:
                await self._worker.end()
            self._worker = None
