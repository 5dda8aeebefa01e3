"""The source `notes`: `MEMORY.md` and what lies in `memory/` of the workspace. Nothing here changes one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path

from plugins.memory.chunks import chunks_of
from plugins.memory.markdown_files import LARGEST, markdown_in, read_text, some_lines, stamp_of
from plugins.memory.scope import Scope
from plugins.memory.sources import Listing, Reading
from plugins.memory.watching import Places

MAIN = "MEMORY.md"
"""The note that is for private chats alone."""

FOLDER = "memory"


class Notes:
    """The notes of one workspace; links are none."""

    name = "notes"

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    def watched(self) -> Places:
        """See `Source`."""
        folder = self._workspace / FOLDER
        return Places(
            flat=frozenset({self._workspace} if self._workspace.is_dir() else ()),
            deep=frozenset({folder} if folder.is_dir() else ()),
        )

    def there(self, known: Mapping[str, str]) -> Listing:
        """See `Source`."""
        stamps: dict[str, str] = {}
        large: list[str] = []
        for place in self._places():
            path = place.relative_to(self._workspace).as_posix()
            stamp, size = stamp_of(place)
            if size > LARGEST:
                large.append(f"{path} is larger than {LARGEST >> 20} MiB and is not indexed.")
            elif stamp:
                stamps[path] = stamp
        return Listing(stamps=stamps, remarks=tuple(large))

    def _places(self) -> Iterator[Path]:
        yield self._workspace / MAIN
        yield from markdown_in(self._workspace / FOLDER)

    def read(self, path: str, state: str) -> Reading | None:
        """See `Source`."""
        text = read_note(self._workspace, path)
        return None if text is None else Reading(chunks=chunks_of(path, text, private=path == MAIN))

    def excerpt(self, path: str, first: int, lines: int, scope: Scope) -> str | None:
        """See `Source`."""
        if not is_note(path) or ".." in path.split("/") or "\0" in path:
            return None
        if path == MAIN and not scope.private:
            return ""
        return some_lines(read_note(self._workspace, path) or "", first, lines)


def is_note(path: str) -> bool:
    """Whether a path below the workspace could be a note's."""
    return path == MAIN or (path.startswith(f"{FOLDER}/") and path.endswith(".md"))


def read_note(workspace: Path, path: str) -> str | None:
    """A note's text; None where there is none, or none that may be read."""
    return read_text(workspace, path)
