"""The background indexer, which reads changed documents and embeds chunks without vectors.

Both are done in small steps, so that work done is kept whenever it ends, and nobody waits for all of it.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING

import msgspec
import structlog

from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory.source import Source
from plugins.api.plugin_services import IndexUnusable, Purpose
from plugins.memory.index.batching import PLAIN, BatchedEmbedding, EmbeddingFailures
from plugins.memory.index_errors import IndexRebuilt
from plugins.support.errors import BadAnswer, BadRequest, ProviderError, Unreachable
from plugins.support.untrusted import call_failure
from sessions.events.tokens import estimate

if TYPE_CHECKING:
    from plugins.api.memory.memory_backend import Identity, MemoryBackend
    from plugins.api.memory_settings import EmbeddingKeys
    from plugins.memory.index.backend_lifecycle import OpenBackend
    from plugins.memory.index.source_changes import Changes, Due, RefreshResult

AT_ONCE = 50
"""Maximum changed documents that a search waits for; with more it waits for none."""

STEP_SECONDS = 0.25
"""Maximum seconds of indexing before other work is considered."""

BATCH, AHEAD = 16, 320
"""Chunks embedded before their vectors are stored, which a crash loses at most; and chunks looked up at once."""

TRIES = 3
"""Maximum rebuilds of the index in a row."""

REST_SECONDS, LONGEST_REST = 15.0, 900.0
"""Seconds before a failed provider is retried, doubled each time; a change retries it at once."""


_NEEDED = (
    *(f"plugins.memory.index.{name}" for name in ("backend_lifecycle", "index_file", "source_changes")),
    "plugins.memory.search.search",
)

SESSIONS = "sessions"
"""The source of conversations."""

log = structlog.get_logger("exuvia.memory")


class IndexState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the index.

    `left` are documents that are not up to date, `unembedded` chunks without a vector of the current model. `at` is the
    monotonic time of the last check of the sources, None before the first. `trouble` says why the index, `unmade` why
    vectors could not be updated.
    """

    documents: int = 0
    by_source: Mapping[str, int] = {}
    left: int = 0
    chunks: int = 0
    unembedded: int = 0
    unreadable: tuple[str, ...] = ()
    large: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    at: float | None = None
    trouble: str = ""
    unmade: str = ""


