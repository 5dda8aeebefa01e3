"""The file store: the journals of a home, each a log in one append-only file."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager, nullcontext
from itertools import chain
from pathlib import Path

from sessions.events.errors import JournalDamaged, StorageFailed
from sessions.files.append_file import AppendFile, error_text
from sessions.files.committer import Committer
from sessions.files.fsync import make_folder, open_folder, sync_folder, write_new
from sessions.files.journal_folder import JournalFolder, open_lines, stamp_of
from sessions.files.repair import bytes_of, create_to_append, open_to_append, remove_empty, remove_journal, report_damage
from sessions.store.protocols import START, Lines, Position, Stamp
from sessions.store.queued_log import OpenLogs, QueuedLog
from sessions.store.reading import StoredLog, last_seq, read_lines

DRAFT = ".draft"
"""Suffix of an incomplete copy's file name."""

REWRITTEN = ".rewritten"
"""Suffix of a journal that is being rewritten."""


class Journal(QueuedLog):
    """A `Log` in one file, created by `Journals`. `released` is called once, when the file is closed."""

    def __init__(self, file: AppendFile, path: Path, committer: Committer, released: Callable[[], None]) -> None:
        super().__init__(path.name, file.end, committer, released)
        self._file = file
        self._path = path
        committer.attach(self)

    async def lines(self, first: int, *, limit: int) -> list[bytes]:
        return await asyncio.to_thread(_lines, self._path, first, limit, upto=self.durable)

    def stamp(self) -> Stamp | None:
        return stamp_of(self._path)

    def write(self) -> None:
        """Write the next lines, as many as fit into a chunk. Called on a committer's thread."""
        lines = self.take()
        self._file.write(lines[0] if len(lines) == 1 else b"".join(lines))
        self.wrote(self._file.end)

    def sync(self) -> None:
        """Make what was written durable. Called on a committer's thread."""
        self._file.sync()
        self.committed = self._file.durable


def _lines(path: Path, first: int, limit: int, *, upto: int) -> list[bytes]:
    with open_lines(path) as lines:
        return read_lines(lines, first, limit, upto=upto)


def _rewrite(path: Path, rewritten: Callable[[Lines], Iterator[bytes]]) -> None:
    """Replace a journal by another one, which is durable before it gets the name."""
    draft = path.with_name(path.name + REWRITTEN)
    draft.unlink(missing_ok=True)  # left by an interruption
    with open_lines(path) as lines:
        write_new(draft, rewritten(lines))
    draft.rename(path)
    sync_folder(path.parent)


class Journals(JournalFolder):
    """The journals of one home, a `Store`. Torn tails and damage reports go to `quarantine`.

    The folder must exist. If it disappears, that is a fatal failure of the storage, unless `essential` is False; then it is
    created with the first journal.
    """

    shared = False

    def __init__(self, folder: Path, quarantine: Path, committer: Committer, *, essential: bool = True) -> None:
        super().__init__(folder)
        self._essential = essential
        self._quarantine = quarantine
        self._committer = committer
        self._open_logs = OpenLogs(committer)
        self._copying = 0

    def exclusive(self, session: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()

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
            report_damage(damage, str(self.path(session)), self._quarantine)
            raise

    async def create(self, session: str) -> Journal:
        # The directory entry becomes durable with the first line.
        path = self.path(session)
        file = await self._open_logs.hold(
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
        file, last = await self._open_logs.hold(
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

    async def rewrite(self, session: str, rewritten: Callable[[Lines], Iterator[bytes]]) -> None:
        path = self.path(session)
        try:
            await self._open_logs.hold(session, lambda: _rewrite(path, rewritten))
        except OSError as error:
            raise StorageFailed(f"{path.name} could not be rewritten: {error_text(error)}.") from error
        self._open_logs.release(session)

    async def remove(self, session: str, *, upto: int = 0) -> bool:
        path, drafts = self.path(session), "" if self._copying else DRAFT

        def remove() -> bool:
            if upto and last_seq(self, session) > upto:
                return False
            remove_journal(path, self._quarantine, drafts=drafts)
            return True

        try:
            removed = await self._open_logs.hold(session, remove)
        except OSError as error:
            raise StorageFailed(f"{path.name} could not be removed: {error_text(error)}.") from error
        self._open_logs.release(session)
        return removed

    async def discard_empty(self, session: str) -> None:
        path = self.path(session)
        try:
            await asyncio.to_thread(remove_empty, path, self._quarantine)
        except OSError as error:
            raise StorageFailed(f"{path.name} could not be removed: {error_text(error)}.") from error

    def _journal(self, session: str, path: Path, file: AppendFile) -> Journal:
        try:
            return Journal(file, path, self._committer, lambda: self._open_logs.release(session))
        except StorageFailed:
            self._open_logs.release(session)
            raise
