"""The embedding provider `local`: a model on this machine, without a key or a network.

By default it is the small bundled one; `memory.embedding.model` selects another installed one, and
`memory.embedding.local_model_path` a GGUF file. It is loaded by the first text and unloaded when it is idle. A query waits
for at most one note that is being embedded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import TracebackType
from typing import ClassVar, Protocol, Self

import structlog

from plugins.api.context import ProviderContext
from plugins.api.memory_settings import LOCAL, EmbeddingKeys
from plugins.api.plugin_services import Purpose
from plugins.providers.local.installable_models import BUNDLED, INSTALLABLE
from plugins.support.errors import SettingsRefused, Unreachable

IDLE_SECONDS = 300.0
"""The time in seconds without a text after which the model is unloaded."""

MAX_QUERY = 2000
"""Maximum characters of a query: only the start and the end of a longer one are embedded, because a person waits."""

log = structlog.get_logger("exuvia.memory")


class Engine(Protocol):
    """The runtime of one model."""

    name: str

    def dimensions(self) -> int:
        """Return the length of its vectors."""
        ...

    def missing(self) -> str | None:
        """Return why it cannot be used, as the end of a sentence; None if it can."""
        ...

    async def vector(self, text: str, purpose: Purpose) -> list[float]:
        """Return the vector of a whole text. Raises a ProviderError."""
        ...

    async def unload(self) -> None:
        """Free its memory; the next text loads it again."""
        ...


class LocalEmbeddings:
    """The `EmbeddingProvider` for local models."""

    name: ClassVar[str] = "local"

    def __init__(self, context: ProviderContext) -> None:
        self._engine, self._missing = _engine(context)
        self._running = 0
        self._queries = 0
        self._no_query = asyncio.Event()
        self._no_query.set()
        self._unload_timer: asyncio.TimerHandle | None = None
        self._unloading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._cancel_unload()
        await self._engine.unload()

    def model(self) -> str | None:
        """Return its name if it can be used."""
        return None if self._engine.missing() else self._engine.name

    def address(self, model: str) -> str:
        """Return an empty address: requests do not leave this machine."""
        return ""

    def explain_default(self) -> str:
        """Return that it can be used, or why a configured file cannot, as the end of a sentence."""
        return self._missing or self._engine.missing() or "it is installed here and needs no key"

    def dimensions(self) -> int:
        return self._engine.dimensions()

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        """Return the vectors of texts. Raises Unreachable if the model is missing or failed."""
        if missing := self._engine.missing():
            raise Unreachable(f"The local embedding model cannot be used: {missing}.")
        self._cancel_unload()
        self._running += 1
        try:
            return await (self._embed_queries(texts) if purpose == "query" else self._embed_notes(texts))
        finally:
            self._running -= 1
            if not self._running:
                self._unload_timer = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._unload)

    async def _embed_queries(self, texts: Sequence[str]) -> list[list[float]]:
        self._queries += 1
        self._no_query.clear()
        try:
            return [await self._engine.vector(_shortened(text), "query") for text in texts]
        finally:
            self._queries -= 1
            if not self._queries:
                self._no_query.set()

    async def _embed_notes(self, texts: Sequence[str]) -> list[list[float]]:
        vectors = []
        for text in texts:
            await self._no_query.wait()
            vectors.append(await self._engine.vector(text, "note"))
        return vectors

    def _unload(self) -> None:
        self._unloading = asyncio.create_task(self._engine.unload())

    def _cancel_unload(self) -> None:
        if self._unload_timer:
            self._unload_timer.cancel()


def _shortened(query: str) -> str:
    return query if len(query) <= MAX_QUERY else f"{query[: MAX_QUERY // 2]}\n{query[-MAX_QUERY // 2 :]}"


def _engine(context: ProviderContext) -> tuple[Engine, str]:
    """Return the runtime of the configured model, and "". If no provider is selected and the configured file cannot be used,
    return the bundled model's runtime, and why: the choice must not change while the provider is open, or vectors of one
    model would be taken for the other's. Raises SettingsRefused."""
    keys: EmbeddingKeys = context.settings
    if keys.local_model_path is not None and keys.model is not None:
        raise SettingsRefused("memory.embedding.model and memory.embedding.local_model_path are both set; remove one.")
    missing = ""
    if keys.local_model_path is not None:
        from plugins.providers.local.gguf import gguf_model  # noqa: PLC0415 - only if one is configured

        engine = gguf_model(keys.local_model_path, context.environment)
        missing = engine.missing() or ""
        if missing:
            log.warning("local_model_missing", reason=missing)
        if keys.provider == LOCAL or not missing:
            return engine, missing
    model = INSTALLABLE.get((keys.model or BUNDLED.name).lower())
    if model is None:
        raise SettingsRefused(f"memory.embedding.model is {keys.model!r}; the local models are {', '.join(INSTALLABLE)}.")
    return model.engine(context.environment), missing
