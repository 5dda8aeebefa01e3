"""Writes the configuration file and the files of secrets, durably. Everything here blocks: call it in a thread.

A crash leaves the old or the new configuration: secrets that it needs are written before it, and those that it no longer
needs are removed after it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import secrets
import stat
import tomllib
from collections.abc import Collection
from hashlib import sha256
from pathlib import Path
from typing import Any

from gateway.config.sources import LONGEST
from gateway.support.errors import GatewayError
from gateway.support.small_files import read_at_most
from sessions.files.fsync import sync_folder, write_new

_SECRET_FILE = re.compile(r"[A-Za-z0-9_.-]+-[0-9a-f]{12}")
"""The name of a file of a secret: its key, and digits that make it new."""

_LOCKED = frozenset((errno.EROFS, errno.EACCES, errno.EPERM, errno.EBUSY))
"""Errors of a file that this process may not replace: a read-only system, missing rights, a mount of the file alone."""


class ConfigChanged(GatewayError):
    """The file was changed since it was read; nothing was written."""


class ConfigUnwritable(GatewayError):
    """The file cannot be written; nothing was changed."""


def digest_of(path: Path) -> str:
    """Return the digest of a file's bytes; empty if there is none. Raises OSError."""
    content = _content(path)
    return "" if content is None else sha256(content).hexdigest()


def _content(path: Path) -> bytes | None:
    """Return the bytes of a configuration, None if there is none. Raises OSError."""
    try:
        content = read_at_most(path, LONGEST)
    except FileNotFoundError:
        return None
    if content is None or not path.is_file():
        raise OSError(errno.EFBIG, "not a file of at most a megabyte")
    return content


def why_unwritable(path: Path) -> str:
    """Return a sentence that says why this process cannot replace a file; empty if it probably can."""
    folder = path.resolve().parent
    while not folder.exists():
        folder = folder.parent
    if os.access(folder, os.W_OK):
        return ""
    return _unwritable(path, OSError(errno.EROFS, "read-only for the gateway"))


def _unwritable(path: Path, error: OSError) -> str:
    reason = error.strerror or str(error)
    how = "change it where it comes from" if error.errno in _LOCKED else "nothing was changed"
    return f"{path} cannot be written ({reason}): {how}."


def write_config(path: Path, text: str, expected: str) -> str:
    """Replace the configuration if its digest is still the `expected` one; return the new digest.

    Links are followed, and the owner, the permissions, the line breaks and the byte order mark of the file are kept. A new
    file is the owner's alone (0600).

    Raises:
        ConfigChanged: The file is not the expected one.
        ConfigUnwritable: The file cannot be written.
    """
    try:
        target = path.resolve()
        content = _content(target)
        before, like = content or b"", None if content is None else target.stat()
        _check_unchanged(target, expected)
        lines = text.replace("\n", "\r\n") if b"\r\n" in before else text
        encoded = lines.encode("utf-8-sig" if before.startswith(b"\xef\xbb\xbf") else "utf-8")
        new = target.with_name(f".{target.name}.{secrets.token_hex(4)}")
        write_new(new, [encoded])
        try:
            if like is not None:
                _take_over(new, like)
            _check_unchanged(target, expected)
            new.replace(target)
        finally:
            new.unlink(missing_ok=True)
        sync_folder(target.parent)
    except OSError as error:
        raise ConfigUnwritable(_unwritable(path, error)) from error
    return sha256(encoded).hexdigest()


def _check_unchanged(path: Path, expected: str) -> None:
    if digest_of(path) != expected:
        raise ConfigChanged("The file was changed by somebody else meanwhile; nothing was written.")


def _take_over(new: Path, like: os.stat_result) -> None:
    """Give a new file the owner and the permissions of the one that it replaces, durably."""
    descriptor = os.open(new, os.O_RDONLY | os.O_CLOEXEC)
    try:
        with contextlib.suppress(PermissionError):
            os.fchown(descriptor, like.st_uid, like.st_gid)
        os.fchmod(descriptor, stat.S_IMODE(like.st_mode))
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# --- secrets ----------------------------------------------------------------------------------------------------------


class SecretFiles:
    """The files of secrets in a folder, which a configuration in `config_folder` refers to."""

    def __init__(self, folder: Path, config_folder: Path) -> None:
        self._folder = folder.absolute()
        self._config_folder = config_folder.absolute()

    def add(self, key: str, secret: str) -> str:
        """Write the secret of a key into a new file (0600) and return the reference to it.

        Raises:
            ConfigUnwritable: The file cannot be written.
        """
        path = self._folder / f"{key}-{secrets.token_hex(6)}"
        try:
            write_new(path, [secret.encode(), b"\n"])
        except OSError as error:
            raise ConfigUnwritable(_unwritable(path, error)) from error
        return self._reference(path)

    def remove(self, references: Collection[str]) -> None:
        """Remove the files that these references name; errors are ignored."""
        with contextlib.suppress(OSError):
            for path in self._folder.iterdir():
                if _SECRET_FILE.fullmatch(path.name) and self._reference(path) in references:
                    path.unlink()

    def remove_unused(self, before: str, after: str) -> None:
        """Remove the files that the first text of a configuration refers to and the second does not; errors are ignored."""
        self.remove(_strings(tomllib.loads(before)) - _strings(tomllib.loads(after)))

    def _reference(self, path: Path) -> str:
        inside = path.is_relative_to(self._config_folder)
        return f"file:{path.relative_to(self._config_folder) if inside else path}"


def _strings(value: Any) -> set[str]:
    """Return all texts in a tree."""
    if isinstance(value, str):
        return {value}
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return set().union(*map(_strings, inner))
