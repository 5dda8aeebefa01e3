"""The source `extra`: Markdown files and folders that the operator lists in `memory.extra_paths`.

Files below the workspace are named by their relative path, others by their absolute path. Everybody who talks to the
assistant may read them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from plugins.api.memory.chunks import chunks_of
from plugins.api.memory.scope import Scope
from plugins.api.memory.source import Listing, Reading, WatchedFolders
from plugins.memory.sources.markdown_files import LARGEST, is_markdown, markdown_in, read_text, some_lines, stamp_of
from plugins.memory.sources.notes import is_note
from plugins.support.workspace import EVERYBODY, OWNER, belongs_to


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
            for place in [root] if root.is_file() else markdown_in(root):
                path, (stamp, size) = self._called(place), stamp_of(place)
                if size > LARGEST:
                    remarks.append(f"{path} is larger than {LARGEST >> 20} MiB and is not indexed.")
                elif stamp and not _is_elsewhere(path):
                    stamps[path] = stamp
        return Listing(stamps=stamps, remarks=tuple(remarks))

    def _root(self, given: str) -> Path:
        return Path(os.path.normpath(self._workspace / os.path.expanduser(given)))

    def _called(self, place: Path) -> str:
        return (place.relative_to(self._workspace) if place.is_relative_to(self._workspace) else place).as_posix()

    def read(self, path: str, state: str) -> Reading | None:
        text = self._text(path)
        return None if text is None else Reading(chunks=chunks_of(path, text))

    def excerpt(self, path: str, first: int, lines: int, scope: Scope) -> str | None:
        if "\0" in path or _is_elsewhere(path) or self._root_of(path) is None:
            return None
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
