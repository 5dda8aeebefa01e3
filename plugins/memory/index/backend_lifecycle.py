"""Where the index rests now: in the backend that the configuration names, or in SQLite while that one cannot be used; and in
the backend `local` where SQLite has no full-text search."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Protocol, TypeAlias, TypeVar

import structlog

from plugins.api.memory.memory_backend import MemoryBackend
from plugins.api.memory_settings import SQLITE
from plugins.memory.index_errors import BackendFailed, IndexRebuilt, IndexUnusable
from plugins.support.untrusted import call_failure, error_text
from sessions.catalog.sqlite import lacks_full_text

T = TypeVar("T")

LOCAL = "local"
"""The backend that needs neither SQLite nor anything else."""

Kinds: TypeAlias = Mapping[str, type[MemoryBackend]]


class OpenBackend(Protocol):
    """A backend in threads of its own. Both raise IndexRenewed when all was lost, IndexUnusable where nothing can be done
    now, and BackendFailed where it will never do."""

    async def write(self, work: Callable[[MemoryBackend], T]) -> T:
        """Do something with it that may change it."""
        ...

    async def read(self, work: Callable[[MemoryBackend], T]) -> T:
        """Do something with it that changes nothing."""
        ...

    async def close(self) -> None:
        """Close it, after what is being done with it."""
        ...


class SingleThreadBackend:
    """A backend in one thread: who reads waits for who writes."""

    def __init__(self, kind: type[MemoryBackend], place: Path) -> None:
        self._kind = kind
        self._place = place
        self._thread = ThreadPoolExecutor(1, f"memory-{kind.name}")
        self._index: MemoryBackend | None = None
        self._renewed = False

    async def write(self, work: Callable[[MemoryBackend], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, work)
        except OSError as error:
            raise IndexUnusable(f"The memory index cannot be used: {error}.") from error

    read = write

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _do(self, work: Callable[[MemoryBackend], T]) -> T:
        gone = self._index is not None and not self._place.exists()
        if gone:
            self._close()  # what is kept now would be lost with it
        index = self._opened()
        if gone:
            raise IndexRebuilt
        try:
            return work(index)
        except (OSError, ValueError, KeyboardInterrupt):
            raise
        except BaseException as error:  # it is a stranger's, or stands on one's library: a panic of Rust's is no Exception
            self._close()
            self._renew(error)
            raise IndexRebuilt from error

    def _opened(self) -> MemoryBackend:
        while self._index is None:
            try:
                self._index = self._kind(self._place).__enter__()
            except BaseException as error:  # as above
                self._renew(error)
        return self._index

    def _renew(self, error: BaseException) -> None:
        """Have it begin from nothing; BackendFailed if that was tried before."""
        if self._renewed:
            raise BackendFailed(f"it fails, {call_failure(error)}".rstrip(".")) from error
        self._renewed = True
        if self._place.is_dir():
            shutil.rmtree(self._place, ignore_errors=True)
        else:
            self._place.unlink(missing_ok=True)

    def _close(self) -> None:
        index, self._index = self._index, None
        if index is not None:
            try:
                index.__exit__(None, None, None)
            except BaseException as error:  # as above; it is not asked anything any more
                structlog.get_logger("exuvia").warning(
                    "memory_backend_not_closed", backend=self._kind.name, error=error_text(error)
                )


class BackendLifecycle:
    """See the module. `place` is where SQLite's file is or would be; the others rest beside it, under their own names.
    `wanted` is the name of the one that is meant, which may change. Opened by whoever first asks for it."""

    def __init__(self, place: Path, kinds: Callable[[], Kinds], wanted: Callable[[], str]) -> None:
        self._place = place
        self._kinds = kinds
        self._wanted = wanted
        self._choosing = asyncio.Lock()
        self._opened: OpenBackend | None = None
        self._meant = ""
        self.trouble = ""
        """Why it does not rest where it should, as a sentence; empty where it does."""

    async def write(self, work: Callable[[MemoryBackend], T]) -> T:
        """As `OpenBackend.write`; never BackendFailed."""
        opened = await self._chosen()
        try:
            return await opened.write(work)
        except BackendFailed as failed:
            raise await self._fallen_back(opened, failed) from failed

    async def read(self, work: Callable[[MemoryBackend], T]) -> T:
        """As `OpenBackend.read`; never BackendFailed."""
        opened = await self._chosen()
        try:
            return await opened.read(work)
        except BackendFailed as failed:
            raise await self._fallen_back(opened, failed) from failed

    async def close(self) -> None:
        """Close it, after what is being done with it."""
        if self._opened:
            await self._opened.close()
            self._opened = None

    async def _chosen(self) -> OpenBackend:
        async with self._choosing:
            meant = self._wanted()
            if self._opened is None or meant != self._meant:
                await self.close()
                self._meant, self.trouble = meant, ""
                why_not = self._why_not(meant)
                self._opened = self._instead(why_not) if why_not else self._in(meant)
            return self._opened

    def _why_not(self, name: str) -> str:
        if name == SQLITE:
            return lacks_full_text()
        kinds = self._kinds()
        return kinds[name].why_not() if name in kinds else "no plugin provides it"

    async def _fallen_back(self, failing: OpenBackend, failed: BackendFailed) -> IndexRebuilt:
        async with self._choosing:
            if self._opened is failing:  # else another has seen it already
                await self.close()
                self._opened = self._instead(str(failed))
        return IndexRebuilt()

    def _instead(self, why: str) -> OpenBackend:
        """Where it rests while the backend that is meant cannot be used."""
        name = LOCAL if lacks_full_text() else SQLITE
        self.trouble = f"The memory rests in {name}, not in {self._meant}, which cannot be used: {why}."
        structlog.get_logger("exuvia").warning("memory_backend_unusable", backend=self._meant, instead=name, reason=why)
        return self._in(name)

    def _in(self, name: str) -> OpenBackend:
        if name == SQLITE:
            from plugins.memory.index.index_file import IndexFile  # noqa: PLC0415 - not at the start

            return IndexFile(self._place)
        if name == LOCAL:
            from plugins.memory.backends.local import LocalBackend  # noqa: PLC0415 - as above

            return SingleThreadBackend(LocalBackend, self._place.with_suffix(f".{name}"))
        return SingleThreadBackend(self._kinds()[name], self._place.with_suffix(f".{name}"))
