"""A model in threads of this process: one for notes and one for questions, so that a question waits for no note."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Protocol

from plugins.services import Purpose


class SentenceModel(Protocol):
    """A loaded model. It blocks, and may be used by two threads at once."""

    def embed(self, texts: Sequence[str], purpose: Purpose) -> list[list[float]]:
        """A vector of length 1 for each text."""
        ...


class ModelInThread:
    """See `plugins.embeddings.local.Engine`. `load` is called in a thread, by the first text."""

    def __init__(
        self, name: str, dimensions: int, missing: Callable[[], str | None], load: Callable[[], SentenceModel]
    ) -> None:
        self.name = name
        self.missing = missing
        self._dimensions = dimensions
        self._load = load
        self._loaded: SentenceModel | None = None
        self._loading = threading.Lock()
        self._threads: dict[Purpose, ThreadPoolExecutor] = {}

    def dimensions(self) -> int:
        return self._dimensions

    async def vector(self, text: str, purpose: Purpose) -> list[float]:
        """The vector of a text."""
        thread = self._threads.setdefault(purpose, ThreadPoolExecutor(1, f"embedding-{purpose}"))
        return await asyncio.get_running_loop().run_in_executor(thread, self._embed, text, purpose)

    def _embed(self, text: str, purpose: Purpose) -> list[float]:
        with self._loading:
            model = self._loaded = self._loaded or self._load()
        return model.embed([text], purpose)[0]

    async def unload(self) -> None:
        """Let the model and the threads go, once what they do now is done; whoever comes meanwhile keeps the model."""
        threads, self._threads = self._threads, {}
        for thread in threads.values():
            await asyncio.to_thread(partial(thread.shutdown, cancel_futures=True))
        if not self._threads:  # not before: what they were doing loads it
            self._loaded = None
