"""The memory of one workspace, as the gateway and its tools use it: one thread has the index, nothing blocks the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from datetime import date
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec

from plugins.embedding import EmbeddingProvider, Purpose
from plugins.errors import ProviderError, Unreachable
from plugins.memory.errors import IndexUnusable
from plugins.memory.scope import Scope
from plugins.memory.settings import NONE, MemoryKeys
from plugins.memory.sources import Source
from sessions.sqlite import Error

if TYPE_CHECKING:
    from plugins.memory.index import Identity, MemoryIndex
    from plugins.memory.searching import Hit

T = TypeVar("T")

_UNUSABLE: tuple[type[Exception], ...] = (*Error, OSError)

AT_ONCE = 50
"""Changed notes that a search reads before it answers; it does not wait for more."""

BATCH = 16
"""Chunks that are embedded before their vectors are kept: what a crash costs at most."""


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found, best first, and what is to be known about it: sentences, none where all is well."""

    hits: tuple[Hit, ...]
    remarks: tuple[str, ...]


class Indexed(msgspec.Struct, frozen=True, kw_only=True):
    """How far the index is: notes, chunks, and how many of these have no vector yet."""

    notes: int
    chunks: int
    unembedded: int


class Memory:
    """Use as an async context manager; the configuration says which of the sources count now. The index is opened by whoever
    first asks something of it; a file that was harmed or taken away is made anew. `today` is the day in the person's time
    zone; while `in_use`, no provider is closed."""

    def __init__(
        self,
        path: Path,
        sources: Sequence[Source],
        *,
        keys: Callable[[], MemoryKeys],
        providers: Mapping[str, EmbeddingProvider],
        today: Callable[[], date],
        in_use: Callable[[], AbstractContextManager[None]] = nullcontext,
    ) -> None:
        self._path = path
        self._sources = sources
        self._keys = keys
        self._providers = providers
        self._today = today
        self._in_use = in_use
        self._thread: ThreadPoolExecutor | None = None
        self._opened = ExitStack()
        self._index: MemoryIndex | None = None
        self._embedding: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._embedding:
            self._embedding.cancel()
            await asyncio.wait({self._embedding})
        if self._thread:
            await self._run(lambda _: self._opened.close())
            self._thread.shutdown(wait=False)

    def provider(self) -> EmbeddingProvider | None:
        """Who makes vectors now, None for nobody."""
        wanted = self._keys().embedding.wanted
        for name, provider in self._providers.items():
            if wanted in (name, None) and provider.model():
                return provider
        return None

    def _missed(self) -> list[str]:
        """Why nobody makes vectors, where somebody is named who should."""
        wanted = self._keys().embedding.wanted
        if wanted in (None, NONE):
            return []
        why = self._providers[wanted].why() if wanted in self._providers else "it could not be opened"
        return [f"Only words were compared: {wanted} makes no vectors, since {why}."]

    async def search(self, text: str, scope: Scope, *, results: int | None = None) -> Found:
        """What the notes in a scope say about something. It does not wait for what is not indexed yet, but says so. Raises
        IndexUnusable."""
        from plugins.memory.searching import Question, rules_of, search  # noqa: PLC0415 - not at the start

        seen = await self._run(lambda index: index.refresh(self._chosen(), AT_ONCE))
        remarks = list(seen.remarks)
        if seen.left:
            remarks.append(f"{seen.left} notes are not indexed yet.")
        provider = self.provider()
        question = Question(text=text, scope=scope)
        if provider is not None and not await self._run(lambda index: index.searches_vectors):
            remarks.append("Only words were compared: this Python's SQLite loads no extensions.")
        elif provider is not None:
            try:
                identity, (vector,) = await self._embedded([text], "query")
                question = Question(text=text, scope=scope, identity=identity, vector=vector)
                remarks += await self._catch_up(provider)
            except ProviderError as error:
                remarks.append(f"Only words were compared: {error}")
        else:
            remarks += self._missed()
        keys, today = self._keys().search, self._today()
        rules = rules_of(keys, results)
        hits = await self._run(
            lambda index: search(index, question, rules, multiplier=keys.candidate_multiplier, today=today)
        )
        if not hits and not seen.documents:
            remarks.append("There are no notes.")
        return Found(hits=tuple(hits), remarks=tuple(remarks))

    async def excerpt(self, path: str, first: int, lines: int, scope: Scope) -> str | None:
        """Lines of a document that a search may have named, as `Source.excerpt` has them; None for a path that none of the
        sources can have."""
        for source in self._chosen():
            text = await asyncio.to_thread(source.excerpt, path, first, lines, scope)
            if text is not None:
                return text
        return None

    def _chosen(self) -> list[Source]:
        chosen = self._keys().chosen()
        return [source for source in self._sources if source.name in chosen]

    async def _catch_up(self, provider: EmbeddingProvider) -> list[str]:
        """Have what has no vector embedded behind this, and say so."""
        identity = _identity(provider)
        if not await self._run(lambda index: index.unembedded(identity, 1)):
            return []
        if self._embedding is None or self._embedding.done():
            self._embedding = asyncio.create_task(self._embed_quietly())
        return ["The index is behind: some notes are found by their words alone until they are embedded."]

    async def _embed_quietly(self) -> None:
        try:
            await self.update(lambda _: None)
        except (ProviderError, IndexUnusable):
            return  # the next search says what is missing, and begins again

    async def update(self, progress: Callable[[Indexed], None]) -> Indexed:
        """Bring the index up to date, vectors too, telling how far it is; what was done stays done. Raises a ProviderError
        where the vectors cannot be made, or IndexUnusable."""
        await self._run(lambda index: index.refresh(self._chosen()))
        if (provider := self.provider()) and not provider.dimensions():
            await self._embedded(["How long are the vectors?"], "query")
        while True:
            provider = self.provider()
            state, texts = await self._run(partial(self._state, provider=provider))
            progress(state)
            if provider is None or not texts:
                return state
            identity, vectors = await self._embedded(list(texts.values()), "note")
            kept = dict(zip(texts, vectors, strict=True))
            await self._run(lambda index: index.embed(identity, kept))  # noqa: B023 - it has run before the next round

    async def _embedded(self, texts: list[str], purpose: Purpose) -> tuple[Identity, Sequence[Sequence[float]]]:
        """The vectors of texts by whoever makes them now, with what made them. Raises a ProviderError."""
        with self._in_use():
            if (provider := self.provider()) is None:
                raise Unreachable("Nobody makes vectors any more.")
            vectors = await provider.embed(texts, purpose)
            return _identity(provider), vectors

    @staticmethod
    def _state(index: MemoryIndex, *, provider: EmbeddingProvider | None) -> tuple[Indexed, dict[str, str]]:
        notes, chunks = index.size()
        if provider is None or not index.searches_vectors:
            return Indexed(notes=notes, chunks=chunks, unembedded=chunks), {}
        left = index.count_unembedded(_identity(provider))
        return Indexed(notes=notes, chunks=chunks, unembedded=left), index.unembedded(_identity(provider), BATCH)

    async def _run(self, work: Callable[[MemoryIndex], T]) -> T:
        """Do something with the index in its thread, a second time with a new one if the file was harmed."""
        self._thread = self._thread or ThreadPoolExecutor(1, "memory")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, work)
        except _UNUSABLE as error:
            raise IndexUnusable(f"The memory index cannot be used: {error}.") from error

    def _do(self, work: Callable[[MemoryIndex], T]) -> T:
        index = self._there()
        try:
            return work(index)
        except Error as error:
            if "locked" in str(error):
                raise
            self._opened.close()
            self._index = None
            self._path.unlink(missing_ok=True)
            index = self._there()
            index.refresh(self._chosen())
            return work(index)

    def _there(self) -> MemoryIndex:
        from plugins.memory.index import MemoryIndex  # noqa: PLC0415 - as above

        if self._index is not None and not self._path.exists():
            self._opened.close()  # somebody deleted it: what is written now would be lost with it
            self._index = None
        if self._index is None:
            self._index = self._opened.enter_context(MemoryIndex(self._path))
        return self._index


def _identity(provider: EmbeddingProvider) -> Identity:
    from plugins.memory.index import Identity  # noqa: PLC0415 - as above

    return Identity(provider=provider.name, model=provider.model() or "", dimensions=provider.dimensions())
