"""The memory of one workspace, as used by the gateway and the tools. Nothing here blocks the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from datetime import date
from functools import reduce
from operator import or_
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar

import msgspec

from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory.scope import Scope
from plugins.api.memory.source import Source, WatchedFolders
from plugins.api.memory_settings import NONE, MemoryKeys
from plugins.api.plugin_services import IndexUnusable, Purpose
from plugins.memory.index.embedder import Embedder, reason_of
from plugins.memory.index.indexer import Indexer, IndexRebuilt, IndexState, identity_of, import_search_modules
from plugins.memory.search.diagnostics import nothing_found, outdated, remarks_on, without_vectors
from plugins.memory.sources.notes import LARGEST, ExtraNotes, Notes
from plugins.memory.sources.watcher import Watcher
from plugins.support.errors import ProviderError

if TYPE_CHECKING:
    from plugins.api.memory.memory_backend import Identity, MemoryBackend
    from plugins.memory.index.backend_lifecycle import BackendLifecycle, Kinds
    from plugins.memory.search.search import Hit

T = TypeVar("T")

PATIENCE = 1.0
"""Maximum seconds that a search waits for recent changes to be indexed."""

REBUILD_PATIENCE = 5.0
"""The same while the index is being rebuilt, since there is nothing else to search."""

QUERY_CHARACTERS = 2000
"""Maximum characters of a query, since each of its words is looked up."""

_ERASING = ("sqlite", "local")
"""The backends in whose files nothing remains of what was removed, once they were optimized."""

FEW_DOCUMENTS = 500
"""Maximum documents that are checked for changes by each search; with more, a search relies on the watcher."""


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """The results of a search, best first, and remarks: sentences about limitations, none if all is well."""

    hits: tuple[Hit, ...]
    remarks: tuple[str, ...]


class Memory:
    """The memory of one workspace, as an async context manager.

    The index is opened once there is something to index, and rebuilt if it was damaged or deleted.

    Args:
        path: The SQLite file; other backends store their files next to it.
        sources: All sources; the configuration says which are enabled.
        keys: Returns the current configuration.
        providers: The embedding providers by name.
        today: Returns the current day in the person's time zone.
        in_use: Keeps providers open while entered.
        backends: Returns the backends by name.
        counted: Called with the purpose, the provider and the estimated tokens of each embedding request.
    """

    def __init__(
        self,
        path: Path,
        sources: Sequence[Source],
        *,
        keys: Callable[[], MemoryKeys],
        providers: Mapping[str, EmbeddingProvider],
        today: Callable[[], date],
        in_use: Callable[[], AbstractContextManager[None]] = nullcontext,
        backends: Callable[[], Kinds] = dict,
        counted: Callable[[Purpose, EmbeddingProvider, int], None] = lambda *_: None,
    ) -> None:
        self._path = path
        self._sources = sources
        self._keys = keys
        self._providers = providers
        self._today = today
        self._backends = backends
        self._backend: BackendLifecycle | None = None
        self._indexer = Indexer(self._file, self._enabled_sources, self.provider, self._has_index)
        self._embedder = Embedder(self._indexer, self.provider, in_use, keys=lambda: keys().embedding, counted=counted)
        self._watcher = Watcher(self._watched_folders, self.wake)
        self._idle = asyncio.Event()
        self._idle.set()
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        for running in (self._indexer.run(), self._embedder.run()):
            self._stack.callback(tasks.create_task(running).cancel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._stack.__aexit__(None, None, None)
        finally:
            if self._backend:
                await self._backend.close()

    # --- index --------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> IndexState:
        """The last known state of the index."""
        return self._indexer.state

    def wake(self) -> None:
        """Have changes indexed soon, in the background."""
        self._indexer.wake()

    async def watch(self) -> None:
        """Keep the index up to date as sources change, until cancelled.

        A search that runs is waited for, which the import of the watcher would slow down.
        """
        await self._idle.wait()
        await self._watcher.run()

    async def update(self, progress: Callable[[IndexState], None]) -> IndexState:
        """Bring the index up to date, including vectors, and report the progress. What was done stays done.

        Raises:
            ProviderError: The vectors could not be made.
            IndexUnusable: The index cannot be used.
        """
        self._indexer.on_change = progress
        await self._indexer.update()
        await self._embedder.embed_all()
        return self._indexer.state

    @property
    def erases(self) -> bool:
        """True if nothing remains in the backend's files of what `purge` removes."""
        return self._keys().backend_name in _ERASING

    async def purge(self, paths: Sequence[str]) -> int:
        """Remove documents that no longer exist, with their vectors, and return the number of their chunks.

        Raises:
            IndexUnusable: The index cannot be used.
        """
        if not self._has_files():
            return 0
        await import_search_modules()
        provider = self.provider()
        identity = identity_of(provider) if provider else None

        def remove(index: MemoryBackend) -> int:
            known = index.known()
            _, before = index.size()
            index.remove([path for path in paths if path in known])
            if identity is not None:
                index.trim_cache(identity, 0)
            index.optimize()
            return before - index.size()[1]

        try:
            return await self._file().write(remove)
        except IndexRebuilt:  # from the documents that exist
            return 0
        finally:
            self.wake()

    def _watched_folders(self) -> WatchedFolders:
        return reduce(or_, (source.watched() for source in self._enabled_sources()), WatchedFolders())

    def _enabled_sources(self) -> list[Source]:
        enabled = self._keys().enabled_sources()
        return [source for source in self._sources if source.name in enabled]

    def _has_files(self) -> bool:
        """Return True if a backend has files. Blocks."""
        return any(self._path.parent.glob(f"{self._path.stem}.*"))

    def _has_index(self) -> bool:
        """Return True if the index is open or has files: nothing opens it before there is something to index. Blocks."""
        return self._backend is not None or self._has_files()

    def _file(self) -> BackendLifecycle:
        from plugins.memory.index.backend_lifecycle import BackendLifecycle  # noqa: PLC0415 - not at the start

        self._backend = self._backend or BackendLifecycle(self._path, self._backends, lambda: self._keys().backend_name)
        return self._backend

    def problems(self) -> list[str]:
        """Return sentences about an index that cannot be used or updated, and vectors that cannot be made or stored."""
        found = [self._backend.problem] if self._backend and self._backend.problem else []
        if self._indexer.state.problem:
            found.append(outdated(self._indexer.state))
        if why := (self._embedder.failing or self._embedder.not_stored) if self.provider() else self.why_no_provider():
            found.append(f"{without_vectors(by_words=self.by_words)}: {why.rstrip('.')}.")
        if notice := self._keys().embedding.fallback_notice(self._providers):
            found.append(notice)
        return found

    # --- searching ----------------------------------------------------------------------------------------------------

    @property
    def by_words(self) -> bool:
        """True if notes are searched by keywords."""
        return self._keys().search.keywords

    def provider(self) -> EmbeddingProvider | None:
        """Return the current embedding provider, None for none."""
        return self._keys().embedding.chosen(self._providers)

    async def search(
        self,
        text: str,
        scope: Scope,
        *,
        results: int | None = None,
        patience: float = PATIENCE,
        eager: bool = True,
        within: float | None = None,
    ) -> SearchResult:
        """Search the memory.

        A search waits at most `patience` seconds for recent changes and never for the rest of the index; the remarks say if
        results may be missing.

        Args:
            text: The query; the first `QUERY_CHARACTERS` characters are used.
            scope: What may be found.
            results: Maximum number of results.
            patience: Maximum seconds to wait for recent changes.
            eager: Check the sources for changes first; otherwise rely on the watcher.
            within: Maximum seconds for the vector of the query, after which only keywords are used. None waits for it, 0
                skips it.

        Raises:
            IndexUnusable: The index cannot be used.
        """
        self._idle.clear()
        try:
            return await self._search(text, scope, results=results, patience=patience, eager=eager, within=within)
        finally:
            self._idle.set()

    async def _search(
        self, text: str, scope: Scope, *, results: int | None, patience: float, eager: bool, within: float | None
    ) -> SearchResult:
        checked = await self._refresh(patience, eager=eager)
        if not checked and self._backend is None:
            await import_search_modules()  # the indexer may be at it, and that counts for nobody's patience
            checked = await self._refresh(patience, eager=eager)
        if checked and not self._indexer.state.documents and not await asyncio.to_thread(self._has_index):
            return self._result(self._indexer.state, scope)
        await import_search_modules()
        from plugins.memory.search.search import Question, rules_of, search  # noqa: PLC0415 - not at the start

        text = text[:QUERY_CHARACTERS]
        state, keys, today = self._indexer.state, self._keys().search, self._today()
        identity, vector, missed = await self._vector_of(text, within)
        question = Question(text=text, scope=scope, identity=identity, vector=vector, by_words=keys.keywords)
        rules = rules_of(keys, results, identity.model if identity else "")

        def answer(index: MemoryBackend) -> tuple[list[Hit], bool]:
            found = search(index, question, rules, multiplier=keys.candidate_multiplier, today=today)
            # Checked again here, since an old index or a plugin's backend may ignore the owners of notes.
            hits = [hit for hit in found if hit.chunk.source != Notes.name or scope.reads(hit.chunk.path)]
            return hits, index.searches_vectors

        hits, can = await self._read(answer, max(patience, REBUILD_PATIENCE))
        if vector is not None and not can:
            missed = "neither sqlite-vec, which this Python's SQLite cannot load, nor numpy is available"
        return self._result(state, scope, hits, by_vectors=vector is not None and can, missed=missed)

    def _result(
        self, state: IndexState, scope: Scope, hits: Sequence[Hit] = (), *, by_vectors: bool = False, missed: str = ""
    ) -> SearchResult:
        """Return the hits with remarks; `state` is that of the index before the search."""
        remarks = remarks_on(state, scope, by_vectors=by_vectors, missed=missed, by_words=self.by_words)
        remarks += [problem for problem in self.problems() if problem not in remarks]
        return SearchResult(
            hits=tuple(hits), remarks=(*remarks, *(() if hits else [nothing_found(self._indexer.state, scope)]))
        )

    async def excerpt(self, path: str, first: int, lines: int, scope: Scope) -> str | None:
        """Return lines of a document as `Source.excerpt` does; None for a path that belongs to no source."""
        for source in self._enabled_sources():
            text = await asyncio.to_thread(source.excerpt, path, first, lines, scope)
            if text is not None:
                return text
        return None

    async def added_text(self, path: str, scope: Scope) -> str:
        """Return the text of a file of `extra_paths`, "" for others."""
        for source in self._enabled_sources():
            if source.name == ExtraNotes.name:
                return await asyncio.to_thread(source.excerpt, path, 1, LARGEST, scope) or ""
        return ""

    def may_contain(self, sources: Collection[str]) -> bool:
        """Return False if these sources are certainly empty."""
        state = self._indexer.state
        return state.checked_at is None or bool(self._watcher.fault) or any(state.by_source.get(name) for name in sources)

    def contains(self, sources: Collection[str]) -> bool:
        """Return True if something of these sources is indexed, so that a vector, which may load a model, is worth it."""
        return any(self._indexer.state.by_source.get(name) for name in sources)

    async def refresh(self, patience: float = PATIENCE) -> None:
        """Have recent changes indexed, waiting at most this many seconds."""
        await self._indexer.refresh(patience)

    async def _refresh(self, patience: float, *, eager: bool) -> bool:
        """Check for changes first, unless there are so many documents that this is left to the watcher. Return False if that
        takes longer than `patience` seconds."""
        state = self._indexer.state
        if state.checked_at is None or self._watcher.fault or (eager and state.documents <= FEW_DOCUMENTS):
            return await self._indexer.refresh(patience)
        return True

    async def _read(self, work: Callable[[MemoryBackend], T], patience: float) -> T:
        try:
            return await self._file().read(work)
        except IndexRebuilt:
            await self._indexer.refresh(patience)
        try:
            return await self._file().read(work)
        except IndexRebuilt:
            raise IndexUnusable(self._indexer.state.problem or "The memory index is being rebuilt; try again.") from None

    async def _vector_of(self, text: str, within: float | None) -> tuple[Identity | None, Sequence[float] | None, str]:
        """Return the identity and vector of a query, or why there is none, as the end of a sentence."""
        if within == 0:
            return None, None, ""
        if self.provider() is None:
            return None, None, self.why_no_provider()
        try:
            async with asyncio.timeout(within):
                identity, (vector,) = await self._embedder.embed([text], "query")
        except ProviderError as error:
            return None, None, reason_of(error).rstrip(".")
        except TimeoutError:
            return None, None, f"the query's vector took longer than {within} seconds"
        return identity, vector, ""

    def why_no_provider(self) -> str:
        """Return why no provider is available, as the end of a sentence; "" if none is wanted."""
        wanted = self._keys().embedding.wanted
        if wanted == NONE or (wanted is None and self._keys().search.keywords):
            return ""
        reasons = {
            name: self._providers[name].explain_default() if name in self._providers else "it could not be opened"
            for name in (self._providers if wanted is None else (wanted,))
        }
        return "; ".join(f"{name} is not available, since {reason}" for name, reason in reasons.items())
