"""The source `notes`: `MEMORY.md` and `memory/` of the workspace and of each person, and shared notes.

Read-only. `plugins.support.workspace` defines who owns each note.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from plugins.api.memory.chunks import chunks_of
from plugins.api.memory.scope import Scope
from plugins.api.memory.source import Listing, Reading, WatchedFolders
from plugins.memory.sources.markdown_files import LARGEST, markdown_in, read_text, some_lines, stamp_of
from plugins.support.workspace import FOLDER, MAIN, PEOPLE, PERSON_ID, SHARED, belongs_to, is_private

_OWN = rf"{re.escape(MAIN)}|{FOLDER}/.*\.md"
_NOTE = re.compile(rf"{_OWN}|{SHARED}/.*\.md|{PEOPLE}/{PERSON_ID.pattern}/(?:{_OWN})", re.DOTALL)


class Notes:
    """The notes of one workspace. Links are ignored."""

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
        for place in self._places():
            path = place.relative_to(self._workspace)
            stamp, size = stamp_of(place)
            if size > LARGEST:
                large.append(path.as_posix())
            elif stamp:
                stamps[path.as_posix()] = f"{stamp}.{belongs_to(path.parts)}"
        return Listing(stamps=stamps, large=tuple(large))

    def _places(self) -> Iterator[Path]:
        yield from _own_notes(self._workspace)
        yield from markdown_in(self._workspace / SHARED)
        for folder in _folders(self._workspace / PEOPLE):
            yield from _own_notes(folder)

    def read(self, path: str, state: str) -> Reading | None:
        text = read_note(self._workspace, path)
        parts = tuple(path.split("/"))
        if text is None:
            return None
        return Reading(chunks=chunks_of(path, text, private=is_private(parts), owner=belongs_to(parts)))

    def excerpt(self, path: str, first: int, lines: int, scope: Scope) -> str | None:
        if not is_note(path):
            return None
        if not scope.reads(path):
            return ""
        return some_lines(read_note(self._workspace, path) or "", first, lines)


def is_note(path: str) -> bool:
    """Return True if a path below the workspace can be a visible note."""
    hidden = any(part.startswith(".") for part in path.split("/"))
    return _NOTE.fullmatch(path) is not None and not hidden and "\0" not in path


def read_note(workspace: Path, path: str) -> str | None:
    """Return the text of a note, None if it cannot be read."""
    return read_text(workspace, path)


def _own_notes(folder: Path) -> Iterator[Path]:
    yield folder / MAIN
    yield from markdown_in(folder / FOLDER)


def _folders(people: Path) -> list[Path]:
    """Return the folders of persons in order, empty if they cannot be listed."""
    try:
        with os.scandir(people) as entries:
            names = [each.name for each in entries if PERSON_ID.fullmatch(each.name) and each.is_dir(follow_symlinks=False)]
    except OSError:
        return []
    return [people / name for name in sorted(names)]
