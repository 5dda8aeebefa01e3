"""Which files of the workspace are notes, and what stands in them. Nothing here changes one."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from plugins.tools.beneath import NotBeneath, open_beneath

LARGEST = 4 * 1024 * 1024
"""Bytes of a note that are read; what is larger is none."""

MAIN = "MEMORY.md"
FOLDER = "memory"


def find_notes(workspace: Path) -> Mapping[str, str]:
    """The notes by their paths below the workspace, each with a stamp that changes when it is written: `MEMORY.md` and the
    Markdown files in `memory/`, links left out. Blocks for as long as the folder takes to list."""
    found: dict[str, str] = {}
    places = [workspace / MAIN]
    for folder, folders, names in os.walk(workspace / FOLDER, onerror=lambda _: None):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        places += [Path(folder) / name for name in sorted(names) if name.endswith(".md") and not name.startswith(".")]
    for place in places:
        try:
            there = place.lstat()
        except OSError:
            continue
        if there.st_size <= LARGEST and not place.is_symlink():
            found[place.relative_to(workspace).as_posix()] = f"{there.st_mtime_ns}.{there.st_size}.{there.st_ino}"
    return found


def is_note(path: str) -> bool:
    """Whether a path below the workspace could be a note's."""
    return path == MAIN or (path.startswith(f"{FOLDER}/") and path.endswith(".md"))


def read_note(workspace: Path, path: str) -> str | None:
    """A note's text; None where there is none, or none that may be read."""
    try:
        opened = open_beneath(workspace, path)
    except (NotBeneath, OSError):
        return None
    try:
        with open(opened, "rb") as file:
            content = file.read(LARGEST)
    except OSError:
        return None  # a folder with a note's name
    return content.decode("utf-8", "replace")
