"""Appends a text to a note once and in one piece, while people edit the same file.

People's edits are never overwritten: the text is appended in one write to the content as it was read, or the file is read
again. A write that a crash interrupted is completed by the next one.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from plugins.support.safe_open import OutsideFolder
from plugins.tools.file_target import MAX_FILE_BYTES, FileChanged, FileTarget, open_target

TRIES = 8
"""Attempts to append to a file that others keep changing."""

MOST_FILES = 100
"""Files that one day's note may have."""

_HEAD = 16
"""Bytes that are compared before the rest of a file is."""


class NoteNotWritten(Exception):
    """A text could not be written into a note; `str(error)` is a sentence."""


def append_once(
    workspace: Path,
    path: str,
    text: Callable[[bytes], bytes],
    line: Callable[[bytes], int | None],
    *,
    continued: bool = False,
) -> tuple[str, int]:
    """Append a text to a note unless it is already there. Blocks until it is durable.

    Args:
        workspace: The folder that `path` is relative to.
        path: The note.
        text: Returns the text, which ends with a newline, given the note's content.
        line: Returns the line of the text in a content, counted from 1, or None.
        continued: Allow further files, see `files_of`, if one is full or not writable.

    Returns:
        The file that has the text, and the line.

    Raises:
        NoteNotWritten: No file has the text.
    """
    try:
        for _ in range(TRIES):
            try:
                return _append_to_files(workspace, path, text, line, continued=continued)
            except FileChanged:
                continue
    except OutsideFolder as error:
        raise NoteNotWritten(f"{path}: {error}") from error
    except OSError as error:
        raise NoteNotWritten(f"{path} cannot be written: {error.strerror or error}.") from error
    raise NoteNotWritten(f"{path} keeps changing; try again.")


def files_of(workspace: Path, path: str) -> list[str]:
    """Return the files of a day's note in order: `memory/2026-11-21.md`, `memory/2026-11-21-2.md` and so on. The
    first need not exist."""
    first, *others = _names(path)
    files = [first]
    for name in others:
        if not os.path.lexists(workspace / name):
            break
        files.append(name)
    return files


def _names(path: str) -> Iterator[str]:
    yield path
    stem = path.removesuffix(".md")
    yield from (f"{stem}-{number}.md" for number in range(2, MOST_FILES + 1))


def _append_to_files(
    workspace: Path, path: str, text: Callable[[bytes], bytes], line: Callable[[bytes], int | None], *, continued: bool
) -> tuple[str, int]:
    existing = files_of(workspace, path) if continued else [path]
    contents = b""
    refused: Exception = NoteNotWritten(f"{path} has {MOST_FILES} files already.")
    for number, name in enumerate(_names(path) if continued else existing, 1):
        with open_target(workspace, tuple(name.split("/")), make=True) as place:
            try:
                before = place.content()
                if before is not None and (at := line(before)) is not None:
                    return name, at
                contents += before or b""
                if number < len(existing):
                    continue
                result = _append_to_file(place, before, text(contents), name)
            except (OutsideFolder, NoteNotWritten, PermissionError) as error:
                if not continued or (isinstance(error, PermissionError) and not os.path.lexists(workspace / name)):
                    raise
                refused = error  # a link or a locked file stays as it is; the day continues in the next file
                continue
        at = line(result)
        assert at is not None
        return name, at
    raise refused


def _append_to_file(place: FileTarget, before: bytes | None, content: bytes, name: str) -> bytes:
    """Put a text at the end of a file, and return what it holds then."""
    if before is None:
        place.replace(content, lambda: None)
        return content
    addition = _missing_part(before, content)
    if before and len(before) + len(addition) > MAX_FILE_BYTES:
        raise NoteNotWritten(f"{name} has no room for it, since a note may have {MAX_FILE_BYTES >> 20} MiB; shorten it.")
    place.append(addition, lambda: None)
    return before + addition


def _missing_part(before: bytes, content: bytes) -> bytes:
    """Return what must be appended so that a file ends with the complete text: the rest where a write was cut off, else all
    of it, after an empty line unless it continues a list."""
    at = max(0, len(before) - len(content) + 1)
    if at and before[at - 1 : at] != b"\n":
        at = before.find(b"\n", at) + 1 or len(before)
    while at < len(before):
        if content.startswith(before[at : at + _HEAD]) and content.startswith(before[at:]):
            return content[len(before) - at :]
        at = before.find(b"\n", at) + 1 or len(before)
    last = before.removesuffix(b"\n").rpartition(b"\n")[2]
    end = b"" if before.endswith(b"\n") or not before else b"\n"
    apart = bool(last.strip()) and not (_is_item(last) and _is_item(content))
    return end + (b"\n" if apart else b"") + content


def _is_item(line: bytes) -> bool:
    return line.lstrip().startswith((b"- ", b"* ", b"+ "))
