"""Opening files inside a folder only, even if the folder is changed concurrently.

A check before opening is a race: in between, a folder can become a symbolic link. So nothing is checked by name. The file is
opened in a way that cannot leave the folder, and then checked through its descriptor.

On Linux the kernel does this in one call ("man 2 openat2"). Elsewhere, or if that call is not available, each component is
opened from the previous one without following links.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TypeAlias

LONGEST = 4096
"""Maximum bytes of a path: PATH_MAX of Linux."""

# Do not block on a pipe without a writer, and do not make a device the controlling terminal.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_OPENAT2 = 437
"""The number of the system call, the same on all architectures listed below."""
_ARCHITECTURES = ("x86_64", "aarch64")
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08

Opener: TypeAlias = Callable[[int, tuple[str, ...]], int]
"""Opens the components of a path, at least one, from an open folder; returns a descriptor, raises OSError."""


class OutsideFolder(Exception):
    """The path does not name a regular file or folder inside the folder; `str(error)` is a sentence without the path."""


def open_beneath(folder: Path, name: str, opener: Opener | None = None) -> int:
    """Open a file or folder inside `folder` for reading; return a descriptor that the caller closes.

    Args:
        folder: The folder, which may be a symbolic link itself.
        name: A path relative to `folder`, or an absolute one inside it.
        opener: By default the best one of the system.

    Raises:
        OutsideFolder: The path is refused, or it is neither a folder nor a regular file with exactly one name.
        OSError: There is nothing to open.
    """
    parts = components(folder, name)
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_plain(root, parts, opener or best_opener())
    finally:
        os.close(root)


def open_plain(folder: int, parts: tuple[str, ...], opener: Opener) -> int:
    """Open validated components from an open folder; like `open_beneath` otherwise."""
    try:
        opened = opener(folder, parts)
    except OSError as error:
        if error.errno in (errno.ELOOP, errno.EXDEV):
            raise OutsideFolder("Symbolic links are not followed.") from error
        raise
    try:
        _plain(os.fstat(opened))
    except BaseException:
        os.close(opened)
        raise
    return opened


def components(folder: Path, name: str) -> tuple[str, ...]:
    """Return the components of `name` inside `folder`, `(".",)` for the folder itself. Raises OutsideFolder."""
    if "\0" in name:
        raise OutsideFolder("A path cannot contain a NUL.")
    try:
        size = len(os.fsencode(name))
    except UnicodeEncodeError as error:
        raise OutsideFolder("The path is not text that a file's name can be.") from error
    if size > LONGEST:
        raise OutsideFolder(f"The path is longer than {LONGEST:,} bytes.")
    if name.startswith("/"):
        name = _inside(folder, name)
    parts = tuple(part for part in name.split("/") if part not in ("", "."))
    if ".." in parts:
        raise OutsideFolder("A path with .. is not followed; name the file from the workspace on.")
    return parts or (".",)


def _inside(folder: Path, name: str) -> str:
    # Compare text only; opening from the folder decides what the path refers to.
    for root in (str(folder), os.path.realpath(folder)):
        prefix = root.rstrip("/") + "/"
        if (name.rstrip("/") + "/").startswith(prefix):
            return name[len(prefix) :]
    raise OutsideFolder("The path lies outside the workspace.")


def _plain(found: os.stat_result) -> None:
    if stat.S_ISDIR(found.st_mode):
        return
    if not stat.S_ISREG(found.st_mode):
        raise OutsideFolder("It is neither a file nor a folder, but a pipe, socket or device.")
    if found.st_nlink != 1:
        raise OutsideFolder("The file has a second name (a hard link), perhaps outside the workspace.")


@cache
def best_opener() -> Opener:
    """Return `open_at_once` if this process can use it, else `open_step_by_step`."""
    if sys.platform != "linux" or os.uname().machine not in _ARCHITECTURES:
        return open_step_by_step
    root = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.close(open_at_once(root, (".",)))
    except OSError:
        # ENOSYS from an old kernel, EPERM from a container's filter of system calls.
        return open_step_by_step
    finally:
        os.close(root)
    return open_at_once


def open_at_once(root: int, parts: tuple[str, ...]) -> int:
    """Open with openat2: the kernel refuses to leave the folder or follow links."""
    import ctypes  # noqa: PLC0415 - imported for the first file only

    # struct open_how: flags, mode, resolve, eight bytes each.
    how = (ctypes.c_uint64 * 3)(_READ, 0, _BENEATH | _NO_SYMLINKS | _NO_MAGICLINKS)
    path = os.fsencode("/".join(parts))
    opened = _syscall()(
        ctypes.c_long(_OPENAT2), ctypes.c_int(root), ctypes.c_char_p(path), how, ctypes.c_size_t(ctypes.sizeof(how))
    )
    if opened < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return int(opened)


@cache
def _syscall() -> Callable[..., int]:
    import ctypes  # noqa: PLC0415

    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    return call


def open_step_by_step(root: int, parts: tuple[str, ...]) -> int:
    """Open one component after another, each from the descriptor of the previous one."""
    current = os.dup(root)
    try:
        for part in parts[:-1]:
            following = _step(current, part, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            os.close(current)
            current = following
        return _step(current, parts[-1], _READ)
    finally:
        os.close(current)


def _step(folder: int, part: str, flags: int) -> int:
    try:
        return os.open(part, flags | os.O_NOFOLLOW, dir_fd=folder)
    except NotADirectoryError as error:
        # A link in place of a folder is reported as not a folder. This stat only selects the message; nothing was opened.
        if stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error
        raise
