"""Removes from notes what was written from erased events: sections with a mark, remembered items, and quoted texts.

All functions block.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path

from gateway.conversations.erasure.erasure_plan import NoteSection
from gateway.conversations.erasure.text_scrubbing import TextScrubber
from gateway.conversations.notes.appending import TRIES, files_of
from plugins.support.safe_open import OutsideFolder
from plugins.support.workspace import FOLDER, MAIN, OWNER, PEOPLE, own_note
from plugins.tools.file_target import FileChanged, open_target
from sessions.files.fsync import sync_folder

_MARK = re.compile(r"<!-- exuvia [0-9a-f]{16} -->")
_BULLETS = ("- ", "* ", "+ ")
_AUTHOR = re.compile(r" \([^()]*, \d{4}-\d{2}-\d{2}\)")
_SHORTEST_ITEM = 3


def erase_from_notes(workspace: Path, person: str, sections: Iterable[NoteSection], scrubber: TextScrubber) -> list[str]:
    """Remove sections and texts from the notes of a person, and return the paths of the notes that changed.

    Raises OSError.
    """
    known = list(sections)
    paths = {file for section in known if section.path for file in files_of(workspace, section.path)}
    paths |= set(_notes_of(workspace, person))
    return [path for path in sorted(paths) if _erase_from(workspace, path, known, scrubber)]


def remove_notes_of(workspace: Path, person: str) -> list[str]:
    """Remove the folder of a person other than the owner from a workspace, durably, and return the paths of the files that
    were in it. Raises OSError."""
    folder = workspace / PEOPLE / person
    if person == OWNER or not folder.is_dir() or folder.is_symlink():
        return []
    found = [path.relative_to(workspace).as_posix() for path in sorted(folder.rglob("*")) if not path.is_dir()]
    shutil.rmtree(folder)
    sync_folder(folder.parent)
    return found


def _notes_of(workspace: Path, person: str) -> Iterator[str]:
    yield own_note(person, MAIN)
    folder = own_note(person, f"{FOLDER}/x").removesuffix("/x")
    yield from (f"{folder}/{path.name}" for path in (workspace / folder).glob("*.md"))


def _erase_from(workspace: Path, path: str, sections: list[NoteSection], scrubber: TextScrubber) -> bool:
    for _ in range(TRIES):
        try:
            with open_target(workspace, tuple(path.split("/")), make=False) as place:
                content = place.content()
                if content is None:
                    return False
                before = content.decode("utf-8", "surrogateescape")
                after = scrubber.without(_without_sections(before, path, sections))
                if after == before:
                    return False
                place.replace(after.encode("utf-8", "surrogateescape"), lambda: None)
                return True
        except FileChanged:
            continue
        except (FileNotFoundError, OutsideFolder):
            return False
    raise OSError(f"{path} keeps changing")


def _without_sections(content: str, path: str, sections: Iterable[NoteSection]) -> str:
    for section in sections:
        if section.digest:
            content = _without_section(content, section)
        elif section.path == path:
            content = _without_items(content, section.text)
    return content


def _without_section(content: str, section: NoteSection) -> str:
    """Return a note without the section that ends with a mark, which a person may have edited."""
    mark = f"<!-- exuvia {section.digest} -->"
    end = content.find(mark)
    if end < 0:
        return content
    earlier = list(_MARK.finditer(content, 0, end))
    begin = earlier[-1].end() if earlier else 0
    block = content[begin:end]
    heading = section.text.strip().split("\n", 1)[0]
    at = block.find(section.text.strip())
    at = block.find(heading) if at < 0 else at
    before, after = (content[:begin] + block[: max(at, 0)]).rstrip("\n"), content[end + len(mark) :].lstrip("\n")
    return f"{before}\n\n{after}" if before and after else f"{before or after}".rstrip("\n") + "\n" * bool(before or after)


def _item_of(line: str) -> str:
    """Return the text of an item of a list without its author and date, in words separated by single spaces; "" if the line
    is none."""
    text = line.strip()
    if not text.startswith(_BULLETS):
        return ""
    told, _, author = text.rpartition(" (")
    return " ".join((told if _AUTHOR.fullmatch(f" ({author}") else text)[len(_BULLETS[0]) :].split())


def _without_items(content: str, text: str) -> str:
    """Return a note without the items that a message asked to remember."""
    said = " ".join(text.split()).casefold()

    def is_said(line: str) -> bool:
        item = _item_of(line).casefold()
        return len(item) >= _SHORTEST_ITEM and item in said

    return "".join(line for line in content.splitlines(keepends=True) if not is_said(line))
