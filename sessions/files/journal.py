"""The journal of a session: a log in one append-only file.

The event loop queues lines and is notified when they are durable; the committer's threads take them from the queue and write
them. All state except the queue belongs to the loop. A journal has at most one commit in progress, so only one thread at a
time takes from the queue, and only the loop adds to it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from pathlib import Path

from sessions.events.errors import StorageFailed
from sessions.files.append_file import AppendFile
from sessions.files.committer import Committer
from sessions.files.journal_folder import open_lines
from sessions.store.reading import read_lines

CHUNK = 256 * 1024
"""Maximum bytes of one commit, unless a single line is longer."""

PATIENCE = 0.05
"""Seconds after which a line that is not urgent is committed."""


class Journal:
    """A `Log` in one file, created by `Journals`. `released` is called once, when the file is closed."""

    def __init__(self, file: AppendFile, path: Path, committer: Committer, released: Callable[[], None]) -> None:
        self.end = file.end
        self.durable = file.durable
        self._file = file
        self._path = path
        self._committer = committer
        self._released = released
        self._queue: deque[bytes] = deque()
        self._due = self.end
        self._under_way = False
        self._timer: asyncio.TimerHandle | None = None
        self._failure: StorageFailed | None = None
        self._on_durable: Callable[[int], None] = lambda _: None
        self._on_failed: Callable[[StorageFailed], None] = lambda _: None
        self._closed: asyncio.Future[None] | None = None
        self._loop = asyncio.get_running_loop()
        committer.attach(self)

    def append(self, line: bytes, *, urgent: bool) -> None:
        """Queue one line for the disk; see `Log.append`."""
        if self._failure is not None:
            raise self._failure
        if self._closed is not None:
            raise StorageFailed(f"{self._path.name} is closed.")
        self._queue.append(line)
        self.end += len(line)
        self._committer.pending += len(line)
        if urgent:
            self._commit()
        elif self._timer is None:
            self._timer = self._loop.call_later(PATIENCE, self._commit)

    def on_commit(self, durable: Callable[[int], None], failed: Callable[[StorageFailed], None]) -> None:
        """Set the callbacks for durable offsets and for the failure; see `Log.on_commit`."""
        self._on_durable, self._on_failed = durable, failed

    async def lines(self, first: int, *, limit: int) -> list[bytes]:
        """Return the durable lines from seq `first` on; see `Log.lines`. Raises JournalDamaged if they do not verify."""
        return await asyncio.to_thread(_lines, self._path, first, limit, upto=self.durable)

    async def close(self) -> None:
        """Commit what was appended and close the file. Cancelling the wait does not stop that."""
        if self._closed is None:
            self._closed = self._loop.create_future()
            self._commit()
            self._let_go_when_done()
        await asyncio.shield(self._closed)

    def write(self) -> None:
        """Write the next lines, as many as fit into a chunk. Called on a committer's thread."""
        lines = [self._queue.popleft()]
        size = len(lines[0])
        while self._queue and size + len(self._queue[0]) <= CHUNK:
            lines.append(self._queue.popleft())
            size += len(lines[-1])
        self._file.write(lines[0] if len(lines) == 1 else b"".join(lines))

    def sync(self) -> None:
        """Make what was written durable. Called on a committer's thread."""
        self._file.sync()

    def settle(self, failure: StorageFailed | None) -> None:
        """Handle the end of a commit, on the event loop: the lines are durable, or the journal has failed."""
        if failure is not None:
            self._fail(failure)
            return
        if self._failure is not None:
            return
        self._under_way = False
        durable = self._file.durable
        self._committer.pending -= durable - self.durable
        self.durable = durable
        self._submit()
        self._let_go_when_done()
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
        self._let_go()
        self._on_failed(failure)

    def _let_go_when_done(self) -> None:
        if self._closed is not None and self.durable == self.end and self._failure is None:
            self._let_go()

    def _let_go(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._committer.detach(self)
        self._released()
        if self._closed is None:
            self._closed = self._loop.create_future()
        if not self._closed.done():
            self._closed.set_result(None)


def _lines(path: Path, first: int, limit: int, *, upto: int) -> list[bytes]:
    with open_lines(path) as lines:
        return read_lines(lines, first, limit, upto=upto)
