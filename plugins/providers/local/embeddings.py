"""The embedding provider `local`: a model on this machine, with no key and no network.

Usually that is the small bundled one; `memory.embedding.model` names another that is installed, and
`memory.embedding.local_model_path` any as a GGUF file. It is loaded by the first text, and leaves the memory when it is
idle. A question never waits for more than the one note that is being embedded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Protocol, Self

import structlog

from plugins.api.context import ProviderContext
from plugins.api.memory_settings import LOCAL, EmbeddingKeys
from plugins.api.services import Purpose
from plugins.providers.local.installable_models import BUNDLED, INSTALLABLE, InstallableModel
from plugins.support.errors import SettingsRefused, Unreachable

IDLE_SECONDS = 300.0
"""So long without a text the model stays loaded."""

QUESTION = 2000
"""Characters of a question that are read: of a longer one its beginning and its end. Somebody waits for it, and what a whole
document asks for is said there."""


log = structlog.get_logger("exuvia.memory")


class Engine(Protocol):
    """What runs one model."""

    name: str

    def dimensions(self) -> int:
        """How long its vectors are."""
        ...

    def missing(self) -> str | None:
        """Why it cannot be used, as the end of a sentence; None where it can."""
        ...

    async def vector(self, text: str, purpose: Purpose) -> list[float]:
        """The vector of a text, of which nothing is left out. Raises a ProviderError."""
        ...

    async def unload(self) -> None:
        """Give its memory back; the next text loads it again."""
        ...


class LocalEmbeddings:
    """See the module."""

    name: ClassVar[str] = "local"

    def __init__(self, context: ProviderContext) -> None:
        self._engine, self._missing = _engine(context)
        self._running = 0
        self._questions = 0
        self._nobody_asks = asyncio.Event()
        self._nobody_asks.set()
        self._rest: asyncio.TimerHandle | None = None
        self._unloading: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stay_awake()
        await self._engine.unload()

    def model(self) -> str | None:
        """Its name, where it and what runs it are installed."""
        return None if self._engine.missing() else self._engine.name

    def address(self, model: str) -> str:
        """Return an empty address: nothing is sent to anybody."""
        return ""

    def explain_default(self) -> str:
        """Whether it can be used, or why a configured file is not, as the end of a sentence."""
        return self._missing or self._engine.missing() or "it is installed here and needs no key"

    def dimensions(self) -> int:
        """What the model's file says."""
        return self._engine.dimensions()

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        """The vectors of the texts; Unreachable where the model is not there or broke off."""
        if missing := self._engine.missing():
            raise Unreachable(f"The local embedding model cannot be used: {missing}.")
        self._stay_awake()
        self._running += 1
        try:
            return await (self._answer(texts) if purpose == "query" else self._index(texts))
        finally:
            self._running -= 1
            if not self._running:
                self._rest = asyncio.get_running_loop().call_later(IDLE_SECONDS, self._unload)

    async def _answer(self, texts: Sequence[str]) -> list[list[float]]:
        self._questions += 1
        self._nobody_asks.clear()
        try:
            return [await self._engine.vector(_short(text), "query") for text in texts]
        finally:
            self._questions -= 1
            if not self._questions:
                self._nobody_asks.set()

    async def _index(self, texts: Sequence[str]) -> list[list[float]]:
        vectors = []
        for text in texts:
            await self._nobody_asks.wait()
            vectors.append(await self._engine.vector(text, "note"))
        return vectors

    def _unload(self) -> None:
        self._unloading = asyncio.create_task(self._engine.unload())

    def _stay_awake(self) -> None:
        if self._rest:
            self._rest.cancel()


def _short(question: str) -> str:
    return question if len(question) <= QUESTION else f"{question[: QUESTION // 2]}\n{question[-QUESTION // 2 :]}"


def installed_weights(model: InstallableModel = BUNDLED) -> Path | None:
    """The file with the weights of a model, found without importing anything; None unless all that it needs is installed."""
    return model.weights()


def _engine(context: ProviderContext) -> tuple[Engine, str]:
    """What runs the model that the settings name, and "". Where no provider is named and the configured file cannot be used,
    what runs the bundled model, and why: which of them it is does not change while it is open, or vectors of one would be
    taken for the other's. Raises SettingsRefused."""
    keys: EmbeddingKeys = context.settings
    if keys.local_model_path is not None and keys.model is not None:
        raise SettingsRefused("memory.embedding.model and memory.embedding.local_model_path name two models.")
    missing = ""
    if keys.local_model_path is not None:
        from plugins.providers.local.gguf import gguf_model  # noqa: PLC0415 - only where one is configured

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
