"""A place in the workspace where a file may be written: its folder, held open, and its name there.

Every step is taken from the descriptor of the folder before it and follows no link, so whatever somebody does to the folders
meanwhile, what is written lies in the folder that was opened. A file is exchanged as a whole: the new one is written
beside it, synced, and renamed over it, and a crash at any moment leaves the old or the new.
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
from plugins.support.workspace import meant, why_refused

if TYPE_CHECKING:
    from plugins.api.context import PluginContext
    from plugins.api.tool import ToolContext

LARGEST = 1024 * 1024
"""Bytes of a file that is written or edited, at most."""

_NEW = ".exuvia-new-"
_STALE_SECONDS = 600.0
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_APPEND = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC

# Between the last look at a file and its exchange another thread must not have exchanged it: its content would be lost.
_LOCKS = tuple(threading.Lock() for _ in range(64))

_Stamp: TypeAlias = tuple[int, int, int, int]


class FileChanged(Exception):
    """Somebody else changed the file in this moment; nothing was written."""


class FileTarget:
    """One name in an open folder. `stamp` is of the file that was there when it was looked at, None for no file."""

    def __init__(self, folder: int, name: str) -> None:
        self._folder = folder
        self._name = name
        self._stamp: _Stamp | None = None
        self._mode = 0o600

    def content(self) -> bytes | None:
        """The bytes of the file that is there, or None; NotBeneath for what is no plain file of at most `LARGEST` bytes,
        OSError."""
        try:
            opened = open_plain(self._folder, (self._name,), open_step_by_step)
        except FileNotFoundError:
            self._refuse_a_twin()
            return None
        found = os.fstat(opened)
        if stat.S_ISDIR(found.st_mode):
            os.close(opened)
            raise OutsideFolder("It is a folder.")
        with open(opened, "rb") as file:
            content = file.read(LARGEST + 1)
        if len(content) > LARGEST:
            raise OutsideFolder(f"The file is larger than {LARGEST >> 20} MiB, the most that this tool changes.")
        self._stamp, self._mode = _stamp(found), stat.S_IMODE(found.st_mode) & 0o777
        return content

    def replace(self, content: bytes, go_on: Callable[[], object]) -> None:
        """Put this content there, with the permissions of what was there. `go_on` is asked last before it counts, and may
        raise. OSError or FileChanged leave everything as it was."""
        self._remove_leftovers()
        fresh = f"{_NEW}{secrets.token_hex(8)}"
        descriptor = os.open(fresh, _CREATE, 0o600, dir_fd=self._folder)
        try:
            try:
                _write_all(descriptor, content)
                os.fchmod(descriptor, self._mode)
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            go_on()
            self._refuse_a_change()
            os.rename(fresh, self._name, src_dir_fd=self._folder, dst_dir_fd=self._folder)
        except BaseException:
            with suppress(FileNotFoundError):
                os.unlink(fresh, dir_fd=self._folder)
            raise
        os.fsync(self._folder)

    def append(self, content: bytes, go_on: Callable[[], object]) -> None:
        """Put this content behind what is there, in one write; as `replace` otherwise."""
        descriptor = os.open(self._name, _APPEND, dir_fd=self._folder)
        try:
            before = os.fstat(descriptor)
            if _stamp(before) != self._stamp:
                raise FileChanged
            go_on()
            written = os.write(descriptor, content)
            if written < len(content):
                # A part of a section is worse than none. Only what was written here is taken back.
                if os.fstat(descriptor).st_size == before.st_size + written:
                    os.ftruncate(descriptor, before.st_size)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def _refuse_a_change(self) -> None:
        try:
            now = _stamp(os.stat(self._name, dir_fd=self._folder, follow_symlinks=False))
        except FileNotFoundError:
            now = None
        if now != self._stamp:
            raise FileChanged

    def _refuse_a_twin(self) -> None:
        # On some systems both would be one file, and a person would take one for the other anyway.
        for name in os.listdir(self._folder):
            if name.casefold() == self._name.casefold():
                raise OutsideFolder(f"There is {name!r} already; names that differ only in capitals are not made.")

    def _remove_leftovers(self) -> None:
        """Of writers that were killed; one that is fresh may be another's work."""
        for name in os.listdir(self._folder):
            if name.startswith(_NEW):
                with suppress(OSError):
                    found = os.stat(name, dir_fd=self._folder, follow_symlinks=False)
                    if time.time() - found.st_mtime > _STALE_SECONDS:
                        os.unlink(name, dir_fd=self._folder)


def workspace_file(context: PluginContext, path: str, call: ToolContext, *, writes: bool = False) -> Path:
    """Return the file or folder of the workspace that the person of a call means by a path.

    The path is checked by its text: what lies there need not exist, and may be a link.

    Args:
        house: What the tool was given.
        path: As the model wrote it: relative, or absolute and inside the workspace.
        call: For whom the tool runs. In a group nobody's `MEMORY.md` is read.
        writes: The tool changes the file, which may not be one of `agent.protected_files`.

    Raises:
        ToolFailed: The path lies elsewhere, or this person may not read or change it there.
    """
    try:
        if writes:
            parts = writable_parts(context.workspace, path, context.protected(), person=call.person, group=call.group)
        else:
            parts = readable_parts(context.workspace, path, person=call.person, group=call.group)
    except OutsideFolder as error:
        raise ToolFailed(str(error)) from error
    return context.workspace.joinpath(*parts)


def readable_parts(workspace: Path, path: str, *, person: str, group: bool) -> tuple[str, ...]:
    """The components of the path that `person` means and may read; NotBeneath with the reason for one that may not be."""
    parts = meant(components(workspace, path), person)
    if why := why_refused(parts, person, group=group):
        raise OutsideFolder(why)
    return parts


def writable_parts(
    workspace: Path, path: str, protected: Sequence[str], *, person: str, group: bool = False
) -> tuple[str, ...]:
    """The components of the path that `person` means and may write; NotBeneath with the reason for one that may not be.
    `protected` are paths from the workspace on, whatever their capitals. Others read along in a `group`."""
    parts = plain_parts(workspace, path, person)
    plain = "/".join(parts).casefold()
    if any(plain == one.casefold() for one in protected):
        raise OutsideFolder("This file holds the operator's orders; only the operator changes it (agent.protected_files).")
    if why := why_refused(parts, person, group=group, writes=True):
        raise OutsideFolder(why)
    return parts


def plain_parts(workspace: Path, path: str, person: str) -> tuple[str, ...]:
    """The components of the file that `person` means; NotBeneath with the reason where no file is written by such a name."""
    named = components(workspace, path)
    if named == (".",) or path.endswith("/"):
        raise OutsideFolder("It is a folder.")
    for part in named:
        if part.startswith("."):
            # .git/hooks, .envrc and their like are run by other programs.
            raise OutsideFolder("Names that begin with a dot are not written.")
        if not part.isprintable() or part != part.strip() or part.endswith("."):
            raise OutsideFolder("A name is printable, and neither begins with a space nor ends with a space or a dot.")
    return meant(named, person)


@contextmanager
def file_place(workspace: Path, parts: tuple[str, ...], *, make: bool) -> Iterator[FileTarget]:
    """The place that the parts name; with `make`, folders that are missing are made (0700). Of this process nobody else has
    it at the same time. Raises NotBeneath, OSError."""
    if ".." in parts:
        raise OutsideFolder("A path with .. is not followed.")
    current = os.open(workspace, _FOLDER)
    try:
        for part in parts[:-1]:
            following = _enter(current, part, make=make)
            os.close(current)
            current = following
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
