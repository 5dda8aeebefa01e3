"""The committer: writes and syncs all open journals on a few threads, and reports to the event loop.

Each journal has at most one commit in progress; lines appended meanwhile are collected for the next. The threads first write
everything that is waiting and only then sync, so that the syncs of many small journals share one commit of the file system.
Each journal is reported as soon as its own sync is done: a slow one blocks one thread and nothing else.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable
from queue import SimpleQueue
from types import TracebackType
from typing import Protocol

from sessions.events.errors import StorageFailed

THREADS = 8

UNSYNCED = 64
"""Maximum number of journals that are written but not synced: each of them holds a descriptor."""


class Commit(Protocol):
    """A journal as the committer sees it."""

    def write(self) -> None:
        """Write the next chunk, on a thread. Raises StorageFailed."""
        ...

    def sync(self) -> None:
        """Make the written chunk durable, on a thread. Raises StorageFailed; it is fatal."""
        ...

    def settle(self, failure: StorageFailed | None) -> None:
        """Handle the end of the commit, on the event loop: the chunk is durable, or the journal has failed."""
        ...


class Committer:
    """A pool of threads that commits journals, used as an async context manager. All methods are called on the event loop.

    After a failed sync the kernel may have dropped pages and marked them clean. Then `failure` is set to the fatal failure,
    nothing is written, synced or reported durable any more, and every attached journal fails.
    """

    def __init__(self) -> None:
        self.failure: asyncio.Future[StorageFailed]
        """Done when the storage has failed permanently; the result is the failure."""
        self.pending = 0
        """Bytes of all journals that are waiting for the disk; updated by the journals."""
        self.syncs = 0
        self.synced: Callable[[float], None] = lambda _: None
        """Called with the duration of each sync in seconds."""
        self._attached: set[Commit] = set()
        self._waiting: deque[Commit] = deque()
        self._written: deque[Commit] = deque()
        self._work: SimpleQueue[bool] = SimpleQueue()
        self._reports: deque[tuple[Commit, StorageFailed | None, float]] = deque()
        self._waking = False
        self._broken: StorageFailed | None = None
        self._threads = [threading.Thread(target=self._run, name=f"committer-{n}", daemon=True) for n in range(THREADS)]
        self._loop: asyncio.AbstractEventLoop

    async def __aenter__(self) -> Committer:
        self._loop = asyncio.get_running_loop()
        self.failure = self._loop.create_future()
        for thread in self._threads:
            thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Finish the commits in progress and stop the threads. The owners close their journals before."""
        for _ in self._threads:
            self._work.put(False)
        await asyncio.to_thread(self._join)
        self._deliver()
        for journal in tuple(self._attached):
            self._settle(journal, StorageFailed("The journals are closed: the gateway is stopping."))

    def attach(self, journal: Commit) -> None:
        """Notify a journal if the storage fails permanently. Raises StorageFailed if it already has."""
        if self._broken is not None:
            raise self._broken
        self._attached.add(journal)

    def detach(self, journal: Commit) -> None:
        """Remove a journal that is closed or has failed."""
        self._attached.discard(journal)

    def submit(self, journal: Commit) -> None:
        """Commit a journal's next chunk. It must have one, and no commit in progress."""
        self._waiting.append(journal)
        self._work.put(True)

    def fail(self, failure: StorageFailed) -> None:
        """Mark the storage as failed permanently, and notify all journals once."""
        if self.failure.done():
            return
        self._broken = self._broken or failure
        self.failure.set_result(failure)
        for journal in tuple(self._attached):
            self._settle(journal, failure)

    def _join(self) -> None:
        for thread in self._threads:
            thread.join()

    def _run(self) -> None:
        # Each True stands for one journal in `_waiting` or `_written`, and a thread that gets one prefers `_waiting`;
        # so if that is empty, `_written` has one for each such thread.
        while self._work.get():
            try:
                journal = self._waiting.popleft()
            except IndexError:
                self._sync(self._written.popleft())
            else:
                self._write(journal)
                del journal  # while this thread waits, it keeps no closed conversation in memory
        while self._written:  # queued after the other threads had ended
            self._sync(self._written.popleft())

    def _write(self, journal: Commit) -> None:
        failure = self._broken or _attempt(journal.write)
        if failure is not None:
            self._report(journal, failure)
        elif not self._waiting or len(self._written) >= UNSYNCED:
            self._sync(journal)
        else:
            self._written.append(journal)
            self._work.put(True)

    def _sync(self, journal: Commit) -> None:
        begun = time.perf_counter()
        failure = self._broken or _attempt(journal.sync)
        self._report(journal, failure or self._broken, time.perf_counter() - begun)

    def _report(self, journal: Commit, failure: StorageFailed | None, seconds: float = 0.0) -> None:
        if failure is not None and failure.fatal:
            self._broken = self._broken or failure
        self._reports.append((journal, failure, seconds))
        # One wake-up of the loop handles all queued reports. `_deliver` clears the flag before it reads the queue, so
        # a report is either handled by the pending wake-up or schedules a new one.
        if not self._waking:
            self._waking = True
            self._loop.call_soon_threadsafe(self._deliver)

    def _deliver(self) -> None:
        self._waking = False
        while self._reports:
            journal, failure, seconds = self._reports.popleft()
            if failure is not None and failure.fatal:
                self.fail(failure)
            elif failure is None and not self.failure.done():
                self.syncs += 1
                self.synced(seconds)
            self._settle(journal, failure)

    def _settle(self, journal: Commit, failure: StorageFailed | None) -> None:
        try:
            journal.settle(failure)
        except Exception as error:  # a failing listener must not block the others
            self._loop.call_exception_handler({"message": "a journal's listener failed", "exception": error})


def _attempt(step: Callable[[], None]) -> StorageFailed | None:
    try:
        step()
    except StorageFailed as failure:
        return failure
    except Exception as error:  # a bug: what reached the disk is unknown
        return StorageFailed(f"a commit failed: {error!r}", fatal=True)
    return None
