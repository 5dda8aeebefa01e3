"""Keeps the index up to date behind everything else: what changed is read again, what has no vector is embedded.

Both go in small steps, so that what was done stays done whenever it ends, and nobody waits for the whole.
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
from plugins.api.services import Purpose
from plugins.memory.index.batching import PLAIN, BatchedEmbedding, EmbeddingFailures
from plugins.memory.index_errors import IndexRebuilt, IndexUnusable
from plugins.support.errors import BadAnswer, BadRequest, ProviderError, Unreachable
from sessions.events.tokens import estimate

if TYPE_CHECKING:
    from plugins.api.memory.memory_backend import Identity, MemoryBackend
    from plugins.api.memory_settings import EmbeddingKeys
    from plugins.memory.index.backend_lifecycle import OpenBackend
    from plugins.memory.index.source_changes import Changes, Due, RefreshResult

AT_ONCE = 50
"""Changed documents that a search waits for; it waits for none if there are more."""

STEP_SECONDS = 0.25
"""How long documents are taken in between two looks at what else is to be done."""

BATCH, AHEAD = 16, 320
"""Chunks that are embedded before their vectors are kept, which is what a crash costs at most; and how many are looked up
at once."""

TRIES = 3
"""How often the index is made anew in one go."""

REST_SECONDS, LONGEST_REST = 15.0, 900.0
"""How long a provider that failed is left alone, twice as long each time; what changes has it asked all the same."""


_NEEDED = (
    *(f"plugins.memory.index.{name}" for name in ("backend_lifecycle", "index_file", "source_changes")),
    "plugins.memory.search.search",
)

SESSIONS = "sessions"
"""The source of what was said."""

log = structlog.get_logger("exuvia.memory")


class IndexState(msgspec.Struct, frozen=True, kw_only=True):
    """How far the index is: how many documents there are (`by_source` by the names of their sources) and how many of them
    are not indexed as they are now, chunks, and how many of these have no vector by whoever makes them now. `at` is when the
    sources were looked at last, in monotonic seconds; None before the first time. `trouble` is why the index, `unmade` why
    vectors could not be made."""

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
    """The upkeep of one index. `provider` is who makes vectors now; while `in_use`, no provider is closed. `keys` say how
    much it is given at once, and how many vectors are kept that no chunk needs. `counted` is told for what which model was
    given texts of how many estimated tokens."""

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
        """Who is told whenever something of that changes."""
        self.failing = ""
        """Why the last texts got no vectors, where that was not for what stands in them."""

    def wake(self) -> None:
        """Have the sources looked at soon."""
        self._wanted.set()

    async def look(self, patience: float) -> None:
        """Have the sources looked at now, and what little has changed taken in; waits no longer than so many seconds."""
        done = asyncio.get_running_loop().create_future()
        self._looked.append(done)
        self.wake()
        await asyncio.wait({done}, timeout=patience)

    async def keep(self) -> None:
        """Do what is wanted whenever it is, until cancelled."""
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
            except Exception as error:  # a source's own; nobody else's work may end with it
                sentence = f"{type(error).__name__}: {error}"
                log.error("memory_not_looked_at", reason=sentence, exc_info=not isinstance(error, OSError))
                self._note(trouble=sentence)
            finally:
                _answer(waiting)
            self._more.set()

    # --- documents ----------------------------------------------------------------------------------------------------

    async def bring_in(self, soon: Callable[[], None] = lambda: None) -> None:
        """Take in all that changed; `soon` is called when it is known to be much, as what waits for it need not wait
        longer. Raises IndexUnusable."""
        await imported()
        async with self._looking:
            for _ in range(TRIES):
                try:
                    return await self._bring_in(soon)
                except IndexRebuilt:
                    self._note(documents=0, by_source={}, chunks=0)
            raise IndexUnusable("The memory index cannot be used: it is harmed again as soon as it is made.")

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
            await self._file().write(lambda index: index.forget(changes.gone))
        while due:
            taken = await self._file().write(partial(_take_in, due=due))
            due = taken.left
            unreadable += taken.unreadable
            self._note(left=len(due))
            self._more.set()
        if len(changes.due) > AT_ONCE:
            await self._file().write(lambda index: index.settle())
        self._note(unreadable=tuple(unreadable))
        await self.count()

    async def count(self) -> None:
        """Note how much there is. Raises IndexRenewed, IndexUnusable."""
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
            except Exception as error:  # a provider's own, as above
                log.exception("memory_not_embedded")
                self._note(unmade=f"{type(error).__name__}: {error}")
                await self._rest(rest)

    def _is_worth_a_model(self) -> bool:
        """Whether there is something besides sessions: those are recalled by their words, and a model that is loaded for
        them alone would cost more memory than all the rest. `update` embeds them too."""
        return any(count for name, count in self.state.by_source.items() if name != SESSIONS)

    async def _rest(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._more.wait()
        except TimeoutError:
            self._more.set()

    async def embed_all(self) -> None:
        """Embed what has no vector. Raises a ProviderError, IndexRenewed or
        IndexUnusable."""
        async with self._embedding:
            while await self._embed_some():
                pass
            provider = self._provider()
            self._note(unmade=self._aside.told(identity_of(provider)) if provider else "")
            await self._bound()

    async def _bound(self) -> None:
        """Forget vectors that are no longer needed and too many."""
        provider, most = self._provider(), self._keys().cache
        identity = identity_of(provider) if provider else None
        await self._file().write(lambda index: index.bound(identity, most))

    async def _embed_some(self) -> bool:
        """Embed some chunks, the newest first; False if there are none."""
        provider = self._provider()
        if provider is None or not await self._file().write(lambda index: index.searches_vectors):
            return False
        identity = identity_of(provider)
        texts = self._aside.without(identity, await self._file().write(lambda index: index.unembedded(identity, AHEAD)))
        await self.count()
        if texts and not identity.dimensions:
            await self.embedded([PLAIN], "query")  # or what is there could not be told from others'
            return True
        for batch in _batches(texts):
            made_by, vectors = await self._aside.vectors(batch)
            await self._file().write(partial(_keep, identity=made_by, vectors=vectors))
            self._note(unembedded=max(0, self.state.unembedded - len(vectors)), unmade=self._aside.told(made_by))
        return bool(texts)

    async def embedded(self, texts: list[str], purpose: Purpose) -> tuple[Identity, Sequence[Sequence[float]]]:
        """The vectors of texts by whoever makes them now, with what made them. Raises a ProviderError."""
        with self._in_use():
            if (provider := self._provider()) is None:
                raise Unreachable("Nobody makes vectors any more.")
            try:
                vectors = await self._portioned.embedded(provider, texts, purpose)
            except (BadRequest, BadAnswer):
                raise  # perhaps for what stands in these texts
            except ProviderError as error:
                self._tell(str(error))
                raise
            self._tell("")
            identity = identity_of(provider)
            self._counted(purpose, identity.model, sum(map(estimate, texts)))
            return identity, vectors

    def _tell(self, failing: str) -> None:
        """Say in the log that no vectors come, and that they come again; each once."""
        if failing and failing != self.failing:
            log.warning("embedding_failed", reason=failing, until_then="no notes are compared by their meaning")
        elif self.failing and not failing:
            log.info("embedding_works_again")
        self.failing = failing

    def _note(self, **known: object) -> None:
        self.state = msgspec.structs.replace(self.state, **known)
        self.told(self.state)


async def imported() -> None:
    """Have everything imported that an index and a search need, beside the event loop: it takes some 50 ms once."""
    for name in _NEEDED:
        if name not in sys.modules:
            await asyncio.to_thread(importlib.import_module, name)


def identity_of(provider: EmbeddingProvider) -> Identity:
    """What a provider's vectors are told apart by."""
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
    index.embed(identity, vectors)


def _answer(waiting: list[asyncio.Future[None]]) -> None:
    for done in waiting:
        if not done.done():
            done.set_result(None)
