"""Opening what lies beneath a folder, and nothing else, whatever somebody does to the folder meanwhile.

A check before an open is a race: between the two, a folder can become a symbolic link. So nothing is checked by name. The
file is opened in a way that cannot leave the folder, and what was opened is then looked at through its descriptor.

On Linux the kernel does it in one step (openat2, "man 2 openat2"). Elsewhere, or where that call is not to be had, each
component is opened in turn from the folder opened before it, without following a link.
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
"""Bytes of a path that are looked at: PATH_MAX of Linux."""

# Not blocking, so that a pipe without a writer answers at once; not becoming the terminal that a device may be.
_READ = os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

_OPENAT2 = 437
"""The number of the system call, the same on every architecture of Linux that is looked for here."""
_ARCHITECTURES = ("x86_64", "aarch64")
_NO_MAGICLINKS, _NO_SYMLINKS, _BENEATH = 0x02, 0x04, 0x08

Opener: TypeAlias = Callable[[int, tuple[str, ...]], int]
"""Opens the components of a path, at least one, from an open folder; returns a descriptor, raises OSError."""


class OutsideFolder(Exception):
    """What was named is not a plain file or folder of this folder; `str(error)` is a sentence without the path."""


def open_beneath(folder: Path, name: str, opener: Opener | None = None) -> int:
    """Open for reading the file or folder that `name` means inside `folder`; returns a descriptor that the caller closes.

    `name` is relative to `folder`, or absolute and inside it. `folder` itself is its owner's choice and may be a link.
    Raises NotBeneath for what is refused whether it exists or not, and for what is neither a folder nor a regular file
    with exactly one name; OSError where there is nothing to open. `opener` is the system's best by default.
    """
    parts = components(folder, name)
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        return open_plain(root, parts, opener or best_opener())
    finally:
        os.close(root)


def open_plain(folder: int, parts: tuple[str, ...], opener: Opener) -> int:
    """As `open_beneath`, from an open folder, for components that are known to be harmless."""
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
    """The components of `name` beneath `folder`, `(".",)` for the folder itself; NotBeneath where it can have none."""
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
    # By the text alone: what it means is decided when it is opened, from the folder.
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
    """The kernel's own way where this process may use it, else step by step."""
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
    """An `Opener` by openat2, which refuses in the kernel to leave the folder or to follow any link."""
    import ctypes  # noqa: PLC0415 - only the first file that is read pays for it

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
    """An `Opener` that opens one component after the other, each from the descriptor of the one before."""
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
        # A link that should be a folder is reported as no folder. The look is for the sentence only: nothing was opened.
        if stat.S_ISLNK(os.stat(part, dir_fd=folder, follow_symlinks=False).st_mode):
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP)) from error
        raise
