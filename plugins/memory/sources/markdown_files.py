"""Markdown files in a folder: which there are, when they changed, what stands in them. Links are not followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from plugins.support.safe_open import OutsideFolder, open_beneath

LARGEST = 4 * 1024 * 1024
"""Bytes of a file that are read; a larger one is no note."""


def markdown_in(folder: Path) -> Iterator[Path]:
    """The Markdown files in a folder and those below it, in order, hidden ones left out; none where it cannot be listed.
    Blocks for as long as the folder takes to list."""
    for place, folders, names in os.walk(folder, onerror=lambda _: None):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place, name) for name in sorted(names) if is_markdown(name))


def is_markdown(name: str) -> bool:
    """Whether a file is one of those, by its name."""
    return name.endswith(".md") and not name.startswith(".")


def stamp_of(place: Path) -> tuple[str, int]:
    """What changes when a file is written or replaced, and its size in bytes; empty and 0 for what is no plain file."""
    try:
        there = place.lstat()
    except OSError:
        return "", 0
    if not stat.S_ISREG(there.st_mode):
        return "", 0
    return f"{there.st_mtime_ns}.{there.st_size}.{there.st_ino}", there.st_size


def read_text(folder: Path, path: str) -> str | None:
    """The text of the file that `path` means inside the folder; None where there is none, or none that may be read."""
    try:
        opened = open_beneath(folder, path)
    except (OutsideFolder, OSError):
        return None
    try:
        with open(opened, "rb") as file:
            content = file.read(LARGEST)
    except OSError:
        return None  # a folder with a file's name
    return content.decode("utf-8", "replace")


def some_lines(text: str, first: int, lines: int) -> str:
    """At most so many lines of a text, from the line `first`, counted from 1."""
    return "\n".join(text.replace("\r\n", "\n").split("\n")[first - 1 : first - 1 + lines])
