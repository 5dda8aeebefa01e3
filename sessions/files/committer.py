"""The committer: writes and syncs all open journals on a few threads, and reports to the event loop.

Each journal has at most one commit under way; what is appended meanwhile gathers for the next. The threads first write
all that waits and only then sync, so that syncs of many small journals share the file system's own commit, and each
journal is reported as soon as its own sync is done: a slow one holds up one thread, and nobody else.
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
"""Journals that may be written and not yet synced: each of them, and of the threads, holds a descriptor."""


class Commit(Protocol):
    """What the committer knows of a journal."""

    def write(self) -> None:
        """On a thread: write the next chunk; StorageFailed if it cannot be."""
        ...

    def sync(self) -> None:
        """On a thread, after `write`: make the chunk durable; StorageFailed, fatal, if it cannot be."""
        ...

    def settle(self, failure: StorageFailed | None) -> None:
        """On the event loop: the chunk is durable, or the journal has failed."""
        ...


class Committer:
    """`async with Committer() as committer:` runs the threads; all its methods are called on the event loop.

    Once a sync has failed, the kernel may have dropped pages and called them clean: `failure` gets the fatal failure,
    nothing is written, synced or reported durable any more, and every attached journal fails.
    """

    def __init__(self) -> None:
        self.failure: asyncio.Future[StorageFailed]
        """Done once the storage has failed for good; its result says why."""
        self.pending = 0
        """Bytes of all journals that wait for the disk; counted by the journals."""
        self.syncs = 0
        self.synced: Callable[[float], None] = lambda _: None
        """Told of each sync how many seconds it took."""
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
        """Finish the commits under way, then end the threads. Journals are closed before, each by its owner."""
        for _ in self._threads:
            self._work.put(False)
        await asyncio.to_thread(self._join)
        self._deliver()
        for journal in tuple(self._attached):
            self._settle(journal, StorageFailed("The journals are closed: the gateway is stopping."))

    def attach(self, journal: Commit) -> None:
        """Have a journal told when the storage fails for good; StorageFailed if it has."""
        if self._broken is not None:
            raise self._broken
        self._attached.add(journal)

    def detach(self, journal: Commit) -> None:
        """Forget a journal that is closed or has failed."""
        self._attached.discard(journal)

    def submit(self, journal: Commit) -> None:
        """Commit a journal's next chunk; it must have one, and no commit under way."""
        self._waiting.append(journal)
        self._work.put(True)

    def fail(self, failure: StorageFailed) -> None:
        """The storage has failed for good: say so to everybody, once."""
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
        # Each True stands for one journal in `_waiting` or `_written`, and whoever holds one prefers `_waiting`; so
        # where that is empty, `_written` has one for each who found it so.
        while self._work.get():
            try:
                journal = self._waiting.popleft()
            except IndexError:
                self._sync(self._written.popleft())
            else:
                self._write(journal)
        while self._written:  # handed over when the others were already gone
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
        # One wake of the loop serves all reports that are there when it comes. `_deliver` lowers the flag before it
        # looks, so a report is either seen by the wake that is on its way or sends one of its own.
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
        except Exception as error:  # a listener's fault must not keep the others from their reports
            self._loop.call_exception_handler({"message": "a journal's listener failed", "exception": error})


def _attempt(step: Callable[[], None]) -> StorageFailed | None:
    try:
        step()
    except StorageFailed as failure:
        return failure
    except Exception as error:  # a mistake of our own: nobody knows what reached the disk
        return StorageFailed(f"a commit went wrong: {error!r}", fatal=True)
    return None
