"""Choice and opening of the backend: the configured one, or SQLite if it cannot be used, or `local` without full-text
search."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias, TypeVar

import structlog

from plugins.api.memory.memory_backend import MemoryBackend
from plugins.api.memory_settings import SQLITE
from plugins.api.plugin_services import IndexUnusable
from plugins.memory.index.indexer import BackendFailed, IndexRebuilt, OpenBackend
from plugins.support.untrusted import call_failure, error_text
from sessions.catalog.sqlite import lacks_full_text

T = TypeVar("T")

LOCAL = "local"
"""The backend without dependencies."""

Kinds: TypeAlias = Mapping[str, type[MemoryBackend]]


class SingleThreadBackend:
    """A backend in one thread, where reads wait for writes."""

    def __init__(self, kind: type[MemoryBackend], place: Path) -> None:
        self._kind = kind
        self._place = place
        self._thread = ThreadPoolExecutor(1, f"memory-{kind.name}")
        self._index: MemoryBackend | None = None
        self._rebuilt = False

    async def write(self, work: Callable[[MemoryBackend], T]) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, self._do, work)
        except OSError as error:
            raise IndexUnusable(f"The memory index cannot be used: {error_text(error)}.") from error

    read = write

    async def close(self) -> None:
        await asyncio.get_running_loop().run_in_executor(self._thread, self._close)
        self._thread.shutdown(wait=False)

    def _do(self, work: Callable[[MemoryBackend], T]) -> T:
        deleted = self._index is not None and not self._place.exists()
        if deleted:
            self._close()  # new data would be lost with the deleted files
        index = self._opened()
        if deleted:
            raise IndexRebuilt
        try:
            return work(index)
        except (OSError, ValueError, KeyboardInterrupt):
            raise
        except BaseException as error:  # third-party code; a panic in Rust is not an Exception
            self._close()
            self._delete_data(error)
            raise IndexRebuilt from error

    def _opened(self) -> MemoryBackend:
        while self._index is None:
            try:
                self._index = self._kind(self._place).__enter__()
            except BaseException as error:  # as above
                self._delete_data(error)
        return self._index

    def _delete_data(self, error: BaseException) -> None:
        """Delete the data to start over; raise BackendFailed if that was tried before."""
        if self._rebuilt:
            raise BackendFailed(f"it fails, {call_failure(error)}".rstrip(".")) from error
        self._rebuilt = True
        if self._place.is_dir():
            import shutil  # noqa: PLC0415 - imports three compression libraries, for the first search after a start

            shutil.rmtree(self._place, ignore_errors=True)
        else:
            self._place.unlink(missing_ok=True)

    def _close(self) -> None:
        index, self._index = self._index, None
        if index is not None:
            try:
                index.__exit__(None, None, None)
            except BaseException as error:  # as above; the backend is not used any more
                structlog.get_logger("exuvia").warning(
                    "memory_backend_not_closed", backend=self._kind.name, error=error_text(error)
                )


class BackendLifecycle:
    """The current backend, opened when first used.

    Args:
        place: The path of SQLite's file; other backends use the same path with their name as suffix.
        kinds: Returns the backends by name.
        wanted: Returns the configured name, which may change.
    """

    def __init__(self, place: Path, kinds: Callable[[], Kinds], wanted: Callable[[], str]) -> None:
        self._place = place
        self._kinds = kinds
        self._wanted = wanted
        self._choosing = asyncio.Lock()
        self._opened: OpenBackend | None = None
        self._wanted_name = ""
        self.problem = ""
        """Why another backend is used than configured, as a sentence; "" if it is not."""

    async def write(self, work: Callable[[MemoryBackend], T]) -> T:
        """Run a function as `OpenBackend.write` does, falling back to another backend instead of raising BackendFailed."""
        return await self._with_fallback(lambda opened: opened.write(work))

    async def read(self, work: Callable[[MemoryBackend], T]) -> T:
        """Run a function as `OpenBackend.read` does, falling back as `write` does."""
        return await self._with_fallback(lambda opened: opened.read(work))

    async def _with_fallback(self, run: Callable[[OpenBackend], Awaitable[T]]) -> T:
        opened = await self._current()
        try:
            return await run(opened)
        except BackendFailed as failed:
            raise await self._fall_back(opened, failed) from failed

    async def close(self) -> None:
        """Close the backend after the running function."""
        if self._opened:
            await self._opened.close()
            self._opened = None

    async def _current(self) -> OpenBackend:
        async with self._choosing:
            wanted = self._wanted()
            if self._opened is None or wanted != self._wanted_name:
                await self.close()
                self._wanted_name, self.problem = wanted, ""
                why_not = self._why_not(wanted)
                self._opened = self._open_fallback(why_not) if why_not else self._open(wanted)
            return self._opened

    def _why_not(self, name: str) -> str:
        if name == SQLITE:
            return lacks_full_text()
        kinds = self._kinds()
        return kinds[name].why_not() if name in kinds else "no plugin provides it"

    async def _fall_back(self, failing: OpenBackend, failed: BackendFailed) -> IndexRebuilt:
        async with self._choosing:
            if self._opened is failing:  # else another has seen it already
                await self.close()
                self._opened = self._open_fallback(str(failed))
        return IndexRebuilt()

    def _open_fallback(self, why: str) -> OpenBackend:
        """Return the fallback, and remember why it is used."""
        name = LOCAL if lacks_full_text() else SQLITE
        self.problem = f"The memory uses the backend {name}, since {self._wanted_name} cannot be used: {why}."
        structlog.get_logger("exuvia").warning(
            "memory_backend_unusable", backend=self._wanted_name, instead=name, reason=why
        )
        return self._open(name)

    def _open(self, name: str) -> OpenBackend:
        if name == SQLITE:
            from plugins.memory.index.index_file import IndexFile  # noqa: PLC0415 - not at the start

            return IndexFile(self._place)
        if name == LOCAL:
            from plugins.memory.backends.local import LocalBackend  # noqa: PLC0415 - as above

            return SingleThreadBackend(LocalBackend, self._place.with_suffix(f".{name}"))
        return SingleThreadBackend(self._kinds()[name], self._place.with_suffix(f".{name}"))
