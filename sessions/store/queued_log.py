"""Logs whose lines wait in a queue until a committer's thread takes them.

The event loop queues lines and is notified when they are durable; the threads take them from the queue and store them. All
state except the queue belongs to the loop. A log has at most one commit in progress, so only one thread at a time takes from
the queue, and only the loop adds to it.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Protocol, TypeVar

from sessions.events.errors import StorageFailed
from sessions.store.protocols import Position

CHUNK = 256 * 1024
"""Maximum bytes of one commit of a log, unless a single line is longer."""

PATIENCE = 0.05
"""Seconds after which a line that is not urgent is committed."""

T = TypeVar("T")


class CommitQueue(Protocol):
    """The part of a committer that logs and stores use, on the event loop."""

    pending: int
    """Bytes of all logs that are waiting to become durable; updated by the logs."""

    failure: asyncio.Future[StorageFailed]
    """Done when the storage has failed permanently; the result is the failure."""

    def submit(self, log: Any, /) -> None:
        """Commit a log's next chunk. It must have one, and no commit in progress."""
        ...

    def detach(self, log: Any, /) -> None:
        """Remove a log that is closed or has failed."""
        ...

    def fail(self, failure: StorageFailed) -> None:
        """Mark the storage as failed permanently."""
        ...


class QueuedLog:
    """The queue of one `Log`. `released` is called once, when the log is closed or has failed.

    A committer's thread calls `take`, stores the lines and sets `committed`, the offset up to which they are durable; then
    `settle` is called on the event loop. A thread that has written lines before they are durable calls `wrote`.
    """

    def __init__(self, name: str, end: int, committer: CommitQueue, released: Callable[[], None]) -> None:
        self.end = self.durable = self.committed = self.written = end
        self.name = name
        self._committer = committer
        self._released = released
        self._queue: deque[bytes] = deque()
        self._writing: deque[tuple[int, asyncio.Future[None]]] = deque()
        self._due = self.end
        self._under_way = False
        self._timer: asyncio.TimerHandle | None = None
        self._failure: StorageFailed | None = None
        self._on_durable: Callable[[int], None] = lambda _: None
        self._on_failed: Callable[[StorageFailed], None] = lambda _: None
        self._closed: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()

    def append(self, line: bytes, *, urgent: bool) -> None:
        """Queue one line; see `Log.append`."""
        if self._failure is not None:
            raise self._failure
        if self._closed is not None:
            raise StorageFailed(f"{self.name} is closed.")
        self._queue.append(line)
        self.end += len(line)
        self._committer.pending += len(line)
        if urgent:
            self._commit()
        elif self._timer is None:
            self._timer = self._loop.call_later(PATIENCE, self._commit)

    def on_commit(self, durable: Callable[[int], None], failed: Callable[[StorageFailed], None]) -> None:
        """Set the callbacks; see `Log.on_commit`."""
        self._on_durable, self._on_failed = durable, failed

    async def until_written(self) -> None:
        """Wait until all lines have left this process; see `Log.until_written`."""
        if self._failure is not None:
            raise self._failure
        waiter: asyncio.Future[None] = self._loop.create_future()
        self._writing.append((self.end, waiter))
        self._commit()
        self._release_written()  # a thread that wrote before it could see the waiter has notified nobody
        await waiter

    async def catch_up(self, after: Position) -> list[bytes]:
        """Return no lines: nobody else appends; see `Log.catch_up`."""
        return []

    async def close(self) -> None:
        """Commit what was appended, then release the log; see `Log.close`."""
        if self._closed is None:
            self._closed = self._loop.create_future()
            self._commit()
            self._release_when_done()
        await asyncio.shield(self._closed)  # cancelling the wait does not stop the commit

    def move(self, end: int) -> None:
        """Go on after lines that another process has appended. Nothing may be waiting."""
        self.end = self.durable = self.committed = self.written = self._due = end

    def take(self) -> list[bytes]:
        """Return the next lines, as many as fit into a chunk. Called on a committer's thread."""
        lines = [self._queue.popleft()]
        size = len(lines[0])
        while self._queue and size + len(self._queue[0]) <= CHUNK:
            lines.append(self._queue.popleft())
            size += len(lines[-1])
        return lines

    def wrote(self, end: int) -> None:
        """Record that the lines up to an offset have left this process. Called on a committer's thread, before `settle`."""
        self.written = end
        if self._writing:
            self._loop.call_soon_threadsafe(self._release_written)

    def settle(self, failure: StorageFailed | None) -> None:
        """Handle the end of a commit, on the event loop: the lines are durable, or the log has failed."""
        if failure is not None:
            self._fail(failure)
            return
        if self._failure is not None:
            return
        self._under_way = False
        durable = self.committed
        self._committer.pending -= durable - self.durable
        self.durable = self.written = durable
        self._release_written()
        self._submit()
        self._release_when_done()
        self._on_durable(durable)

    def _commit(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due = self.end
        self._submit()

    def _submit(self) -> None:
        if self._due > self.durable and not self._under_way and self._failure is None:
            self._under_way = True
            self._committer.submit(self)

    def _fail(self, failure: StorageFailed) -> None:
        if self._failure is not None:
            return
        self._failure = failure
        self._committer.pending -= self.end - self.durable
        self._release()
        self._release_written(failure)
        self._on_failed(failure)

    def _release_written(self, failure: StorageFailed | None = None) -> None:
        """Wake those who wait for lines that have left this process, or all if the log has failed."""
        while self._writing and (failure is not None or self._writing[0][0] <= self.written):
            _, waiter = self._writing.popleft()
            if not waiter.done():
                waiter.set_exception(failure) if failure else waiter.set_result(None)

    def _release_when_done(self) -> None:
        if self._closed is not None and self.durable == self.end and self._failure is None:
            self._release()

    def _release(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._committer.detach(self)
        self._released()
        if self._closed is None:
            self._closed = self._loop.create_future()
        if not self._closed.done():
            self._closed.set_result(None)


class OpenLogs:
    """The logs of a store that are open, or in use otherwise."""

    def __init__(self, committer: CommitQueue) -> None:
        self._committer = committer
        self._held: set[str] = set()

    def is_held(self, session: str) -> bool:
        """Return True if a log is open, or in use otherwise."""
        return session in self._held

    async def hold(self, session: str, work: Callable[[], T], undo: Callable[[T], None] = lambda _: None) -> T:
        """Run `work` in a thread while the log is reserved; it remains reserved until `release`, unless `work` raises.

        If the caller is cancelled, `work` still finishes and is then undone. Raises StorageFailed if the log is open.
        """
        if session in self._held:
            raise StorageFailed(f"{session} is still open; try again shortly.")
        if self._committer.failure.done():
            raise self._committer.failure.result()
        future = run_in_thread(work)
        self._held.add(session)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(lambda done: self._abandon(session, done, undo))
            raise
        except BaseException as error:
            self._give_up(session, error)
            raise

    def release(self, session: str) -> None:
        """End the reservation of a log."""
        self._held.discard(session)

    def _abandon(self, session: str, done: asyncio.Future[T], undo: Callable[[T], None]) -> None:
        error = done.exception()
        self._give_up(session, error)
        if error is None:
            undo(done.result())

    def _give_up(self, session: str, error: BaseException | None) -> None:
        self.release(session)
        if isinstance(error, StorageFailed) and error.fatal:
            self._committer.fail(error)


def run_in_thread(work: Callable[[], T]) -> asyncio.Future[T]:
    """Run a function in a thread of the event loop's pool. Raises RuntimeError if no thread can be started.

    Then the function never runs: the pool itself would keep it for a thread that becomes free.
    """
    accepted, decided = False, threading.Event()

    def guarded() -> T:
        decided.wait()
        if not accepted:
            raise RuntimeError("this call was refused")
        return work()

    try:
        future = asyncio.get_running_loop().run_in_executor(None, guarded)
        accepted = True
    finally:
        decided.set()
    return future
