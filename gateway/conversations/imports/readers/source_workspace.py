"""The files of other programs' workspaces: Markdown notes and skills, read without following links."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterator
from pathlib import Path

from gateway.conversations.imports.readers.import_values import LeftOut, SourceItem, SourceNote, SourceSkill
from gateway.conversations.imports.readers.source_text import clean
from plugins.skills.skill_file import NAME as SKILL_FILE
from plugins.skills.skill_file import SkillInvalid
from plugins.skills.skill_folder import read_folder

NOTE_BYTES = 1024 * 1024
"""Maximum bytes of a note."""

MOST_FILES = 20_000
"""Maximum files of a workspace that are looked at."""

DEPTH = 8
"""Maximum nesting of folders."""

_UNSAFE = re.compile(r"[^\w .()+-]+")


def note_path(name: str) -> str:
    """Return a name as one component of a path: without separators, leading dots and control characters; "" if nothing is
    left."""
    return _UNSAFE.sub("-", clean(name, 120)).strip(" .-")[:80]


def files_below(folder: Path) -> Iterator[tuple[str, Path]]:
    """Yield the regular files below a folder, with their paths relative to it, in order. Links and hidden folders are passed
    over."""
    pending, seen = [(folder, "", 0)], 0
    while pending:
        here, prefix, depth = pending.pop()
        try:
            entries = sorted(os.scandir(here), key=lambda entry: entry.name, reverse=True)
        except OSError:
            continue
        for entry in entries:
            if entry.name.startswith(".") or not _is_utf8(entry.name):
                continue
            if entry.is_dir(follow_symlinks=False):
                if depth < DEPTH and entry.name != "node_modules":
                    pending.append((here / entry.name, f"{prefix}{entry.name}/", depth + 1))
            elif entry.is_file(follow_symlinks=False):
                seen += 1
                if seen > MOST_FILES:
                    return
                yield f"{prefix}{entry.name}", here / entry.name


def _is_utf8(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        return False
    return name.isprintable()


def read_plain(path: Path, limit: int) -> bytes:
    """Return the content of a regular file that is no link. Raises OSError, also if it has more than `limit` bytes."""
    opened = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with open(opened, "rb") as stream:
        found = os.fstat(opened)
        if not stat.S_ISREG(found.st_mode):
            raise OSError("it is not a regular file")
        if found.st_size > limit:
            raise OSError(f"it has more than {limit // 2**20} MiB")
        content = stream.read(limit + 1)
    if len(content) > limit:
        raise OSError(f"it has more than {limit // 2**20} MiB")
    return content


def notes_in(folder: Path, *, into: str = "", passing: tuple[str, ...] = ()) -> Iterator[SourceItem]:
    """Yield the Markdown files of a workspace as notes.

    Args:
        folder: The workspace.
        into: A folder of our workspace, ending in a slash, into which they go; empty for the same paths.
        passing: Folders at its top that are not notes, such as `skills`.
    """
    if not folder.is_dir() or folder.is_symlink():
        return
    for name, path in files_below(folder):
        if name.split("/", 1)[0] in passing:
            continue
        if not name.lower().endswith(".md"):
            yield LeftOut(kind="files", reason="no notes in Markdown", name=name)
            continue
        try:
            text = read_plain(path, NOTE_BYTES).decode()
        except (OSError, UnicodeDecodeError) as error:
            reason = "it is not UTF-8" if isinstance(error, UnicodeDecodeError) else error.strerror or str(error)
            yield LeftOut(kind="notes", reason=reason, name=name)
        else:
            if text.strip():
                yield SourceNote(path=into + name, text=text)


def skills_in_folder(folder: Path) -> Iterator[SourceItem]:
    """Yield the skills in a folder: its folders with a `SKILL.md`."""
    if not folder.is_dir() or folder.is_symlink():
        return
    for each in sorted(folder.iterdir()):
        if each.is_symlink() or not (each / SKILL_FILE).is_file():
            continue
        try:
            yield SourceSkill(name=each.name, files=dict(read_folder(each).content))
        except (SkillInvalid, OSError) as error:
            yield LeftOut(kind="skills", reason=str(error).rstrip("."), name=clean(each.name, 80))
