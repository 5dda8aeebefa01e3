"""One file that grows at its end, and whose durable length is known exactly. Used on the committer's threads."""

from __future__ import annotations

import errno
import os
from pathlib import Path

from sessions.disk import sync_content, sync_folder
from sessions.errors import StorageFailed


class AppendFile:
    """An open file: `durable` bytes of it survive a power cut, `end` bytes are written.

    `fresh` says that its name in the folder may not be durable yet; the first sync then covers the folder too. Bytes are
    written at their offset and not by O_APPEND, so where they stand never depends on what a failed write left behind.
    """

    def __init__(self, descriptor: int, path: Path, length: int, *, fresh: bool) -> None:
        self.durable = length
        self.end = length
        self._descriptor = descriptor
        self._path = path
        self._fresh = fresh

    def write(self, chunk: bytes) -> None:
        """Write `chunk` at the end, going on after a short write. If it cannot be written whole, the file is cut back to
        its durable length and closed; raises StorageFailed, fatal if even the cut fails."""
        try:
            self._write(chunk)
        except OSError as error:
            self._cut_back(error)
            raise StorageFailed(f"{self._path.name} could not be written: {reason(error)}.") from error

    def sync(self) -> None:
        """Make everything that was written durable. Raises StorageFailed, always fatal: it must not be called again."""
        try:
            sync_content(self._descriptor)
            if self._fresh:
                sync_folder(self._path.parent)
                self._fresh = False
        except OSError as error:
            raise sync_failed(self._path, error) from error
        self.durable = self.end

    def close(self) -> None:
        """Let go of the file; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

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
        self.end = self.durable
        self.close()


def sync_failed(path: Path, error: OSError) -> StorageFailed:
    """The fatal failure: what the disk holds of `path` is unknown from here on."""
    return StorageFailed(f"{path.name} could not be made durable: {reason(error)}.", fatal=True)


def reason(error: OSError) -> str:
    """What went wrong, in the system's words."""
    return error.strerror or str(error)
