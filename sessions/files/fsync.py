"""Durable writes on each platform: syncing a file's content, and the names in a folder."""

from __future__ import annotations

import errno
import fcntl
import os
import secrets
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

SCARCE = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOMEM))
"""Errors of a call that did not start: nothing was lost, and a later call may succeed."""

UNSURE = SCARCE | {errno.EIO}
"""Errors of a read after which the content of the file is unknown."""


def sync_content(descriptor: int) -> None:
    """Make a file's bytes and length durable. Raises OSError; the file must then neither be trusted nor synced again."""
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
    """Open a folder for syncing.

    Raises OSError if it cannot be opened, for example because the process has too many open files; nothing was synced then
    and nothing is lost.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def make_folder(folder: Path) -> None:
    """Create a folder (0700) and its missing parents, durably. Raises OSError."""
    if folder.is_dir():
        return
    make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    sync_folder(folder.parent)


def write_new(path: Path, content: Iterable[bytes]) -> None:
    """Create a file (0600) with this content, durably, or leave none. Raises FileExistsError or another OSError."""
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


def replace_file(path: Path, content: bytes) -> None:
    """Replace a file (0600) durably, whole or not at all. Raises OSError."""
    new = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    write_new(new, [content])
    try:
        new.replace(path)
    finally:
        new.unlink(missing_ok=True)
    sync_folder(path.parent)
