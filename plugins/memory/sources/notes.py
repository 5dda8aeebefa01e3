"""The sources of Markdown files: `notes` and `extra`. Both only read, and follow no links.

`notes` are `MEMORY.md` and `memory/` of the workspace and of each person, and shared notes; `plugins.support.workspace`
defines who owns each. `extra` are the files and folders that the operator lists in `memory.extra_paths`: those below the
workspace are named by their relative path, others by their absolute path, and everybody who talks to the assistant may read
them.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from plugins.api.memory.chunks import chunks_of
from plugins.api.memory.scope import Scope
from plugins.api.memory.source import Listing, Reading, WatchedFolders
from plugins.support.safe_open import OutsideFolder, open_beneath
from plugins.support.workspace import EVERYBODY, FOLDER, MAIN, OWNER, PEOPLE, PERSON_ID, SHARED, belongs_to, is_private

LARGEST = 4 * 1024 * 1024
"""Maximum size in bytes of a file that is read."""

_OWN = rf"{re.escape(MAIN)}|{FOLDER}/.*\.md"
_NOTE = re.compile(rf"{_OWN}|{SHARED}/.*\.md|{PEOPLE}/{PERSON_ID.pattern}/(?:{_OWN})", re.DOTALL)


class Notes:
    """The notes of one workspace."""

    name = "notes"

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def watched(self) -> WatchedFolders:
        folders = [self._workspace / name for name in (FOLDER, SHARED, PEOPLE)]
        return WatchedFolders(
            flat=frozenset({self._workspace} if self._workspace.is_dir() else ()),
            deep=frozenset(folder for folder in folders if folder.is_dir()),
        )

    def list_documents(self, known: Mapping[str, str]) -> Listing:
        """Implement `Source.list_documents`.

        A stamp starts with the modification time in nanoseconds and the size, and ends with the owner.
        """
        stamps: dict[str, str] = {}
        large: list[str] = []
        start = len(_prefix(self._workspace))
        for place in self._places():
            path = place[start:]
            stamp, size = stamp_of(place)
            if size > LARGEST:
                large.append(path)
            elif stamp:
                stamps[path] = f"{stamp}.{belongs_to(tuple(path.split('/')))}"
        return Listing(stamps=stamps, large=tuple(large))

    def _places(self) -> Iterator[str]:
        yield from _own_notes(self._workspace)
        yield from markdown_in(self._workspace / SHARED)
        for folder in _folders(self._workspace / PEOPLE):
            yield from _own_notes(folder)

    def read(self, path: str, state: str) -> Reading | None:
        text = read_text(self._workspace, path)
        parts = tuple(path.split("/"))
        if text is None:
            return None
        return Reading(chunks=chunks_of(path, text, private=is_private(parts), owner=belongs_to(parts)))

    def excerpt(self, path: str, first: int, lines: int, scope: Scope) -> str | None:
        if not is_note(path):
            return None
        if not scope.reads(path):
            return ""
        return some_lines(read_text(self._workspace, path) or "", first, lines)


class ExtraNotes:
    """The Markdown files at configurable paths, except the workspace's notes and files of persons."""

    name = "extra"

    def __init__(self, workspace: Path, paths: Callable[[], Sequence[str]]) -> None:
        self._workspace = workspace
        self._paths = paths

    def watched(self) -> WatchedFolders:
        roots = [root for root in map(self._root, self._paths()) if not _unusable(root)]
        return WatchedFolders(
            flat=frozenset(root.parent for root in roots if root.is_file()),
            deep=frozenset(root for root in roots if root.is_dir()),
        )

    def list_documents(self, known: Mapping[str, str]) -> Listing:
        stamps: dict[str, str] = {}
        remarks: list[str] = []
        for given in self._paths():
            root = self._root(given)
            if reason := _unusable(root):
                remarks.append(f"memory.extra_paths: {given} {reason}.")
                continue
            for place in [str(root)] if root.is_file() else markdown_in(root):
                path, (stamp, size) = place.removeprefix(_prefix(self._workspace)), stamp_of(place)
                if size > LARGEST:
                    remarks.append(f"{path} is larger than {LARGEST >> 20} MiB and is not indexed.")
                elif stamp and not _is_elsewhere(path):
                    stamps[path] = stamp
        return Listing(stamps=stamps, remarks=tuple(remarks))

    def _root(self, given: str) -> Path:
        return Path(os.path.normpath(self._workspace / os.path.expanduser(given)))

    def read(self, path: str, state: str) -> Reading | None:
        text = self._text(path)
        return None if text is None else Reading(chunks=chunks_of(path, text))

    def excerpt(self, path: str, first: int, lines: int, scope: Scope) -> str | None:
        if "\0" in path or _is_elsewhere(path) or self._root_of(path) is None:
            return None
        if scope.owners is not None and not scope.everybodys:
            return ""
        return some_lines(self._text(path) or "", first, lines)

    def _text(self, path: str) -> str | None:
        root = self._root_of(path)
        if root is None:
            return None
        place = self._workspace / path
        # Open a listed file relative to its folder, since only then links are not followed.
        folder = root.parent if place == root else root
        return read_text(folder, place.relative_to(folder).as_posix())

    def _root_of(self, path: str) -> Path | None:
        """Return the configured file or folder that contains a path."""
        place = self._workspace / path
        for root in map(self._root, self._paths()):
            below = place.relative_to(root).parts if place.is_relative_to(root) else None
            hidden = below is None or any(part.startswith(".") for part in below)
            if is_markdown(place.name) and not hidden and not _unusable(root):
                return root
        return None


