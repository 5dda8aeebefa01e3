"""The index's file, open twice: one thread writes while another reads. A damaged or deleted file is rebuilt.

Only this process's writer and other `exuvia` processes may write the file. Its state on disk is compared with what the
writer left: a change that SQLite does not report is damage, even if every page looks intact.

SQLite maps the file it shares with other processes (`-shm`), and reading a truncated mapping would kill this process
(SIGBUS). So its length is checked first; what is missing is filled with zeros, from which SQLite rebuilds it.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias, TypeVar

from plugins.api.plugin_services import IndexUnusable
from plugins.memory.index.indexer import IndexRebuilt
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.index.tables import SHARED_MEMORY, WAL, seal, set_aside
from sessions.catalog.sqlite import Error

T = TypeVar("T")

_UNUSABLE: tuple[type[Exception], ...] = (*Error, OSError)
_NOT_DAMAGE = ("locked", "full", "unable to open", "readonly", "interrupted")
"""Words of errors that do not indicate damage."""

_Stamps: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class _Connection:
    """The index for one thread; `lock` is held while it is used or replaced."""

    def __init__(self, name: str) -> None:
        self.lock = threading.Lock()
        self.thread = ThreadPoolExecutor(1, name)
        self.index: MemoryIndex | None = None

    def close(self) -> None:
        """Close it; it may be opened again."""
        if self.index is not None:
            index, self.index = self.index, None
            index.__exit__(None, None, None)


class IndexFile:
    """The index's file, opened when first used."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = _Connection("memory")
        self._reading = _Connection("memory-search")
        self._last_stamps: _Stamps = ()
        """The state on disk after the writer's last work."""
        self._version = 0
        """SQLite's data version at that time."""
        self._damaged = False
        """True if the reader found the file damaged."""
        self.rebuilds = 0
        """The number of times that the file was rebuilt."""
        self._verified = False
        """True if the content was verified, or the file was not changed since it was closed."""

    async def write(self, work: Callable[[MemoryIndex], T]) -> T:
        """Run a function in the writing thread.

        Raises:
            IndexRebuilt: The file was rebuilt and is empty.
            IndexUnusable: The file cannot be used.
        """
        return await self._run(self._writing, self._write, work)

    async def read(self, work: Callable[[MemoryIndex], T]) -> T:
        """Run a function in the reading thread, which never waits for the writer. Raises as `write` does."""
        return await self._run(self._reading, self._read, work)

    async def close(self) -> None:
        """Close the file after the running functions."""
        await asyncio.get_running_loop().run_in_executor(self._writing.thread, self._close)
        for each in (self._writing, self._reading):
            each.thread.shutdown(wait=False)

    async def _run(
        self, connection: _Connection, do: Callable[[Callable[[MemoryIndex], T]], T], work: Callable[[MemoryIndex], T]
    ) -> T:
        try:
            return await asyncio.get_running_loop().run_in_executor(connection.thread, do, work)
        except _UNUSABLE as error:
            raise IndexUnusable(f"The memory index cannot be used: {error}.") from error

    def _write(self, work: Callable[[MemoryIndex], T]) -> T:
        with self._writing.lock:
            try:
                index = self._opened()
                if self._damaged or self._was_changed_outside(index):
                    self._reopen()
                    raise IndexRebuilt
                if not self._verified:
                    if not index.is_intact():
                        raise self._rebuild()
                    self._verified = True
                return work(index)
            except Error as error:
                if any(word in str(error) for word in _NOT_DAMAGE):
                    raise
                raise self._rebuild() from error
            finally:
                self._record_stamps()

    def _read(self, work: Callable[[MemoryIndex], T]) -> T:
        with self._reading.lock:
            index, now = self._reading.index, self._stamps()
            # Detects deleted or replaced files; only the writer can detect changes of the same files.
            if index is not None and self._inodes(now) == self._inodes(self._last_stamps) and not self._is_truncated(now):
                try:
                    return work(index)
                except Error as error:
                    if any(word in str(error) for word in _NOT_DAMAGE):
                        raise
                    self._damaged = True
        raise IndexRebuilt

    def _opened(self) -> MemoryIndex:
        """Return the writer's index, opening both if necessary."""
        if self._writing.index is None:
            with self._reading.lock:
                self._reading.close()
                self._writing.index = MemoryIndex(self._path).__enter__()
                written = self._inodes(self._stamps())
                self._reading.index = MemoryIndex(self._path).__enter__()
                self._last_stamps, self._version = self._stamps(), self._writing.index.version()
                self._verified = self._writing.index.is_sealed()
                # The file may have been deleted between the two.
                self._damaged = written[0] is None or written != self._inodes(self._last_stamps)
        return self._writing.index

    def _record_stamps(self) -> None:
        """Record the state of the files, unless they were deleted or replaced during the work: SQLite keeps them open, so
        nobody would notice otherwise."""
        now = self._stamps()
        try:
            if self._writing.index and self._inodes(now) == self._inodes(self._last_stamps):
                self._last_stamps, self._version = now, self._writing.index.version()
        except Error:
            self._damaged = True

    def _was_changed_outside(self, index: MemoryIndex) -> bool:
        """Return True if the files were changed by something other than SQLite."""
        now = self._stamps()
        if now == self._last_stamps:
            return False
        # `version` last: it reads the shared file.
        return (
            self._inodes(now) != self._inodes(self._last_stamps)
            or self._is_truncated(now)
            or index.version() == self._version
        )

    def _reopen(self) -> None:
        """Reopen the files after a change from outside."""
        with self._reading.lock:
            self._close_both()
        self._opened()
        self._verified = False

    def _rebuild(self) -> IndexRebuilt:
        """Rebuild the file with only the intact vectors of the old one."""
        with self._reading.lock:
            self._close_both()
            set_aside(self._path)
        self._opened()
        self._verified = True
        self.rebuilds += 1
        return IndexRebuilt()

    def _close_both(self) -> None:
        """Close both connections; the caller holds both locks."""
        if self._is_truncated(self._stamps()):
            # By path, since opening and closing the file would release SQLite's locks; all of it, half may look intact.
            shared, size = self._sibling(SHARED_MEMORY), self._shared_size(self._last_stamps)
            os.truncate(shared, 0)
            os.truncate(shared, size)
        self._reading.close()
        self._writing.close()

    def _stamps(self) -> _Stamps:
        """Return inode, size and time of the database, its journal and the shared file (whose time is meaningless)."""
        found: list[tuple[int, int, int] | None] = []
        for suffix in ("", WAL, SHARED_MEMORY):
            try:
                there = self._sibling(suffix).stat()
                found.append((there.st_ino, there.st_size, 0 if suffix == SHARED_MEMORY else there.st_mtime_ns))
            except FileNotFoundError:
                found.append(None)
        return tuple(found)

    def _sibling(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    @staticmethod
    def _shared_size(stamps: _Stamps) -> int:
        shared = stamps[-1] if stamps else None
        return shared[1] if shared else 0

    def _is_truncated(self, now: _Stamps) -> bool:
        """Return True if the shared file exists and is shorter than before."""
        return bool(now[-1]) and self._shared_size(now) < self._shared_size(self._last_stamps)

    @staticmethod
    def _inodes(stamps: _Stamps) -> tuple[int | None, ...]:
        return tuple(each and each[0] for each in stamps)

    def _close(self) -> None:
        with self._writing.lock, self._reading.lock:
            index = self._writing.index
            try:
                at = index.mark_closed() if index and self._verified and not self._was_changed_outside(index) else None
            except Error:
                at = None
            self._close_both()
            if at is not None:
                seal(self._path, at)
