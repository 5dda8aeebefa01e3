"""A session's journal: its lines in one append-only file, and the folder of all of them.

The event loop queues lines and hears of durable ones; the committer's threads take them from the queue and put them on
the disk. All state but the queue belongs to the loop, and a journal has one commit under way at most, so only one thread
at a time takes from the queue and only the loop adds to it.
"""

from __future__ import annotations

import asyncio
import re
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from sessions.events.errors import JournalDamaged, StorageFailed, UnknownSession
from sessions.files.append_file import AppendFile, gone
from sessions.files.committer import Committer
from sessions.files.reader import read_lines
from sessions.files.repair import create_to_append, open_to_append, report_damage
from sessions.files.verify import VerificationResult, verify_journal
from sessions.store.protocols import START, Position

__all__ = ["Journal", "Journals", "VerificationResult", "read_lines", "verify_journal"]

CHUNK = 256 * 1024
"""Bytes of one commit, or one longer line."""

PATIENCE = 0.05
"""Seconds after which a line that is not urgent is committed."""

_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")

T = TypeVar("T")


class Journal:
    """A `Log` as one file; made by `Journals`. `released` is called once, when the file is let go of."""

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
        self._told_durable: Callable[[int], None] = lambda _: None
        self._told_failed: Callable[[StorageFailed], None] = lambda _: None
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
        """Name who is told of durable offsets and of the failure; see `Log.listen`."""
        self._told_durable, self._told_failed = durable, failed

    async def lines(self, first: int, *, limit: int) -> list[bytes]:
        """The durable lines from seq `first` on; see `Log.lines`. Raises JournalDamaged if they are not what was written."""
        return await asyncio.to_thread(read_lines, self._path, first, limit, upto=self.durable)

    async def close(self) -> None:
        """Commit what was appended and let go of the file. A cancelled wait does not stop that."""
        if self._closed is None:
            self._closed = self._loop.create_future()
            self._commit()
            self._let_go_when_done()
        await asyncio.shield(self._closed)

    def write(self) -> None:
        """On a committer's thread: write the next lines, as many as fit into a chunk."""
        lines = [self._queue.popleft()]
        size = len(lines[0])
        while self._queue and size + len(self._queue[0]) <= CHUNK:
            lines.append(self._queue.popleft())
            size += len(lines[-1])
        self._file.write(lines[0] if len(lines) == 1 else b"".join(lines))

    def sync(self) -> None:
        """On a committer's thread: make what was written durable."""
        self._file.sync()

    def settle(self, failure: StorageFailed | None) -> None:
        """On the event loop: the commit under way is done, or the journal has failed."""
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
        self._told_durable(durable)

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
        self._told_failed(failure)

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
    """The journals of one home, a `Store`: `folder/<session>.jsonl`. Torn tails and reports of damage go to `quarantine`.

    The folder must be there. If it vanishes that is a fatal failure of the storage, unless `essential` is false.
    """

    def __init__(self, folder: Path, quarantine: Path, committer: Committer, *, essential: bool = True) -> None:
        self._folder = folder
        self._essential = essential
        self._quarantine = quarantine
        self._committer = committer
        self._held: set[str] = set()

    @property
    def pending(self) -> int:
        """Bytes of all journals together that wait for the disk."""
        return self._committer.pending

    def path(self, session: str) -> Path:
        """Where a session's journal lies; UnknownSession if the text cannot be the id of one."""
        if not _SESSION.match(session):
            raise UnknownSession("There is no session of this name.")
        return self._folder / f"{session}.jsonl"

    async def verify(self, session: str) -> VerificationResult:
        """Read a whole journal. Raises UnknownSession, StorageFailed, JournalDamaged (after a report in `quarantine`)."""
        return await asyncio.to_thread(self._verify, self.path(session))

    def _verify(self, path: Path) -> VerificationResult:
        try:
            return verify_journal(path)
        except JournalDamaged as damage:
            report_damage(damage, self._quarantine)
            raise

    async def missing(self, session: str) -> JournalDamaged:
        """Report in `quarantine` that a journal that should be there is not, and return the error for it. Raises
        StorageFailed where the whole folder is gone."""
        path = self.path(session)
        if not await asyncio.to_thread(path.parent.is_dir):
            failure = gone(path, essential=self._essential)
            if failure.fatal:
                self._committer.fail(failure)
            raise failure
        damage = JournalDamaged(path, 0, "it is gone, with all that was acknowledged in it")
        await asyncio.to_thread(report_damage, damage, self._quarantine)
        return damage

    async def create(self, session: str) -> Journal:
        """A new and empty journal; see `Store.create`. Its name in the folder becomes durable with its first line."""
        path = self.path(session)
        file = await self._hold(
            session,
            lambda: create_to_append(path, essential=self._essential),
            lambda _: path.unlink(missing_ok=True),  # it holds nothing yet
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
        """Open a journal; see `Store.open`. `trusted`: its size and time of change are those it had when it was last made
        durable, so its end need not be written again. StorageFailed also where it is open already, JournalDamaged also where
        it ends before seq `least`, which was acknowledged."""
        path = self.path(session)
        file, last = await self._hold(
            session,
            lambda: open_to_append(
                path, self._quarantine, after, fold, trusted=trusted, least=least, essential=self._essential
            ),
        )
        return self._journal(session, path, file), last

    async def _hold(self, session: str, work: Callable[[], T], undo: Callable[[T], None] = lambda _: None) -> T:
        """Do `work` in a thread, with the session held by nobody else. It is finished even if the caller is cancelled, and
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