# --- paths --------------------------------------------------------------------------------------------------------------


def is_note(path: str) -> bool:
    """Return True if a path below the workspace can be a visible note."""
    hidden = any(part.startswith(".") for part in path.split("/"))
    return _NOTE.fullmatch(path) is not None and not hidden and "\0" not in path


def _own_notes(folder: Path) -> Iterator[str]:
    yield str(folder / MAIN)
    yield from markdown_in(folder / FOLDER)


def _folders(people: Path) -> list[Path]:
    """Return the folders of persons in order, empty if they cannot be listed."""
    try:
        with os.scandir(people) as entries:
            names = [each.name for each in entries if PERSON_ID.fullmatch(each.name) and each.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [people / name for name in sorted(names)]


def _is_elsewhere(path: str) -> bool:
    """Return True if a file belongs to the source `notes` or to one person."""
    return is_note(path) or belongs_to(tuple(path.split("/"))) not in (OWNER, EVERYBODY)


def _unusable(root: Path) -> str:
    """Return why a path cannot be read, as the end of a sentence; "" if it can."""
    if root.is_symlink():
        return "is a symbolic link, which is not followed"
    if not root.exists():
        return "does not exist"
    if root.is_file() and not is_markdown(root.name):
        return "is not a Markdown file"
    return ""


# --- files --------------------------------------------------------------------------------------------------------------


def markdown_in(folder: Path) -> Iterator[str]:
    """Yield the Markdown files below a folder in order, without hidden ones; none if it cannot be listed. Blocks.

    They are strings, since a `Path` for each takes most of the time.
    """
    for place, names in _walk(folder):
        yield from (os.path.join(place, name) for name in sorted(names) if is_markdown(name))


def folders_in(folder: Path) -> Iterator[Path]:
    """Yield a folder and those below it, without hidden ones; none if it cannot be listed. Blocks."""
    return (Path(place) for place, _ in _walk(folder))


def _prefix(folder: Path) -> str:
    """Return what the paths below a folder begin with."""
    return os.path.join(folder, "")


def _walk(folder: Path) -> Iterator[tuple[str, list[str]]]:
    """Yield the folders that are read, each with the names of its files."""
    for place, folders, names in os.walk(str(folder), onerror=lambda _: None):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield place, names


def is_markdown(name: str) -> bool:
    """Return True for the name of a visible Markdown file."""
    return name.endswith(".md") and not name.startswith(".")


def stamp_of(place: str | Path) -> tuple[str, int]:
    """Return a stamp that changes when a file is written or replaced, and its size; "" and 0 if it is not a regular file."""
    try:
        there = os.lstat(place)
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
