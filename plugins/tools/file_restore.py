"""Restoring a workspace file that a tool changed, if it still is what the tool left."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

import msgspec

from plugins.support.safe_open import OutsideFolder
from plugins.tools.file_changes import seen_files
from plugins.tools.file_target import FileChanged, FileTarget, open_target, writable_parts


class NotRestored(Exception):
    """The file was left as it is; `str(error)` says why, as the end of a sentence."""


class FileAccess(msgspec.Struct, frozen=True, kw_only=True):
    """The rights with which files are restored: those of a person in a chat.

    `protected` are paths that only the operator changes; in a `group` others read along.
    """

    workspace: Path
    protected: Sequence[str]
    person: str
    group: bool


def restore(access: FileAccess, path: str, *, expected: str | None, content: bytes | None) -> None:
    """Give a file its former content, atomically, or remove it if there was none. Blocks.

    A file that has the former content already is not touched, so that this can be repeated after a crash.

    Args:
        access: Whose rights count.
        path: The path, relative to the workspace.
        expected: The SHA-256 of the content that the tool left; None if it left no file.
        content: The former content; None if there was no file.

    Raises:
        NotRestored: The file is not what the tool left, or cannot be written.
    """
    try:
        parts = writable_parts(access.workspace, path, access.protected, person=access.person, group=access.group)
        with (
            seen_files(access.workspace).changing,
            open_target(access.workspace, parts, make=content is not None) as target,
        ):
            _restore(target, expected, content)
    except OutsideFolder as error:
        raise NotRestored(str(error)[:1].lower() + str(error)[1:].rstrip(".")) from error
    except FileChanged as error:
        raise NotRestored("it is being changed by another program") from error
    except FileNotFoundError as error:  # its folder is gone
        if content is not None or expected is None:
            raise NotRestored("its folder was removed") from error
    except OSError as error:
        raise NotRestored(f"it could not be written ({error.strerror})") from error


def _restore(target: FileTarget, expected: str | None, content: bytes | None) -> None:
    current = target.content()
    if current == content:
        return
    if (None if current is None else sha256(current).hexdigest()) != expected:
        raise NotRestored("it was removed since" if current is None else "it was changed since")
    if content is None:
        target.remove()
    else:
        target.replace(content, lambda: None)