class Indexer:
    """The background indexer of one index.

    Args:
        file: Returns the backend.
        sources: Returns the enabled sources.
        provider: Returns the current embedding provider.
        in_use: Keeps providers open while entered.
        keys: Returns the embedding settings.
        counted: Called with the purpose, model and estimated tokens of each embedding request.
    """

    def __init__(
        self,
        file: Callable[[], OpenBackend],
        sources: Callable[[], list[Source]],
        provider: Callable[[], EmbeddingProvider | None],
        in_use: Callable[[], AbstractContextManager[None]],
        *,
        keys: Callable[[], EmbeddingKeys],
        counted: Callable[[Purpose, str, int], None],
    ) -> None:
        self._file = file
        self._sources = sources
        self._provider = provider
        self._in_use = in_use
        self._keys = keys
        self._portioned = BatchedEmbedding(keys)
        self._counted = counted
        self._wanted = asyncio.Event()
        self._more = asyncio.Event()
        self._looking = asyncio.Lock()
        self._embedding = asyncio.Lock()
        self._aside = EmbeddingFailures(self.embedded)
        self._looked: list[asyncio.Future[None]] = []
        self.state = IndexState()
        self.told: Callable[[IndexState], None] = lambda _: None
        """Called whenever the state changes."""
        self.failing = ""
        """Why embedding fails for other reasons than the texts, "" if it does not."""

    def wake(self) -> None:
        """Check the sources for changes soon."""
        self._wanted.set()

    async def refresh(self, patience: float) -> None:
        """Check the sources and index a few changes now, waiting at most `patience` seconds."""
        done = asyncio.get_running_loop().create_future()
        self._looked.append(done)
        self.wake()
        await asyncio.wait({done}, timeout=patience)

    async def keep(self) -> None:
        """Run the indexer until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._keep_looking())
            tasks.create_task(self._keep_embedding())

    async def _keep_looking(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            waiting, self._looked = self._looked, []
            try:
                await self.bring_in(partial(_answer, waiting))
            except IndexUnusable as error:
                self._note(trouble=str(error))
            except Exception as error:  # an error of one source must not stop the indexer
                reason = str(call_failure(error))  # a traceback has no bound
                log.error("memory_not_looked_at", reason=reason)
                self._note(trouble=reason)
            finally:
                _answer(waiting)
            self._more.set()

    # --- documents ----------------------------------------------------------------------------------------------------

    async def bring_in(self, soon: Callable[[], None] = lambda: None) -> None:
        """Index all changes.

        Args:
            soon: Called when there are so many changes that a search should not wait.

        Raises:
            IndexUnusable: The index cannot be used.
        """
        await imported()
        async with self._looking:
            for _ in range(TRIES):
                try:
                    return await self._bring_in(soon)
                except IndexRebuilt:
                    self._note(documents=0, by_source={}, chunks=0)
            raise IndexUnusable("The memory index cannot be used: it is damaged again after each rebuild.")

    async def _bring_in(self, soon: Callable[[], None]) -> None:
        sources = self._sources()
        changes = await self._file().write(partial(_changes, sources=sources))
        due: Sequence[Due] = changes.due
        unreadable: list[str] = []
        self._note(
            documents=changes.documents.total(),
            by_source=changes.documents,
            left=len(due),
            large=changes.large,
            remarks=changes.remarks,
            trouble="",
        )
        self._note(at=time.monotonic())
        if len(due) > AT_ONCE:
            soon()
        if changes.gone:
            await self._file().write(lambda index: index.remove(changes.gone))
        while due:
            taken = await self._file().write(partial(_take_in, due=due))
            due = taken.left
            unreadable += taken.unreadable
            self._note(left=len(due))
            self._more.set()
        if len(changes.due) > AT_ONCE:
            await self._file().write(lambda index: index.optimize())
        self._note(unreadable=tuple(unreadable))
        await self.count()

    async def count(self) -> None:
        """Update the numbers of chunks in the state.

        Raises:
            IndexRebuilt: The index is empty.
            IndexUnusable: The index cannot be used.
        """
        provider = self._provider()
        identity = identity_of(provider) if provider else None
        chunks, unembedded = await self._file().write(lambda index: _sizes(index, identity))
        self._note(chunks=chunks, unembedded=unembedded)

    # --- vectors ------------------------------------------------------------------------------------------------------

    async def _keep_embedding(self) -> None:
        rest = REST_SECONDS
        while True:
            await self._more.wait()
            self._more.clear()
            try:
                if self._is_worth_a_model():
                    await self.embed_all()
                rest = REST_SECONDS
            except ProviderError as error:
                self._note(unmade=str(error))
                self._tell(str(error))
                await self._rest(error.retry_after or rest)
                rest = min(2 * rest, LONGEST_REST)
            except IndexRebuilt:
                self.wake()
            except IndexUnusable as error:
                self._note(trouble=str(error))
            except Exception as error:  # an error of the provider, as above
                reason = str(call_failure(error))
                log.error("memory_not_embedded", reason=reason)
                self._note(unmade=reason)
                await self._rest(rest)

    def _is_worth_a_model(self) -> bool:
        """Return True if there is more than sessions, which are recalled by words: loading a model for them costs too much
        memory."""
        return any(count for name, count in self.state.by_source.items() if name != SESSIONS)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._more.wait()
        except TimeoutError:
            self._more.set()

    async def embed_all(self) -> None:
        """Embed all chunks without a vector.

        Raises:
            ProviderError: The provider failed.
            IndexRebuilt: The index is empty.
            IndexUnusable: The index cannot be used.
        """
        async with self._embedding:
            while await self._embed_some():
                pass
            provider = self._provider()
            self._note(unmade=self._aside.told(identity_of(provider)) if provider else "")
            await self._bound()

    async def _bound(self) -> None:
        """Delete vectors that are no longer needed beyond the limit."""
        provider, most = self._provider(), self._keys().cache
        identity = identity_of(provider) if provider else None
        await self._file().write(lambda index: index.trim_cache(identity, most))

    async def _embed_some(self) -> bool:
        """Embed some chunks, the newest first; return False if there are none."""
        provider = self._provider()
        if provider is None or not await self._file().write(lambda index: index.searches_vectors):
            return False
        identity = identity_of(provider)
        texts = self._aside.without(identity, await self._file().write(lambda index: index.unembedded(identity, AHEAD)))
        await self.count()
        if texts and not identity.dimensions:
            await self.embedded([PLAIN], "query")  # determines the dimensions, which identify the vectors
            return True
        for batch in _batches(texts):
            made_by, vectors = await self._aside.vectors(batch)
            await self._file().write(partial(_keep, identity=made_by, vectors=vectors))
            self._note(unembedded=max(0, self.state.unembedded - len(vectors)), unmade=self._aside.told(made_by))
        return bool(texts)

    async def embedded(self, texts: list[str], purpose: Purpose) -> tuple[Identity, Sequence[Sequence[float]]]:
        """Embed texts with the current provider, and return its identity and the vectors.

        Raises:
            ProviderError: The provider failed.
        """
        with self._in_use():
            if (provider := self._provider()) is None:
                raise Unreachable("There is no embedding provider any more.")
            try:
                vectors = await self._portioned.embedded(provider, texts, purpose)
            except (BadRequest, BadAnswer):
                raise  # may be caused by the texts
            except ProviderError as error:
                self._tell(str(error))
                raise
            self._tell("")
            identity = identity_of(provider)
            self._counted(purpose, identity.model, sum(map(estimate, texts)))
            return identity, vectors

    def _tell(self, failing: str) -> None:
        """Log once that embedding fails, and once that it works again."""
        if failing and failing != self.failing:
            log.warning("embedding_failed", reason=failing, until_then="no notes are compared by their meaning")
        elif self.failing and not failing:
            log.info("embedding_works_again")
        self.failing = failing

    def _note(self, **known: object) -> None:
        self.state = msgspec.structs.replace(self.state, **known)
        self.told(self.state)


async def imported() -> None:
    """Import the modules for indexing and searching in a thread, which takes some 50 ms once."""
    for name in _NEEDED:
        if name not in sys.modules:
            await asyncio.to_thread(importlib.import_module, name)


def identity_of(provider: EmbeddingProvider) -> Identity:
    """Return the identity of a provider's vectors."""
    from plugins.api.memory.memory_backend import Identity  # noqa: PLC0415 - as above

    return Identity(provider=provider.name, model=provider.model() or "", dimensions=provider.dimensions())


def _changes(index: MemoryBackend, sources: Sequence[Source]) -> Changes:
    from plugins.memory.index.source_changes import changes  # noqa: PLC0415 - as above

    return changes(index, sources)


def _take_in(index: MemoryBackend, due: Sequence[Due]) -> RefreshResult:
    from plugins.memory.index.source_changes import take_in  # noqa: PLC0415 - as above

    return take_in(index, due, STEP_SECONDS)


def _sizes(index: MemoryBackend, identity: Identity | None) -> tuple[int, int]:
    _, chunks = index.size()
    return chunks, index.count_unembedded(identity) if identity else chunks


def _batches(texts: Mapping[str, str]) -> Iterator[dict[str, str]]:
    left = list(texts.items())
    yield from (dict(left[at : at + BATCH]) for at in range(0, len(left), BATCH))


def _keep(index: MemoryBackend, *, identity: Identity, vectors: Mapping[str, Sequence[float]]) -> None:
    index.store_vectors(identity, vectors)


def _answer(waiting: list[asyncio.Future[None]]) -> None:
    for done in waiting:
        if not done.done():
            done.set_result(None)
