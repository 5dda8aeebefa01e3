"""An append-only file whose durable length is known exactly. Used on the committer's threads."""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from pathlib import Path

from sessions.events.errors import StorageFailed
from sessions.files.fsync import open_folder, sync_content


class AppendFile:
    """A file of which `durable` bytes survive a power failure and `end` bytes are written.

    It is opened by path for each write and closed by the following sync. So an idle file uses no descriptor, however many
    there are, and nothing is made durable under another name than the one under which it is looked up: the next write
    notices that a file or folder was moved away.

    If `fresh`, its directory entry may not be durable yet; the first sync then includes the folder. Bytes are written at
    explicit offsets instead of with O_APPEND, so their position never depends on what a failed write left behind. If
    `essential`, a missing folder is a fatal failure.
    """

    def __init__(self, path: Path, length: int, *, fresh: bool, essential: bool = True) -> None:
        self.durable = length
        self.end = length
        self._descriptor = -1
        self._path = path
        self._fresh = fresh
        self._essential = essential

    def write(self, chunk: bytes) -> None:
        """Append `chunk`, continuing after short writes.

        If it cannot be written completely, the file is truncated to its durable length. Raises StorageFailed; it is fatal if
        the truncation fails too or the folder is missing.
        """
        self._open()
        try:
            self._write(chunk)
        except OSError as error:
            self._cut_back(error)
            raise StorageFailed(f"{self._path.name} could not be written: {error_text(error)}.") from error

    def sync(self) -> None:
        """Make everything that was written durable, and close the file.

        Raises StorageFailed. It is fatal if a sync failed, and `sync` must not be called again; otherwise only the new bytes
        were lost, and the file was truncated.
        """
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(open_folder(self._path.parent)) if self._fresh else None
            except OSError as error:  # nothing was synced yet, so nothing is lost
                self._cut_back(error)
                raise StorageFailed(f"{self._path.name} could not be written: {error_text(error)}.") from error
            stack.callback(self.close)
            try:
                sync_content(self._descriptor)
                if folder is not None:
                    os.fsync(folder)
                    self._fresh = False
            except OSError as error:
                raise sync_failed(self._path, error) from error
        self.durable = self.end

    def close(self) -> None:
        """Close the file if it is open."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _open(self) -> None:
        if self._descriptor >= 0:
            return
        try:
            self._descriptor = os.open(self._path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            size = os.fstat(self._descriptor).st_size
        except FileNotFoundError as error:
            raise missing_file(self._path, essential=self._essential) from error
        except OSError as error:
            raise StorageFailed(f"{self._path.name} could not be opened: {error_text(error)}.") from error
        if size != self.end:
            self.close()
            raise StorageFailed(f"{self._path.name} was changed by another process: it has {size} bytes, not {self.end}.")

    def _write(self, chunk: bytes) -> None:
        rest = memoryview(chunk)
        while rest:
            count = os.pwrite(self._descriptor, rest, self.end)
            if count == 0:
                raise OSError(errno.EIO, "the file takes no more bytes")
            self.end += count
            rest = rest[count:]

    def _cut_back(self, cause: OSError) -> None:
        try:
            os.ftruncate(self._descriptor, self.durable)
            os.fsync(self._descriptor)  # fdatasync may not write the shorter length
        except OSError as error:
            error.add_note(f"after a write failed: {error_text(cause)}")
            raise sync_failed(self._path, error) from error
        finally:
            self.close()
        self.end = self.durable


def missing_file(path: Path, *, essential: bool) -> StorageFailed:
    """Return the failure for a missing file; fatal if its folder is missing too and `essential`."""
    if path.parent.is_dir():
        return StorageFailed(f"{path.name} is missing: it was deleted or moved while the gateway was running.")
    sentence = f"The folder {path.parent} is missing: it was deleted or moved while the gateway was running; restore it."
    return StorageFailed(sentence, fatal=essential)


def sync_failed(path: Path, error: OSError) -> StorageFailed:
    """Return the fatal failure after a sync: the content of `path` on the disk is unknown from here on."""
    return StorageFailed(f"{path.name} could not be made durable: {error_text(error)}.", fatal=True)


def error_text(error: OSError) -> str:
    """Return the system's message for an error."""
    return error.strerror or str(error)
