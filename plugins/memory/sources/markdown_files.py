"""Markdown files below a folder. Links are not followed."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from plugins.support.safe_open import OutsideFolder, open_beneath

LARGEST = 4 * 1024 * 1024
"""Maximum size in bytes of a file that is read."""


def markdown_in(folder: Path) -> Iterator[Path]:
    """Yield the Markdown files below a folder in order, without hidden ones; none if it cannot be listed. Blocks."""
    for place, names in _walk(folder):
        yield from (Path(place, name) for name in sorted(names) if is_markdown(name))


def folders_in(folder: Path) -> Iterator[Path]:
    """Yield a folder and those below it, without hidden ones; none if it cannot be listed. Blocks."""
    return (Path(place) for place, _ in _walk(folder))


def _walk(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the folders that are read, each with the names of its files."""
    for place, folders, names in os.walk(folder, onerror=lambda _: None):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield place, names


def is_markdown(name: str) -> bool:
    """Return True for the name of a visible Markdown file."""
    return name.endswith(".md") and not name.startswith(".")


def stamp_of(place: Path) -> tuple[str, int]:
    """Return a stamp that changes when a file is written or replaced, and its size; "" and 0 if it is not a regular file."""
    try:
        there = place.lstat()
    except OSError:
        return "", 0
    if not stat.S_ISREG(there.st_mode):
        return "", 0
    return f"{there.st_mtime_ns}.{there.st_size}.{there.st_ino}", there.st_size


def read_text(folder: Path, path: str) -> str | None:
    """Return the text of a file inside a folder, None if it cannot be read."""
    try:
        opened = open_beneath(folder, path)
    except (OutsideFolder, OSError):
        return None
    try:
        with open(opened, "rb") as file:
            content = file.read(LARGEST)
    except OSError:
        return None  # a folder
    return content.decode("utf-8", "replace")


def some_lines(text: str, first: int, lines: int) -> str:
    """Return at most `lines` lines of a text from the line `first` on, counted from 1."""
    return "\n".join(text.replace("\r\n", "\n").split("\n")[first - 1 : first - 1 + lines])
