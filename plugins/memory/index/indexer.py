"""The background indexer. It reads changed documents in small steps, so that an interruption loses little work."""

from __future__ import annotations

import asyncio
import importlib
import math
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Protocol, TypeVar

import msgspec
import structlog

from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory.memory_backend import Document, Identity, MemoryBackend
from plugins.api.memory.source import Source
from plugins.api.plugin_services import IndexUnusable
from plugins.support.untrusted import call_failure, error_text

T = TypeVar("T")

MANY_CHANGES = 50
"""Maximum number of changed documents for which a search waits; if there are more, it does not wait."""

STEP_SECONDS = 0.25
"""Maximum seconds of indexing before other work on the index gets its turn."""

TRIES = 3
"""Maximum rebuilds of the index in a row before a pause."""

PAUSE_SECONDS, LONGEST_PAUSE = 15.0, 900.0
"""Seconds before what failed is tried again, doubled each time."""

_SEARCH_MODULES = (
    "plugins.memory.index.backend_lifecycle",
    "plugins.memory.index.index_file",
    "plugins.memory.search.search",
)

log = structlog.get_logger("exuvia.memory")


class BackendFailed(Exception):
    """A backend cannot be used; `str(error)` is the reason, as the end of a sentence."""


class IndexRebuilt(Exception):
    """The index was damaged or deleted and is empty now: everything has to be indexed again."""


class DamagedAgain(IndexUnusable):
    """The index was rebuilt `TRIES` times in a row, such as on a disk on which it cannot be written."""

    def __init__(self, last: IndexRebuilt) -> None:
        reason = f": {error_text(last.__cause__)}" if last.__cause__ else ""
        super().__init__(f"The memory index is damaged again after each rebuild{reason}.")


class OpenBackend(Protocol):
    """A backend that runs in its own threads.

    `write` and `read` raise IndexRebuilt if everything was lost, IndexUnusable if the backend cannot be used at present, and
    BackendFailed if it cannot be used at all.
    """

    async def write(self, work: Callable[[MemoryBackend], T]) -> T:
        """Run a function that may change the backend."""
        ...

    async def read(self, work: Callable[[MemoryBackend], T]) -> T:
        """Run a function that does not change the backend."""
        ...

    async def close(self) -> None:
        """Close the backend after the running function."""
        ...


