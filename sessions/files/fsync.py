"""The disk's own promises, where the platforms differ: what a sync is, and how a name in a folder becomes durable."""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

SCARCE = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""Errors of a call that was not even begun: nothing was lost, and the same call may succeed a moment later."""

UNSURE = SCARCE | {errno.EIO}
"""Errors of reading a file after which nobody knows what stands in it."""


def sync_content(descriptor: int) -> None:
    """Make a file's bytes and length durable. Raises OSError; then the file must not be trusted, nor synced again."""
    if sys.platform == "darwin":
        fcntl.fcntl(descriptor, fcntl.F_FULLFSYNC)  # fsync alone leaves the bytes in the drive's cache there
    else:
        os.fdatasync(descriptor)


def sync_folder(folder: Path) -> None:
    """Make the names in a folder durable. Raises OSError."""
    with open_folder(folder) as descriptor:
        os.fsync(descriptor)


@contextmanager
def open_folder(folder: Path) -> Iterator[int]:
    """Hold a descriptor of a folder, whose sync makes the names in it durable. Raises OSError if it cannot be opened: the
    process may have too many files open, and then nothing was synced and nothing is lost."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Make a folder (0700), and those above it that are missing, durably. Raises OSError."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def write_new(path: Path, content: Iterable[bytes]) -> None:
    """Write a new file (0600), durably, name included, or leave none. Raises FileExistsError or another OSError."""
    make_folder(path.parent)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
    try:
        with open(descriptor, "wb") as file:
            file.writelines(content)
            file.flush()
            sync_content(descriptor)
    except BaseException:
        path.unlink()
        raise
    sync_folder(path.parent)
