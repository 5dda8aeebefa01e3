"""The folder of all journals, for reading."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from sessions.events.errors import StorageFailed, UnknownSession
from sessions.files.append_file import error_text
from sessions.files.file_lines import FileLines
from sessions.store.protocols import Stamp

SUFFIX = ".jsonl"

_SESSION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}\Z")


class JournalFolder:
    """The journals in a folder, a `LogReader`: `folder/<session>.jsonl`. The folder need not exist."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def path(self, session: str) -> Path:
        """Return the path of a session's journal. Raises UnknownSession if the text cannot be a session id."""
        if not _SESSION.match(session):
            raise UnknownSession("Unknown session.")
        return self._folder / f"{session}{SUFFIX}"

    def read(self, session: str) -> AbstractContextManager[FileLines]:
        """Open a journal for reading; see `LogReader.read`."""
        return open_lines(self._file(session))

    def stamp(self, session: str) -> Stamp | None:
        """Return the stamp of a journal; see `LogReader.stamp`."""
        try:
            return _stamp(self._file(session).stat(follow_symlinks=False))
        except (UnknownSession, OSError):
            return None

    def listed(self) -> Iterator[tuple[str, Stamp]]:
        """Yield the journals; see `LogReader.listed`. Links and folders are listed too, but
        cannot be read."""
        try:
            with os.scandir(self._folder) as entries:
                named = sorted((entry.name.removesuffix(SUFFIX), entry) for entry in entries if entry.name.endswith(SUFFIX))
        except FileNotFoundError:
            return
        except OSError as error:
            raise StorageFailed(f"{self._folder} cannot be listed: {error_text(error)}.") from error
        for session, entry in named:
            try:
                found = entry.stat(follow_symlinks=False)
            except OSError:
                continue  # deleted meanwhile
            yield session, _stamp(found) if stat.S_ISREG(found.st_mode) else Stamp(size=0, changed=0)

    def location(self, session: str) -> str:
        """Return the path of a journal; see `LogReader.location`."""
        return str(self._file(session))

    def _file(self, session: str) -> Path:
        """Return the path of a file in the folder, which may be named unlike a journal. Raises UnknownSession."""
        if "/" in session or "\0" in session:
            raise UnknownSession("Unknown session.")
        return self._folder / f"{session}{SUFFIX}"


@contextmanager
def open_lines(path: Path) -> Iterator[FileLines]:
    """Open a journal for reading, as a context manager. Raises UnknownSession, StorageFailed."""
    try:
        descriptor = open_to_read(path)
        try:
            yield FileLines(descriptor, path.stem)
        finally:
            os.close(descriptor)
    except OSError as error:
        raise StorageFailed(f"{path.name} cannot be read: {error_text(error)}.") from error


def open_to_read(path: Path) -> int:
    """Return a descriptor of a journal. Raises UnknownSession if there is none, OSError if it cannot be opened."""
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)  # a pipe is no journal
    except FileNotFoundError:
        raise UnknownSession(f"Unknown session {path.stem}.") from None


def _stamp(found: os.stat_result) -> Stamp:
    return Stamp(size=found.st_size, changed=found.st_mtime_ns, identity=found.st_ino)