class IndexState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of the index.

    `pending` are documents that are not up to date, `unembedded` chunks without a vector of the current model.
    `checked_at` is the monotonic time of the last check of the sources, None before the first. `problem` says why the index
    could not be updated, `vector_problem` why vectors could not.
    """

    documents: int = 0
    by_source: Mapping[str, int] = {}
    pending: int = 0
    chunks: int = 0
    unembedded: int = 0
    unreadable: tuple[str, ...] = ()
    large: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    checked_at: float | None = None
    problem: str = ""
    vector_problem: str = ""


class Indexer:
    """The background indexer of one index.

    Args:
        file: Returns the backend.
        sources: Returns the enabled sources.
        provider: Returns the current embedding provider.
        exists: Returns True if the backend is open or has files. Blocks.
    """

    def __init__(
        self,
        file: Callable[[], OpenBackend],
        sources: Callable[[], list[Source]],
        provider: Callable[[], EmbeddingProvider | None],
        exists: Callable[[], bool],
    ) -> None:
        self._file = file
        self._sources = sources
        self._provider = provider
        self._exists = exists
        self._wanted = asyncio.Event()
        self._updating = asyncio.Lock()
        self._waiting: list[asyncio.Future[None]] = []
        self._pausing = False
        self.state = IndexState()
        self.on_change: Callable[[IndexState], None] = lambda _: None
        """Called whenever the state changes."""
        self.stored = asyncio.Event()
        """Set when documents were stored, which may need vectors."""

    def wake(self) -> None:
        """Check the sources for changes soon."""
        self._wanted.set()

    async def refresh(self, patience: float) -> bool:
        """Check the sources and index a few changes now, waiting at most `patience` seconds; return True if it was done.

        Does nothing while the index is damaged again after each rebuild.
        """
        if self._pausing:
            return False
        done = asyncio.get_running_loop().create_future()
        self._waiting.append(done)
        self.wake()
        await asyncio.wait({done}, timeout=patience)
        return done.done()

    async def run(self) -> None:
        """Index changes until cancelled."""
        pause = PAUSE_SECONDS
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            waiting, self._waiting = self._waiting, []
            try:
                await self.update(partial(_answer, waiting))
                pause = PAUSE_SECONDS
            except DamagedAgain as error:
                self.report(problem=str(error))
                _answer(waiting)
                log.warning("memory_not_indexed", reason=str(error), seconds_until_next_try=pause)
                await self._pause(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
            except IndexUnusable as error:
                self.report(problem=str(error))
            except Exception as error:  # an error of one source must not stop the indexer
                reason = str(call_failure(error))  # the reason has a maximum length, a traceback does not
                log.error("memory_not_looked_at", reason=reason)
                self.report(problem=reason)
            finally:
                _answer(waiting)
            self.stored.set()

    async def _pause(self, seconds: float) -> None:
        """Try again after a pause, in which no search causes another rebuild."""
        self._pausing = True
        try:
            await asyncio.sleep(seconds)
        finally:
            self._pausing = False
            self.wake()

    async def update(self, soon: Callable[[], None] = lambda: None) -> None:
        """Index all changes. As long as there is nothing to index, the backend is neither imported nor opened.

        Args:
            soon: Called when there are so many changes that a search should not wait.

        Raises:
            IndexUnusable: The index cannot be used.
        """
        async with self._updating:
            for _ in range(TRIES):
                try:
                    return await self._update(soon)
                except IndexRebuilt as error:
                    last = error
                    self.report(documents=0, by_source={}, pending=0, chunks=0)
            raise DamagedAgain(last)

    async def _update(self, soon: Callable[[], None]) -> None:
        sources = self._sources()
        if (nothing := await asyncio.to_thread(self._nothing, sources)) is not None:
            self._report_changes(nothing)
            self.report(unreadable=(), problem="", chunks=0, unembedded=0)
            return
        await import_search_modules()
        changes = await self.write(lambda index: find_changes(index.known(), sources))
        due: Sequence[Due] = changes.due
        unreadable: list[str] = []
        self._report_changes(changes)
        if len(due) > MANY_CHANGES:
            soon()
        if changes.gone:
            await self.write(lambda index: index.remove(changes.gone))
        while due:
            read = await self.write(partial(read_due, due=due, seconds=STEP_SECONDS))
            due = read.left
            unreadable += read.unreadable
            self.report(pending=len(due))
            self.stored.set()
        if len(changes.due) > MANY_CHANGES:
            await self.write(lambda index: index.optimize())
        self.report(unreadable=tuple(unreadable), problem="")
        await self.count()

    def _nothing(self, sources: Sequence[Source]) -> Changes | None:
        """Return the changes if there is nothing to index and no index, which then need not be opened; else None. Blocks."""
        if self._exists():
            return None
        found = find_changes({}, sources)
        return None if found.due else found

    def _report_changes(self, changes: Changes) -> None:
        self.report(
            documents=changes.documents.total(),
            by_source=changes.documents,
            pending=len(changes.due),
            large=changes.large,
            remarks=changes.remarks,
            checked_at=time.monotonic(),
        )

    async def write(self, work: Callable[[MemoryBackend], T]) -> T:
        """Run a function that may change the backend. Raises as `OpenBackend.write` does."""
        return await self._file().write(work)

    async def count(self) -> None:
        """Update the numbers of chunks in the state.

        Raises:
            IndexRebuilt: The index is empty.
            IndexUnusable: The index cannot be used.
        """
        provider = self._provider()
        identity = identity_of(provider) if provider else None
        chunks, unembedded = await self.write(lambda index: _sizes(index, identity))
        self.report(chunks=chunks, unembedded=unembedded)

    def report(self, **known: object) -> None:
        """Change fields of the state."""
        self.state = msgspec.structs.replace(self.state, **known)
        self.on_change(self.state)


async def import_search_modules() -> None:
    """Import the modules for indexing and searching in a thread: the first time, that takes about 50 ms."""
    for name in _SEARCH_MODULES:
        if name not in sys.modules:
            await asyncio.to_thread(importlib.import_module, name)


def identity_of(provider: EmbeddingProvider) -> Identity:
    """Return the identity of a provider's vectors."""
    return Identity(provider=provider.name, model=provider.model() or "", dimensions=provider.dimensions())


