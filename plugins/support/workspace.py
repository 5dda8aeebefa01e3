"""Which person owns which file of the workspace, and who may read and change it.

people/<id>/         files of a person other than the owner, in the same layout: `people/ana/MEMORY.md`
shared/              readable by everyone, writable by the owner
AGENTS.md, SOUL.md   the same
everything else      the owner's: `MEMORY.md`, `memory/` and other files

`MEMORY.md` of any person is only for private chats. Paths are tuples of components below the workspace, `(".",)` for the
workspace itself. Pure functions that do not access the disk.
"""

from __future__ import annotations

import re
from typing import Literal, TypeAlias

NotesAccess: TypeAlias = Literal["all", "own", "none"]
"""What a person's model and memory show them of the notes: their own and those for everybody, their own, or none."""

OWNER = "owner"
"""The id of the person that the gateway's own token names."""

EVERYBODY = ""
"""The owner of files that everybody can read."""

PERSON_ID = re.compile(r"[a-z][a-z0-9_-]{0,31}")
"""The form of a person's id, which is the name of their folder too."""

_CITATION = re.compile(r"(.+)#L([0-9]{1,9})(?:-L?([0-9]{1,9}))?")

MAIN = "MEMORY.md"
FOLDER = "memory"
SHARED = "shared"
PEOPLE = "people"

STANDING = ("AGENTS.md", "SOUL.md")
"""The files in everybody's instructions, in the order in which the model reads them."""


def belongs_to(parts: tuple[str, ...]) -> str:
    """Return the owner of a path: the id of a person, `OWNER` or `EVERYBODY`."""
    first, *below = parts
    if first == SHARED or (first in STANDING and not below):
        return EVERYBODY
    # Some file systems ignore case.
    if first.casefold() == PEOPLE and below and PERSON_ID.fullmatch(below[0].casefold()):
        return below[0]
    return OWNER


def is_private(parts: tuple[str, ...]) -> bool:
    """Return True for a `MEMORY.md`, which is used in private chats only."""
    whose = belongs_to(parts)
    own = parts if whose in (OWNER, EVERYBODY) else parts[2:]
    return len(own) == 1 and own[0].casefold() == MAIN.casefold()


def meant(parts: tuple[str, ...], person: str) -> tuple[str, ...]:
    """Resolve a path that is relative to a person's own folder, or to the workspace."""
    literal = (parts[0] == PEOPLE and len(parts) > 1) or belongs_to(parts) == EVERYBODY
    if person == OWNER or literal:
        return parts
    return *_folder_of(person), *(() if parts == (".",) else parts)


def parse_citation(text: str) -> tuple[str, int, int] | None:
    """Return the path, the first and the last line of a citation such as `MEMORY.md#L3-L7` or `MEMORY.md#L3`, else None."""
    found = _CITATION.fullmatch(text)
    return (found[1], int(found[2]), int(found[3] or found[2])) if found else None


def own_note(person: str, path: str) -> str:
    """Resolve `MEMORY.md` or a path in `memory/` to the person's own note; return other paths unchanged."""
    if person == OWNER or not (path == MAIN or path.startswith(f"{FOLDER}/")):
        return path
    return "/".join((*_folder_of(person), path))


def why_refused(
    parts: tuple[str, ...], person: str, *, group: bool, writes: bool = False, notes: NotesAccess = "all"
) -> str:
    """Return the reason why a person may not read or write a path, as a sentence; empty if allowed. `notes` are those that
    their role shows them."""
    whose = belongs_to(parts)
    if whose not in (person, EVERYBODY):
        return "That belongs to somebody else."
    if not _shows(notes, parts):
        return "The role of this person does not let them read or change that."
    if group and is_private(parts):
        return f"{MAIN} is for private chats alone; others read along here."
    if writes and whose == EVERYBODY and person != OWNER:
        return "Everybody reads that file; only the owner changes it. Write to another path, which is this person's own."
    if writes and _is_folder(parts):
        return "The path is a folder."
    return ""


def _folder_of(person: str) -> tuple[str, str]:
    if PERSON_ID.fullmatch(person) is None:
        raise ValueError(f"{person!r} is not a person's id")
    return PEOPLE, person


def _shows(notes: NotesAccess, parts: tuple[str, ...]) -> bool:
    """Return True if a role with these notes shows a path; what is no note is not concerned."""
    if parts[0] == SHARED:
        return notes == "all"
    own = parts[2:] if parts[0].casefold() == PEOPLE else parts
    return notes != "none" or not own or own[0].casefold() not in (MAIN.casefold(), FOLDER)


def _is_folder(parts: tuple[str, ...]) -> bool:
    """Return True for the reserved folders, which no file may replace."""
    if len(parts) == 1:
        return parts[0].casefold() in (SHARED, PEOPLE)
    return len(parts) == 2 and belongs_to(parts) not in (OWNER, EVERYBODY)
