"""Atomic writes of a file in the workspace, below a directory that is held open.

Each step is relative to the descriptor of the directory before it and follows no link, so a write cannot leave the directory
that was opened, even if somebody renames directories meanwhile. A file is replaced as a whole: the new one is written beside
it, synced and renamed over it, so a crash leaves either the old or the new file.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from plugins.support.errors import ToolFailed
from plugins.support.safe_open import OutsideFolder, components, open_plain, open_step_by_step
from plugins.support.workspace import NotesAccess, meant, why_refused

if TYPE_CHECKING:
    from plugins.api.context import PluginContext
    from plugins.api.tool import ToolContext

MAX_FILE_BYTES = 1024 * 1024
"""Maximum size in bytes of a file that is written or edited."""

_NEW = ".exuvia-new-"
_STALE_SECONDS = 600.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

# Held from the last check of a file to its replacement, so that no other thread's write is lost in between.
_LOCKS = tuple(threading.Lock() for _ in range(64))

_Stamp: TypeAlias = tuple[int, int, int, int]


class FileChanged(Exception):
    """The file was changed by somebody else; nothing was written."""


class FileTarget:
    """A file name in an open directory. Remembers the state of the file when it was read, to detect changes."""

    def __init__(self, folder: int, name: str) -> None:
        self._folder = folder
        self._name = name
        self._stamp: _Stamp | None = None
        self._mode = 0o600

    def content(self) -> bytes | None:
        """Return the content of the file, or None if it does not exist.

        Raises:
            OutsideFolder: It is not a regular file of at most `MAX_FILE_BYTES` bytes.
            OSError: It cannot be read.
        """
        try:
            opened = open_plain(self._folder, (self._name,), open_step_by_step)
        except FileNotFoundError:
            self._check_case_collision()
            return None
        found = os.fstat(opened)
        if stat.S_ISDIR(found.st_mode):
            os.close(opened)
            raise OutsideFolder("The path is a folder.")
        with open(opened, "rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise OutsideFolder(f"The file is larger than {MAX_FILE_BYTES >> 20} MiB, the most that this tool changes.")
        self._stamp, self._mode = _stamp(found), stat.S_IMODE(found.st_mode) & 0o777
        return content

    def create(self) -> int:
        """Create the file and return a descriptor for writing, which the caller closes. OSError if it exists."""
        return os.open(self._name, _CREATE, 0o600, dir_fd=self._folder)

    def replace(self, content: bytes, check_cancelled: Callable[[], object]) -> None:
        """Replace the content atomically, keeping the permissions.

        Args:
            content: The new content.
            check_cancelled: Called just before the change takes effect; may raise to cancel it.

        Raises:
            FileChanged: The file changed since `content` was called. Nothing was written.
            OSError: The file cannot be written. Nothing was changed.
        """
        self._remove_leftovers()
        temporary = f"{_NEW}{secrets.token_hex(8)}"
        descriptor = os.open(temporary, _CREATE, 0o600, dir_fd=self._folder)
        try:
            try:
                _write_all(descriptor, content)
                os.fchmod(descriptor, self._mode)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            check_cancelled()
            self._check_unchanged()
            os.rename(temporary, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(temporary, dir_fd=self._folder)
            raise
        os.fsync(self._folder)

    def remove(self) -> None:
        """Remove the file.

        Raises:
            FileChanged: The file changed since `content` was called. Nothing was removed.
            OSError: The file cannot be removed.
        """
        self._check_unchanged()
        os.unlink(self._name, dir_fd=self._folder)
        os.fsync(self._folder)

    def append(self, content: bytes, check_cancelled: Callable[[], object]) -> None:
        """Append to the file in one write; otherwise like `replace`."""
        descriptor = os.open(self._name, _APPEND, dir_fd=self._folder)
        try:
            before = os.fstat(descriptor)
            if _stamp(before) != self._stamp:
                raise FileChanged
            check_cancelled()
            written = os.write(descriptor, content)
            if written < len(content):
                # A partial section is worse than none. Remove only what this call wrote.
                if os.fstat(descriptor).st_size == before.st_size + written:
                    os.ftruncate(descriptor, before.st_size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _check_unchanged(self) -> None:
        try:
            now = _stamp(os.stat(self._name, dir_fd=self._folder, follow_symlinks=False))
        except FileNotFoundError:
            now = None
        if now != self._stamp:
            raise FileChanged

    def _check_case_collision(self) -> None:
        # On case-insensitive file systems both would be one file, and people would confuse them anywhere.
        for name in os.listdir(self._folder):
            if name.casefold() == self._name.casefold():
                raise OutsideFolder(f"{name!r} already exists; names that differ only in case are not created.")

    def _remove_leftovers(self) -> None:
        """Remove temporary files of writers that were killed; a recent one may still be in use."""
        for name in os.listdir(self._folder):
            if name.startswith(_NEW):
                with suppress(OSError):
                    found = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
                    if time.time() - found.st_mtime > _STALE_SECONDS:
                        os.unlink(name, dir_fd=self._folder)


def workspace_file(context: PluginContext, path: str, call: ToolContext, *, writes: bool = False) -> Path:
    """Return the file or directory of the workspace that the person of a call means by a path.

    Only the text of the path is checked: the file need not exist, and may be a link.

    Args:
        context: The context the tool was created with.
        path: As the model wrote it: relative, or absolute and inside the workspace.
        call: The tool call. In a group nobody's `MEMORY.md` is read.
        writes: The tool changes the file, which may not be one of `agent.protected_files`.

    Returns:
        The path inside the workspace.

    Raises:
        ToolFailed: The path is outside of the workspace, or this person may not read or change it.
    """
    try:
        if writes:
            parts = writable_parts(
                context.workspace,
                path,
                context.protected(),
                person=call.person,
                group=call.group,
                notes=call.notes,
            )
        else:
            parts = readable_parts(context.workspace, path, person=call.person, group=call.group, notes=call.notes)
    except OutsideFolder as error:
        raise ToolFailed(str(error)) from error
    return context.workspace.joinpath(*parts)


def readable_parts(workspace: Path, path: str, *, person: str, group: bool, notes: NotesAccess = "all") -> tuple[str, ...]:
    """Return the components of a path that `person` may read.

    Raises:
        OutsideFolder: The path may not be read; the message says why.
    """
    parts = meant(components(workspace, path), person)
    if why := why_refused(parts, person, group=group, notes=notes):
        raise OutsideFolder(why)
    return parts


def writable_parts(
    workspace: Path,
    path: str,
    protected: Sequence[str],
    *,
    person: str,
    group: bool = False,
    notes: NotesAccess = "all",
) -> tuple[str, ...]:
    """Return the components of a path that `person` may write.

    Args:
        workspace: The workspace directory.
        path: The path as the model wrote it.
        protected: Paths relative to the workspace that only the operator changes, compared without case; folders end with a
            slash.
        person: The person of the call.
        group: True if others read the conversation too.
        notes: The notes that the person's role shows them, which no other is changed by.

    Raises:
        OutsideFolder: The path may not be written; the message says why.
    """
    parts = plain_parts(workspace, path, person)
    plain = f"{'/'.join(parts)}/".casefold()
    for one in map(str.casefold, protected):
        if plain == f"{one}/":
            raise OutsideFolder(
                "This file holds the operator's instructions; only the operator may change it (agent.protected_files)."
            )
        if one.endswith("/") and plain.startswith(one):
            raise OutsideFolder("This folder holds skills; only the operator may change it (skills.paths).")
    if why := why_refused(parts, person, group=group, writes=True, notes=notes):
        raise OutsideFolder(why)
    return parts


def plain_parts(workspace: Path, path: str, person: str) -> tuple[str, ...]:
    """Return the components of a path that `person` means, if its name is acceptable for a new file.

    Raises:
        OutsideFolder: The name is not acceptable; the message says why.
    """
    named = components(workspace, path)
    if named == (".",) or path.endswith("/"):
        raise OutsideFolder("The path is a folder.")
    for part in named:
        if part.startswith("."):
            # Other programs execute files such as .git/hooks and .envrc.
            raise OutsideFolder("Names that begin with a dot cannot be written.")
        if not part.isprintable() or part != part.strip() or part.endswith("."):
            raise OutsideFolder("A name must be printable, and may not begin with a space or end with a space or a dot.")
    return meant(named, person)


@contextmanager
def open_target(workspace: Path, parts: tuple[str, ...], *, make: bool) -> Iterator[FileTarget]:
    """Open the directory of a file for writing, exclusively within this process.

    Args:
        workspace: The workspace directory.
        parts: The components of the path.
        make: Create missing directories (0700).

    Raises:
        OutsideFolder: The path leaves the workspace.
        OSError: A directory cannot be opened or created.
    """
    if ".." in parts:
        raise OutsideFolder("Paths with .. are not allowed.")
    current = os.open(workspace, _FOLDER)
    try:
        for part in parts[:-1]:
            child = _enter(current, part, make=make)
            os.close(current)
            current = child
        found = os.fstat(current)
        with _LOCKS[hash((found.st_dev, found.st_ino, parts[-1].casefold())) % len(_LOCKS)]:
            yield FileTarget(current, parts[-1])
    finally:
        os.close(current)


def _enter(folder: int, part: str, *, make: bool) -> int:
    try:
        return open_plain(folder, (part, "."), open_step_by_step)
    except FileNotFoundError:
        if not make:
            raise
        with suppress(FileExistsError):
            os.mkdir(part, 0o700, dir_fd=folder)
        os.fsync(folder)
        return open_plain(folder, (part, "."), open_step_by_step)


def _stamp(found: os.stat_result) -> _Stamp:
    return found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns


def _write_all(descriptor: int, content: bytes) -> None:
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