def _sizes(index: MemoryBackend, identity: Identity | None) -> tuple[int, int]:
    _, chunks = index.size()
    return chunks, index.count_unembedded(identity) if identity else chunks


def _answer(waiting: list[asyncio.Future[None]]) -> None:
    for done in waiting:
        if not done.done():
            done.set_result(None)


# --- changed documents ------------------------------------------------------------------------------------------------


# gc=False: there may be tens of thousands, and none can be part of a cycle.
class Due(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A document whose current version is not indexed. `state` is what the source returned with the last reading."""

    source: Source
    path: str
    stamp: str
    state: str


class Changes(msgspec.Struct, frozen=True, kw_only=True):
    """The result of checking the sources: documents by source, those to read, deleted and too large ones, and remarks."""

    documents: Counter[str]
    due: tuple[Due, ...]
    gone: tuple[str, ...]
    large: tuple[str, ...]
    remarks: tuple[str, ...]


class RefreshResult(msgspec.Struct, frozen=True, kw_only=True):
    """The documents that were read, those that could not be, and those left, of which the first may be read in part."""

    read: tuple[str, ...] = ()
    unreadable: tuple[str, ...] = ()
    left: tuple[Due, ...] = ()


def find_changes(known: Mapping[str, tuple[str, str]], sources: Sequence[Source]) -> Changes:
    """Compare the sources with the documents of the index (`MemoryBackend.known`). Takes as long as listing them."""
    stamps = {path: stamp for path, (stamp, _) in known.items()}
    listings = [(source, source.list_documents(stamps)) for source in sources]
    listed = {path: (source, stamp) for source, each in reversed(listings) for path, stamp in each.stamps.items()}
    return Changes(
        documents=Counter(source.name for source, _ in listed.values()),
        due=tuple(
            Due(source=source, path=path, stamp=stamp, state=known[path][1] if path in known else "")
            for path, (source, stamp) in listed.items()
            if stamps.get(path) != stamp
        ),
        gone=tuple(path for path in known if path not in listed),
        large=tuple(path for _, each in listings for path in each.large),
        remarks=tuple(remark for _, each in listings for remark in each.remarks),
    )


def read_due(index: MemoryBackend, due: Sequence[Due], seconds: float = math.inf) -> RefreshResult:
    """Index documents for at most `seconds`, but at least part of one. Unreadable ones are removed from the index."""
    until = time.monotonic() + seconds
    read: list[str] = []
    unreadable: list[str] = []
    left = deque(due)

    def documents() -> Iterator[Document]:
        while left:
            each = left.popleft()
            reading = each.source.read(each.path, each.state)
            if reading is None:
                unreadable.append(each.path)
            elif reading.more:  # no stamp yet, so that an interrupted document is read again
                left.appendleft(msgspec.structs.replace(each, state=reading.state))
                yield Document(path=each.path, source=each.source.name, stamp="", reading=reading)
            else:
                read.append(each.path)
                yield Document(path=each.path, source=each.source.name, stamp=each.stamp, reading=reading)
            if time.monotonic() > until:
                return

    index.store(documents())
    if unreadable:
        index.remove(unreadable)
    return RefreshResult(read=tuple(read), unreadable=tuple(unreadable), left=tuple(left))


def refresh(index: MemoryBackend, sources: Sequence[Source]) -> RefreshResult:
    """Index all changes, however long it takes."""
    found = find_changes(index.known(), sources)
    if found.gone:
        index.remove(found.gone)
    return read_due(index, found.due)
