"""One file that grows at its end, and whose durable length is known exactly. Used on the committer's threads."""

from __future__ import annotations

import errno
import os
from contextlib import ExitStack
from pathlib import Path

from sessions.events.errors import StorageFailed
from sessions.files.fsync import open_folder, sync_content


class AppendFile:
    """A file of which `durable` bytes survive a power cut and `end` bytes are written.

    It is opened by its path for each write and closed by the sync that follows. So a file at rest takes no descriptor,
    however many there are, and nothing is ever made durable under another name than the one it will be looked for: a file
    or a folder that was moved away is noticed by the next write.

    `fresh` says that its name in the folder may not be durable yet; the first sync then covers the folder too. Bytes are
    written at their offset and not by O_APPEND, so where they stand never depends on what a failed write left behind.
    `essential` says that a missing folder is a fatal failure.
    """

    def __init__(self, path: Path, length: int, *, fresh: bool, essential: bool = True) -> None:
        self.durable = length
        self.end = length
        self._descriptor = -1
        self._path = path
        self._fresh = fresh
        self._essential = essential

    def write(self, chunk: bytes) -> None:
        """Write `chunk` at the end, going on after a short write. If it cannot be written whole, the file is cut back to
        its durable length. Raises StorageFailed, fatal if even the cut fails or the folder is gone."""
        self._open()
        try:
            self._write(chunk)
        except OSError as error:
            self._cut_back(error)
            raise StorageFailed(f"{self._path.name} could not be written: {reason(error)}.") from error

    def sync(self) -> None:
        """Make everything that was written durable, and close the file. Raises StorageFailed: fatal if a sync failed, and
        it must not be called again; else nothing is lost but what was written, which is cut off again."""
        with ExitStack() as stack:
            try:
                folder = stack.enter_context(open_folder(self._path.parent)) if self._fresh else None
            except OSError as error:  # nothing was synced yet, so nothing can be lost
                self._cut_back(error)
                raise StorageFailed(f"{self._path.name} could not be written: {reason(error)}.") from error
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
            raise gone(self._path, essential=self._essential) from error
        except OSError as error:
            raise StorageFailed(f"{self._path.name} could not be opened: {reason(error)}.") from error
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
            os.fsync(self._descriptor)  # the shorter length is metadata that fdatasync may leave behind
        except OSError as error:
            error.add_note(f"after a write failed: {reason(cause)}")
            raise sync_failed(self._path, error) from error
        finally:
            self.close()
        self.end = self.durable


def gone(path: Path, *, essential: bool) -> StorageFailed:
    """The failure of a file that could not be opened because it, or its folder, is not there: the latter is fatal if
    `essential`."""
    if path.parent.is_dir():
        return StorageFailed(f"{path.name} is gone: it was deleted or moved while the gateway ran.")
    sentence = f"The folder {path.parent} is gone: it was deleted or moved while the gateway ran; put it back."
    return StorageFailed(sentence, fatal=essential)


def sync_failed(path: Path, error: OSError) -> StorageFailed:
    """The fatal failure: what the disk holds of `path` is unknown from here on."""
    return StorageFailed(f"{path.name} could not be made durable: {reason(error)}.", fatal=True)


def reason(error: OSError) -> str:
    """What went wrong, in the system's words."""
    return error.strerror or str(error)
