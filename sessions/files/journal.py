"""The journal of a session, a log in one append-only file, and the folder of all journals.

The event loop queues lines and is notified when they are durable; the committer's threads take them from the queue and write
them. All state except the queue belongs to the loop. A journal has at most one commit in progress, so only one thread at a
time takes from the queue, and only the loop adds to it.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sessions.events.errors import JournalDamaged, StorageFailed, UnknownSession
from sessions.files.append_file import AppendFile, missing_file
from sessions.files.committer import Committer
from sessions.files.reader import read_lines
from sessions.files.repair import create_to_append, open_to_append, report_damage
from sessions.files.verify import VerificationResult, verify_journal
from sessions.store.protocols import START, Position

__all__ = ["Journal", "Journals", "VerificationResult", "read_lines", "verify_journal"]

CHUNK = 256 * 1024
"""Maximum bytes of one commit, unless a single line is longer."""

PATIENCE = 0.05
"""Seconds after which a line that is not urgent is committed."""

_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")

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
        return await asyncio.to_thread(read_lines, self._path, first, limit, upto=self.durable)

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


class Journals:
    """The journals of one home, a `Store`: `folder/<session>.jsonl`. Torn tails and damage reports go to `quarantine`.

    The folder must exist. If it disappears, that is a fatal failure of the storage, unless `essential` is False.
    """

    def __init__(self, folder: Path, quarantine: Path, committer: Committer, *, essential: bool = True) -> None:
        self._folder = folder
        self._essential = essential
        self._quarantine = quarantine
        self._committer = committer
        self._held: set[str] = set()

    @property
    def pending(self) -> int:
        """Bytes of all journals that are waiting for the disk."""
        return self._committer.pending

    def path(self, session: str) -> Path:
        """Return the path of a session's journal. Raises UnknownSession if the text cannot be a session id."""
        if not _SESSION.match(session):
            raise UnknownSession("Unknown session.")
        return self._folder / f"{session}.jsonl"

    async def verify(self, session: str) -> VerificationResult:
        """Verify a whole journal. Raises UnknownSession, StorageFailed, JournalDamaged (after writing a report to
        `quarantine`)."""
        return await asyncio.to_thread(self._verify, self.path(session))

    def _verify(self, path: Path) -> VerificationResult:
        try:
            return verify_journal(path)
        except JournalDamaged as damage:
            report_damage(damage, self._quarantine)
            raise

    async def missing(self, session: str) -> JournalDamaged:
        """Write a report of a missing journal to `quarantine`, and return the error for it. Raises StorageFailed if the
        whole folder is missing."""
        path = self.path(session)
        if not await asyncio.to_thread(path.parent.is_dir):
            failure = missing_file(path, essential=self._essential)
            if failure.fatal:
                self._committer.fail(failure)
            raise failure
        damage = JournalDamaged(path, 0, "it is missing, including all acknowledged events")
        await asyncio.to_thread(report_damage, damage, self._quarantine)
        return damage

    async def create(self, session: str) -> Journal:
        """Create an empty journal; see `Store.create`. Its directory entry becomes durable with its first line."""
        path = self.path(session)
        file = await self._hold(
            session,
            lambda: create_to_append(path, essential=self._essential),
            lambda _: path.unlink(missing_ok=True),  # it is still empty
        )
        return self._journal(session, path, file)

    async def open(
        self,
        session: str,
        *,
        after: Position = START,
        fold: Callable[[bytes], None],
        trusted: bool = False,
        least: int = 0,
    ) -> tuple[Journal, Position]:
        """Open a journal; see `Store.open`.

        Args:
            session: The session's id.
            after: The position after which lines are verified.
            fold: Called with each of those lines.
            trusted: Whether its size and modification time are those of when it was last made durable, so that its end does
                not have to be rewritten.
            least: The seq up to which it was acknowledged.

        Raises:
            StorageFailed: It cannot be opened, or is open already.
            JournalDamaged: It does not verify, or ends before `least`.
        """
        path = self.path(session)
        file, last = await self._hold(
            session,
            lambda: open_to_append(
                path, self._quarantine, after, fold, trusted=trusted, least=least, essential=self._essential
            ),
        )
        return self._journal(session, path, file), last

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
