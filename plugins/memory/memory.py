"""The memory of one workspace, as the gateway and its tools use it. Nothing here blocks the event loop."""

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
from plugins.api.services import Purpose
from plugins.memory.index.indexer import Indexer, IndexState, imported
from plugins.memory.index_errors import IndexRebuilt, IndexUnusable
from plugins.memory.search.diagnostics import nothing_found, remarks_on, without_vectors
from plugins.memory.sources.notes import Notes
from plugins.memory.sources.watcher import Watcher
from plugins.support.errors import ProviderError

if TYPE_CHECKING:
    from plugins.api.memory.memory_backend import Identity, MemoryBackend
    from plugins.memory.index.backend_lifecycle import BackendLifecycle, Kinds
    from plugins.memory.search.search import Hit

T = TypeVar("T")

PATIENCE = 1.0
"""Seconds that a search waits at most for a look at what changed."""

RENEWAL_PATIENCE = 5.0
"""The same where the index is just begun, so that there is nothing else to search in."""

QUERY = 2000
"""Characters of what is searched for. Each word of a query is looked up."""

FEW = 500
"""Documents that are looked at in some milliseconds; where there are more, a search relies on the watching."""


class SearchResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a search found, best first, and what is to be known about it: sentences, none where all is well."""

    hits: tuple[Hit, ...]
    remarks: tuple[str, ...]


class Memory:
    """Use as an async context manager; the configuration says which of the sources count now. The index is opened by whoever
    first asks something of it; a file that was harmed or taken away is made anew. `today` is the day in the person's time
    zone; while `in_use`, no provider is closed. The index rests in one of `backends` or in SQLite, in the file `path`.
    `counted` is told for what which model was given texts of how many estimated tokens."""

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
        counted: Callable[[Purpose, str, int], None] = lambda *_: None,
    ) -> None:
        self._path = path
        self._sources = sources
        self._keys = keys
        self._providers = providers
        self._today = today
        self._backends = backends
        self._opened: BackendLifecycle | None = None
        self._upkeep = Indexer(
            self._file, self._chosen, self.provider, in_use, keys=lambda: keys().embedding, counted=counted
        )
        self._watching = Watcher(self._places, self.wake)
        self._stack = AsyncExitStack()

    async def __aenter__(self) -> Self:
        tasks = await self._stack.enter_async_context(asyncio.TaskGroup())
        self._stack.callback(tasks.create_task(self._upkeep.keep()).cancel)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._stack.__aexit__(None, None, None)
        finally:
            if self._opened:
                await self._opened.close()

    # --- upkeep -------------------------------------------------------------------------------------------------------

    @property
    def state(self) -> IndexState:
        """How far the index is, as is known without asking it."""
        return self._upkeep.state

    def wake(self) -> None:
        """Something that can be found has changed: have it looked at soon, behind everything else."""
        self._upkeep.wake()

    async def watch(self) -> None:
        """Bring the index up to date and keep it so as what is indexed changes, until cancelled."""
        await self._watching.run()

    async def update(self, progress: Callable[[IndexState], None]) -> IndexState:
        """Bring the index up to date, vectors too, telling how far it is; what was done stays done. Raises a ProviderError
        where the vectors cannot be made, or IndexUnusable."""
        self._upkeep.told = progress
        while True:
            await self._upkeep.bring_in()
            try:
                await self._upkeep.embed_all()
            except IndexRebuilt:
                continue
            return self._upkeep.state

    def _places(self) -> WatchedFolders:
        return reduce(or_, (source.watched() for source in self._chosen()), WatchedFolders())

    def _chosen(self) -> list[Source]:
        chosen = self._keys().chosen()
        return [source for source in self._sources if source.name in chosen]

    def _file(self) -> BackendLifecycle:
        from plugins.memory.index.backend_lifecycle import BackendLifecycle  # noqa: PLC0415 - not at the start

        self._opened = self._opened or BackendLifecycle(self._path, self._backends, lambda: self._keys().resting)
        return self._opened

    def problems(self) -> list[str]:
        """What keeps the index from resting where it should, and notes from being found by their meaning, in sentences."""
        found = [self._opened.trouble] if self._opened and self._opened.trouble else []
        if why := self._upkeep.failing if self.provider() else self.why_nobody():
            found.append(f"{without_vectors(by_words=self.by_words)}: {why.rstrip('.')}.")
        if passed_over := self._keys().embedding.passed_over(self._providers):
            found.append(passed_over)
        return found

    # --- searching ----------------------------------------------------------------------------------------------------

    @property
    def by_words(self) -> bool:
        """Whether notes are searched by their words."""
        return self._keys().search.keywords

    def provider(self) -> EmbeddingProvider | None:
        """Who makes vectors now, None for nobody."""
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
        """What the notes in a scope say about something; of a longer text the first `QUERY` characters count.

        It waits no longer than `patience` seconds for what has just changed, never for the rest of what is not indexed yet,
        but says so; one that is not `eager` leaves it to the watching to notice that. The vector of the text is to be there
        `within` so many seconds (None: whenever it is, 0: not at all), or its words alone count. Raises IndexUnusable."""
        await imported()
        from plugins.memory.search.search import Question, rules_of, search  # noqa: PLC0415 - not at the start

        text = text[:QUERY]
        await self._look(patience, eager=eager)
        state, keys, today = self._upkeep.state, self._keys().search, self._today()
        identity, vector, missed = await self._vector_of(text, within)
        question = Question(text=text, scope=scope, identity=identity, vector=vector, by_words=keys.keywords)
        rules = rules_of(keys, results, identity.model if identity else "")

        def answer(index: MemoryBackend) -> tuple[list[Hit], bool]:
            found = search(index, question, rules, multiplier=keys.candidate_multiplier, today=today)
            # An index that was made before notes had owners, or a plugin's that has no eye for them, gives nothing away.
            hits = [hit for hit in found if hit.chunk.source != Notes.name or scope.reads(hit.chunk.path)]
            return hits, index.searches_vectors

        hits, can = await self._read(answer, max(patience, RENEWAL_PATIENCE))
        if vector is not None and not can:
            missed = "there is neither sqlite-vec, which this Python's SQLite cannot load, nor numpy"
        remarks = remarks_on(state, scope, by_vectors=vector is not None and can, missed=missed, by_words=keys.keywords)
        remarks += self.problems()
        return SearchResult(
            hits=tuple(hits), remarks=(*remarks, *(() if hits else [nothing_found(self._upkeep.state, scope)]))
        )

    async def excerpt(self, path: str, first: int, lines: int, scope: Scope) -> str | None:
        """Lines of a document that a search may have named, as `Source.excerpt` has them; None for a path that none of the
        sources can have."""
        for source in self._chosen():
            text = await asyncio.to_thread(source.excerpt, path, first, lines, scope)
            if text is not None:
                return text
        return None

    def may_have(self, sources: Collection[str]) -> bool:
        """Whether there may be something to be found in these sources; not if the last look saw nothing, and the watching
        would have told of more."""
        state = self._upkeep.state
        return state.at is None or bool(self._watching.fault) or any(state.by_source.get(name) for name in sources)

    def has(self, sources: Collection[str]) -> bool:
        """Whether something of these sources surely is in the index: a vector, which may load a model first, is worth it."""
        return any(self._upkeep.state.by_source.get(name) for name in sources)

    async def look(self, patience: float = PATIENCE) -> None:
        """Have it seen that something has just changed; waits no longer than so many seconds until it can be found."""
        await self._upkeep.look(patience)

    async def _look(self, patience: float, *, eager: bool) -> None:
        """Have what just changed seen. Where there are many, it is noticed by the watching instead."""
        state = self._upkeep.state
        if state.at is None or self._watching.fault or (eager and state.documents <= FEW):
            await self._upkeep.look(patience)

    async def _read(self, work: Callable[[MemoryBackend], T], patience: float) -> T:
        try:
            return await self._file().read(work)
        except IndexRebuilt:
            await self._upkeep.look(patience)
        try:
            return await self._file().read(work)
        except IndexRebuilt:
            raise IndexUnusable(self._upkeep.state.trouble or "The memory index is being made anew; ask again.") from None

    async def _vector_of(self, text: str, within: float | None) -> tuple[Identity | None, Sequence[float] | None, str]:
        """The vector of a question with what made it; or why there is none, as the end of a sentence, empty where none is
        wanted."""
        if within == 0:
            return None, None, ""
        if self.provider() is None:
            return None, None, self.why_nobody()
        try:
            async with asyncio.timeout(within):
                identity, (vector,) = await self._upkeep.embedded([text], "query")
        except ProviderError as error:
            return None, None, str(error).rstrip(".")
        except TimeoutError:
            return None, None, f"that of the question took longer than {within} seconds"
        return identity, vector, ""

    def why_nobody(self) -> str:
        """Why nobody makes vectors, as the end of a sentence; empty where nobody is meant to."""
        wanted = self._keys().embedding.wanted
        if wanted == NONE or (wanted is None and self._keys().search.keywords):
            return ""
        if wanted is None:
            return "; ".join(
                f"{name} makes no vectors, since {each.explain_default()}" for name, each in self._providers.items()
            )
        why = self._providers[wanted].explain_default() if wanted in self._providers else "it could not be opened"
        return f"{wanted} makes no vectors, since {why}"
