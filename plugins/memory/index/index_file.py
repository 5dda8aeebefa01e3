"""The file of the index, open twice: one thread writes, another reads meanwhile. What was harmed or taken away is made anew.

Only this process's writer and other `exuvia` processes have any business in the file. So what it is on disk is compared with
what the writer left: a difference that SQLite does not tell of either is harm, though every page may look well.

What SQLite shares with other processes beside it (`-shm`) it has mapped: to touch what was cut off of that would end this
process (SIGBUS). So its length is looked at before; what is missing is put back as zeros, and SQLite makes it anew of these.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeAlias, TypeVar

from plugins.api.memory.memory_backend import Identity
from plugins.memory.index.integrity import saved_vectors, seal
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.index.tables import BESIDE, SHARED, remove_tables
from plugins.memory.index_errors import IndexRebuilt, IndexUnusable
from sessions.catalog.sqlite import Error

T = TypeVar("T")

_UNUSABLE: tuple[type[Exception], ...] = (*Error, OSError)
_CIRCUMSTANCES = ("locked", "full", "unable to open", "readonly", "interrupted")
"""Words of errors that say nothing against the file."""

SAVED_AT_ONCE = 500
"""Vectors of a harmed file that are kept in one go."""

_Stamps: TypeAlias = tuple[tuple[int, int, int] | None, ...]


class _Connection:
    """The index for one thread; `lock` is held by whoever uses or replaces it."""

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
    """See the module. It is opened by whoever first asks for it."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._writing = _Connection("memory")
        self._reading = _Connection("memory-search")
        self._left: _Stamps = ()
        """What was on disk after the writer's last work."""
        self._version = 0
        """What SQLite said of others' writing then."""
        self._harmed = False
        """Whether the reader found the file harmed."""
        self.renewals = 0
        """How often it was made anew."""
        self._believed = False
        """Whether what is in the file was looked through, or nobody was in it since it was closed."""

    async def write(self, work: Callable[[MemoryIndex], T]) -> T:
        """Do something with the index in the thread that may change it. Raises IndexRenewed, after which it is empty, or
        IndexUnusable."""
        return await self._run(self._writing, self._write, work)

    async def read(self, work: Callable[[MemoryIndex], T]) -> T:
        """As `write`, in the thread that changes nothing and never waits for the other."""
        return await self._run(self._reading, self._read, work)

    async def close(self) -> None:
        """Close the file, after what is being done with it."""
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
                if self._harmed or self._was_touched(index):
                    self._open_again()
                    raise IndexRebuilt
                if not self._believed:
                    if not index.is_sound():
                        raise self._renewed()
                    self._believed = True
                return work(index)
            except Error as error:
                if any(word in str(error) for word in _CIRCUMSTANCES):
                    raise
                raise self._renewed() from error
            finally:
                self._remember()

    def _read(self, work: Callable[[MemoryIndex], T]) -> T:
        with self._reading.lock:
            index, now = self._reading.index, self._stamps()
            # Deleted or replaced files are seen here; what is in the same files only the writer can tell from its own work.
            if index is not None and self._inodes(now) == self._inodes(self._left) and not self._is_cut(now):
                try:
                    return work(index)
                except Error as error:
                    if any(word in str(error) for word in _CIRCUMSTANCES):
                        raise
                    self._harmed = True
        raise IndexRebuilt

    def _opened(self) -> MemoryIndex:
        """The writer's index, the reader's beside it."""
        if self._writing.index is None:
            with self._reading.lock:
                self._reading.close()
                self._writing.index = MemoryIndex(self._path).__enter__()
                written = self._inodes(self._stamps())
                self._reading.index = MemoryIndex(self._path).__enter__()
                self._left, self._version = self._stamps(), self._writing.index.version()
                self._believed = self._writing.index.is_sealed()
                # A file that was deleted meanwhile is not there, or is another for the reader.
                self._harmed = written[0] is None or written != self._inodes(self._left)
        return self._writing.index

    def _remember(self) -> None:
        """Note how the files are left. One that was deleted or replaced during the work is not noted, or nobody would ever
        miss it: SQLite itself keeps its files for as long as they are open."""
        now = self._stamps()
        try:
            if self._writing.index and self._inodes(now) == self._inodes(self._left):
                self._left, self._version = now, self._writing.index.version()
        except Error:
            self._harmed = True

    def _was_touched(self, index: MemoryIndex) -> bool:
        """Whether somebody was in the files who was not SQLite."""
        now = self._stamps()
        if now == self._left:
            return False
        # The last only then: it looks at what is shared.
        return self._inodes(now) != self._inodes(self._left) or self._is_cut(now) or index.version() == self._version

    def _open_again(self) -> None:
        """What is known of the files is not what is in them."""
        with self._reading.lock:
            self._close_both()
        self._opened()
        self._believed = False

    def _renewed(self) -> IndexRebuilt:
        """Have the file made anew from nothing but the vectors in it that are well."""
        harmed = self._path.with_name(self._path.name + "-harmed")
        with self._reading.lock:
            self._close_both()
            remove_tables(harmed)
            for suffix in ("", BESIDE):
                with contextlib.suppress(FileNotFoundError):
                    self._beside(suffix).rename(harmed.with_name(harmed.name + suffix))
            remove_tables(self._path)
        index = self._opened()
        saved = saved_vectors(harmed)
        while some := list(itertools.islice(saved, SAVED_AT_ONCE)):
            index.keep(
                (Identity(provider=by[0], model=by[1], dimensions=by[2]), digest, vector) for by, digest, vector in some
            )
        remove_tables(harmed)
        self._believed = True
        self.renewals += 1
        return IndexRebuilt()

    def _close_both(self) -> None:
        """Close the index, whoever holds both locks."""
        if self._is_cut(self._stamps()):
            # By its name: whoever opens and closes it loses SQLite's locks on it. All of it, since half may look whole.
            shared, size = self._beside(SHARED), self._shared_size(self._left)
            os.truncate(shared, 0)
            os.truncate(shared, size)
        self._reading.close()
        self._writing.close()

    def _stamps(self) -> _Stamps:
        """Inode, size and time of the database and of its journal, and of what is shared, whose time tells nothing."""
        found: list[tuple[int, int, int] | None] = []
        for suffix in ("", BESIDE, SHARED):
            try:
                there = self._beside(suffix).stat()
                found.append((there.st_ino, there.st_size, 0 if suffix == SHARED else there.st_mtime_ns))
            except FileNotFoundError:
                found.append(None)
        return tuple(found)

    def _beside(self, suffix: str) -> Path:
        return self._path.with_name(self._path.name + suffix)

    @staticmethod
    def _shared_size(stamps: _Stamps) -> int:
        shared = stamps[-1] if stamps else None
        return shared[1] if shared else 0

    def _is_cut(self, now: _Stamps) -> bool:
        """Whether what is shared is there and shorter than it was."""
        return bool(now[-1]) and self._shared_size(now) < self._shared_size(self._left)

    @staticmethod
    def _inodes(stamps: _Stamps) -> tuple[int | None, ...]:
        return tuple(each and each[0] for each in stamps)

    def _close(self) -> None:
        with self._writing.lock, self._reading.lock:
            index = self._writing.index
            try:
                at = index.say_closed() if index and self._believed and not self._was_touched(index) else None
            except Error:
                at = None
            self._close_both()
            if at is not None:
                seal(self._path, at)
