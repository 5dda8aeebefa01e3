"""The files of the workspace that a person may name in a message, and the prompt templates among them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from heapq import nsmallest
from pathlib import Path

import msgspec

from plugins.support.safe_open import OutsideFolder, open_beneath
from plugins.support.workspace import FOLDER, MAIN, OWNER, PEOPLE, SHARED, STANDING, NotesAccess, why_refused

VISITED = 20_000
"""Entries of folders that a search looks at."""

FOUND = 20
"""Files that a search returns."""

PROMPTS, PROMPT_BYTES = 200, 64 * 1024
"""Templates that are listed, and bytes that are read of one."""

_SKIPPED = frozenset({"node_modules", "__pycache__", "venv"})
"""Folders, besides those whose names begin with a dot, that are not searched."""

_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_FRONT = re.compile(r"\A---[ \t]*\n(.*?)^---[ \t]*\n", re.DOTALL | re.MULTILINE)
_TITLE = re.compile(r"^title:[ \t]*(.{1,200})$", re.MULTILINE)


class WorkspaceFile(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A file by its path as the person's tools take it. `note` is True for one that belongs to the memory."""

    path: str
    note: bool = False


class Prompt(msgspec.Struct, frozen=True, kw_only=True):
    """A template: the name of its file without its ending, its title, and its text, in which `{{name}}` is a variable."""

    name: str
    title: str
    text: str


def find_files(workspace: Path, person: str, query: str, notes: NotesAccess = "all") -> list[WorkspaceFile]:
    """Return the files that a person may read and whose paths contain the query, the best first: those whose name begins
    with it, then those whose name contains it, notes before others and short paths before long ones. Blocks."""
    wanted = query.casefold()

    def rank(path: str) -> tuple[int, bool, int, str]:
        name = path.rpartition("/")[2].casefold()
        return 0 if name.startswith(wanted) else 1 if wanted in name else 2, not _is_note(path), len(path), path

    fitting = (path for path in _files(workspace, person, notes) if wanted in path.casefold())
    return [WorkspaceFile(path=path, note=_is_note(path)) for path in nsmallest(FOUND, fitting, key=rank)]


def read_prompts(workspace: Path, person: str, notes: NotesAccess = "all") -> list[Prompt]:
    """Return the templates in `prompts/` of a person, and of everybody where the person has none of that name, sorted by
    name. What cannot be read is left out. Blocks."""
    own = "prompts" if person == OWNER else f"{PEOPLE}/{person}/prompts"
    everybodys = _prompts(workspace, f"{SHARED}/prompts") if notes == "all" else {}
    prompts = {**everybodys, **_prompts(workspace, own)}
    return [prompts[name] for name in sorted(prompts)][:PROMPTS]


def _is_note(path: str) -> bool:
    own = path.removeprefix(f"{SHARED}/")
    return own == MAIN or (own.startswith(f"{FOLDER}/") and own.endswith(".md"))


def _files(workspace: Path, person: str, notes: NotesAccess) -> Iterator[str]:
    """Yield the paths of a person's files, without links and what is hidden."""
    if person == OWNER:
        roots = {"": ""}
    else:
        roots = {f"{PEOPLE}/{person}/": "", f"{SHARED}/": f"{SHARED}/"}
        yield from (name for name in STANDING if (workspace / name).is_file())
    left = VISITED
    for root, shown_as in roots.items():
        folders = [root]
        while folders and left > 0:
            folder = folders.pop()
            for entry in _entries(workspace / folder):
                left -= 1
                path = f"{folder}{entry.name}"
                if entry.name.startswith(".") or entry.name in _SKIPPED or not _is_readable(path, person, notes):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{path}/")
                elif entry.is_file(follow_symlinks=False):
                    yield shown_as + path[len(root) :]


def _entries(folder: Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return sorted(entries, key=lambda entry: entry.name)[:VISITED]
    except OSError:
        return []


def _is_readable(path: str, person: str, notes: NotesAccess) -> bool:
    if not path.isprintable():
        return False
    return path == PEOPLE or not why_refused(tuple(path.split("/")), person, group=False, notes=notes)


def _prompts(workspace: Path, folder: str) -> dict[str, Prompt]:
    names = [entry.name for entry in _entries(workspace / folder) if entry.name.endswith(".md")][:PROMPTS]
    read = {name.removesuffix(".md"): _read(workspace, f"{folder}/{name}") for name in names}
    return {
        name: _prompt(name, text) for name, text in read.items() if text is not None and _NAME.fullmatch(name) is not None
    }


def _read(workspace: Path, path: str) -> str | None:
    try:
        with open(open_beneath(workspace, path), "rb") as file:
            return file.read(PROMPT_BYTES).decode("utf-8", "replace")
    except (OSError, OutsideFolder):
        return None


def _prompt(name: str, content: str) -> Prompt:
    content = content.replace("\r\n", "\n")
    front = _FRONT.match(content)
    title = _TITLE.search(front[1]) if front else None
    text = content[front.end() :] if front else content
    return Prompt(name=name, title=title[1].strip().strip("\"'") if title else name, text=text.strip())
