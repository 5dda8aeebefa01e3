"""The file store: the journals of a home, each a log in one append-only file.

The event loop queues lines and is notified when they are durable; the committer's threads take them from the queue and write
them. All state except the queue belongs to the loop. A journal has at most one commit in progress, so only one thread at a
time takes from the queue, and only the loop adds to it.
"""

from __future__ import annotations

import asyncio
import os
from collections import deque
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import TypeVar

from sessions.events.errors import JournalDamaged, StorageFailed
from sessions.files.append_file import AppendFile, error_text
from sessions.files.committer import Committer
from sessions.files.fsync import make_folder, open_folder, write_new
from sessions.files.journal_folder import JournalFolder, open_lines
from sessions.files.repair import bytes_of, create_to_append, open_to_append, remove_empty, remove_journal, report_damage
from sessions.store.protocols import START, Position
from sessions.store.reading import StoredLog, read_lines

CHUNK = 256 * 1024
"""Maximum bytes of one commit, unless a single line is longer."""

PATIENCE = 0.05
"""Seconds after which a line that is not urgent is committed."""

DRAFT = ".draft"
"""Suffix of an incomplete copy's file name."""

T = TypeVar("T")


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
        self._on_durable, self._on_failed = durable, failed

    async def lines(self, first: int, *, limit: int) -> list[bytes]:
        return await asyncio.to_thread(_lines, self._path, first, limit, upto=self.durable)

    async def close(self) -> None:
        if self._closed is None:
            self._closed = self._loop.create_future()
            self._commit()
            self._release_when_done()
        await asyncio.shield(self._closed)  # cancelling the wait does not stop the commit

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
        self._on_failed(failure)

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


def _lines(path: Path, first: int, limit: int, *, upto: int) -> list[bytes]:
    with open_lines(path) as lines:
        return read_lines(lines, first, limit, upto=upto)


class Journals(JournalFolder):
    """The journals of one home, a `Store`. Torn tails and damage reports go to `quarantine`.

    The folder must exist. If it disappears, that is a fatal failure of the storage, unless `essential` is False; then it is
    created with the first journal.
    """

    def __init__(self, folder: Path, quarantine: Path, committer: Committer, *, essential: bool = True) -> None:
        super().__init__(folder)
        self._essential = essential
        self._quarantine = quarantine
        self._committer = committer
        self._held: set[str] = set()
        self._copying = 0

    @property
    def pending(self) -> int:
        return self._committer.pending

    @property
    def commits(self) -> int:
        return self._committer.syncs

    @property
    def failure(self) -> asyncio.Future[StorageFailed]:
        return self._committer.failure

    async def verify(self, session: str) -> None:
        await asyncio.to_thread(self._verify, session)

    def _verify(self, session: str) -> None:
        try:
            StoredLog(self, session).verify()
        except JournalDamaged as damage:
            report_damage(damage, self.path(session), self._quarantine)
            raise

    async def create(self, session: str) -> Journal:
        # The directory entry becomes durable with the first line.
        path = self.path(session)
        file = await self._hold(
            session,
            lambda: self._create(path),
            lambda _: path.unlink(missing_ok=True),  # it is still empty
        )
        return self._journal(session, path, file)

    def _create(self, path: Path) -> AppendFile:
        if not self._essential:
            try:
                make_folder(path.parent)
            except OSError as error:
                raise StorageFailed(f"{path.parent} could not be created: {error_text(error)}.") from error
        return create_to_append(path, essential=self._essential)

    async def open(
        self,
        session: str,
        *,
        after: Position = START,
        fold: Callable[[bytes], None],
        unchanged: bool = False,
        least: int = 0,
    ) -> tuple[Journal, Position]:
        path = self.path(session)
        file, last = await self._hold(
            session,
            lambda: open_to_append(
                path, self._quarantine, after, fold, unchanged=unchanged, least=least, essential=self._essential
            ),
        )
        return self._journal(session, path, file), last

    async def copy(self, parent: str, upto: Position, line: bytes, session: str) -> None:
        self._copying += 1
        try:
            await asyncio.to_thread(self._copy, self.path(parent), upto.offset, line, self.path(session))
        finally:
            self._copying -= 1

    def _copy(self, parent: Path, end: int, line: bytes, path: Path) -> None:
        """Create a journal atomically: a partial one after an error would give its key two sessions."""
        try:
            for left in path.parent.glob(f"*{DRAFT}"):
                left.unlink()  # left by an interrupted copy
            draft = path.with_name(path.name + DRAFT)
            descriptor = os.open(parent, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                write_new(draft, chain(bytes_of(descriptor, 0, end), (line,)))
            finally:
                os.close(descriptor)
            with open_folder(path.parent) as folder:
                draft.rename(path)
                try:
                    os.fsync(folder)
                except OSError:
                    path.unlink()
                    raise
        except OSError as error:
            raise StorageFailed(f"The fork could not be written: {error_text(error)}.") from error

    async def remove(self, session: str) -> None:
        path, drafts = self.path(session), "" if self._copying else DRAFT
        try:
            await self._hold(session, lambda: remove_journal(path, self._quarantine, drafts=drafts))
        except OSError as error:
            raise StorageFailed(f"{path.name} could not be removed: {error_text(error)}.") from error
        self._held.discard(session)

    async def discard_empty(self, session: str) -> None:
        path = self.path(session)
        try:
            await asyncio.to_thread(remove_empty, path, self._quarantine)
        except OSError as error:
            raise StorageFailed(f"{path.name} could not be removed: {error_text(error)}.") from error

    async def _hold(self, session: str, work: Callable[[], T], undo: Callable[[T], None] = lambda _: None) -> T:
        """Run `work` in a thread while the session is reserved. If the caller is cancelled, `work` still finishes and is
        then undone."""
        if session in self._held:
            raise StorageFailed(f"{session} is still open; try again shortly.")
        if self._committer.failure.done():
            raise self._committer.failure.result()
        self._held.add(session)
        future = asyncio.get_running_loop().run_in_executor(None, work)
        try:
            return await asyncio.shield(future)
        except asyncio.CancelledError:
            future.add_done_callback(lambda done: self._abandon(session, done, undo))
            raise
        except BaseException as error:
            self._give_up(session, error)
            raise

    def _abandon(self, session: str, done: asyncio.Future[T], undo: Callable[[T], None]) -> None:
        error = done.exception()
        self._give_up(session, error)
        if error is None:
            undo(done.result())

    def _give_up(self, session: str, error: BaseException | None) -> None:
        self._held.discard(session)
        if isinstance(error, StorageFailed) and error.fatal:
            self._committer.fail(error)

    def _journal(self, session: str, path: Path, file: AppendFile) -> Journal:
        try:
            return Journal(file, path, self._committer, lambda: self._held.discard(session))
        except StorageFailed:
            self._held.discard(session)
            raise
