"""The lock of a home, which allows one process at a time.

It is one call of flock, so no library is used: filelock does not say who holds the lock.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import stat
from pathlib import Path
from types import TracebackType

from sessions.events.errors import HomeLocked
from sessions.files.fsync import make_folder


class HomeLock:
    """An exclusive lock on a home, held as a context manager. Entering raises HomeLocked if another process holds it or its
    file cannot be used.

    The kernel releases the lock when the process ends, however that happens, so the file never has to be removed; its
    content only tells people which process wrote it last.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._descriptor = -1

    def __enter__(self) -> HomeLock:
        make_folder(self._path.parent)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW  # a child process must not inherit the lock
        try:
            descriptor = os.open(self._path, flags, 0o600)
        except OSError as error:
            raise HomeLocked(f"{self._path} cannot be opened: {error.strerror}.") from error
        try:
            if not stat.S_ISREG(os.fstat(descriptor).st_mode):
                raise HomeLocked(f"{self._path} is not a regular file; remove it.")
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = "unknown"
            with contextlib.suppress(OSError):
                owner = os.pread(descriptor, 20, 0).decode("ascii", "replace").strip() or owner
            os.close(descriptor)
            raise HomeLocked(
                f"{self._path.parent} is in use by another gateway (process {owner}); stop it, or choose another home."
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        self._descriptor = descriptor
        with contextlib.suppress(OSError):  # for example a full disk: the lock is held anyway
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, b"%d\n" % os.getpid(), 0)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        os.close(self._descriptor)
        self._descriptor = -1
