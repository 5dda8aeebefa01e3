"""The file store: the journals of a home."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from itertools import chain
from pathlib import Path
from typing import TypeVar

from sessions.events.errors import JournalDamaged, StorageFailed
from sessions.files.append_file import AppendFile, error_text
from sessions.files.committer import Committer
from sessions.files.fsync import make_folder, open_folder, write_new
from sessions.files.journal import Journal
from sessions.files.journal_folder import JournalFolder
from sessions.files.repair import bytes_of, create_to_append, open_to_append, remove_empty, report_damage
from sessions.store.protocols import START, Position
from sessions.store.reading import StoredLog

DRAFT = ".draft"
"""Suffix of an incomplete copy's file name."""

T = TypeVar("T")


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

    @property
    def pending(self) -> int:
        """Bytes of all journals that are waiting for the disk."""
        return self._committer.pending

    @property
    def commits(self) -> int:
        """The number of syncs of journals so far."""
        return self._committer.syncs

    @property
    def failure(self) -> asyncio.Future[StorageFailed]:
        """Done when a sync has failed; see `Store.failure`."""
        return self._committer.failure

    async def verify(self, session: str) -> None:
        """Verify a whole journal; see `Store.verify`. A report of damage is written to `quarantine`."""
        await asyncio.to_thread(self._verify, session)

    def _verify(self, session: str) -> None:
        try:
            StoredLog(self, session).verify()
        except JournalDamaged as damage:
            report_damage(damage, self.path(session), self._quarantine)
            raise

    async def create(self, session: str) -> Journal:
        """Create an empty journal; see `Store.create`. Its directory entry becomes durable with its first line."""
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
        """Open a journal; see `Store.open` and `open_to_append`."""
        path = self.path(session)
        file, last = await self._hold(
            session,
            lambda: open_to_append(
                path, self._quarantine, after, fold, unchanged=unchanged, least=least, essential=self._essential
            ),
        )
        return self._journal(session, path, file), last

    async def copy(self, parent: str, upto: Position, line: bytes, session: str) -> None:
        """Create a journal from the beginning of another one; see `Store.copy`."""
        await asyncio.to_thread(self._copy, self.path(parent), upto.offset, line, self.path(session))

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

    async def discard_empty(self, session: str) -> None:
        """Remove a journal without a complete line; see `Store.discard_empty`. A torn line goes to `quarantine`."""
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
