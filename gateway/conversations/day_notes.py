"""The day's note: sections that the daemon appends to `memory/YYYY-MM-DD.md`, each once, whole, and marked.

A person may write in the same file at the same time. What they wrote is never replaced: a section is appended in one write,
to the file as it was looked at, or it is looked at again.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from pathlib import Path

from plugins.tools.beneath import NotBeneath
from plugins.tools.file_place import FileChanged, FilePlace, file_place

FOLDER = "memory"

EMPTY = frozenset({"", "(none)", "- (none)"})
"""Lines that say nothing."""

TRIES = 8
"""How often a file that somebody else changes in the same moment is looked at again."""


class NoteNotWritten(Exception):
    """A section could not be appended now; `str(error)` is a sentence."""


class DayNotes:
    """The notes of the workspace that `workspace` names."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace

    async def append(self, path: str, text: str, digest: str, *, news: bool = False) -> None:
        """Have the section that `digest` marks stand in the note once; with `news`, without those items of its lists that
        stand there already. Raises NoteNotWritten."""
        await asyncio.to_thread(self._append, path, text, digest, news)

    def _append(self, path: str, text: str, digest: str, news: bool) -> None:
        try:
            with file_place(self._workspace, tuple(path.split("/")), make=True) as place:
                for _ in range(TRIES):
                    if _put(place, text, digest, news):
                        return
        except NotBeneath as error:
            raise NoteNotWritten(f"{path}: {error}") from error
        except OSError as error:
            raise NoteNotWritten(f"{path} cannot be written: {error.strerror or error}.") from error
        raise NoteNotWritten(f"{path} is being changed by somebody else.")


def day_note(day: str) -> str:
    """The path of a day's note below the workspace; `day` is YYYY-MM-DD."""
    return f"{FOLDER}/{day}.md"


def digest_of(text: str) -> str:
    """What marks a section: 16 hexadecimal digits of the SHA-256 of its text without the white space around it."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:16]


def as_section(title: str, text: str) -> str:
    """A text under a heading of a day's note, its own headings one level below that."""
    return f"## {title}\n\n" + re.sub(r"^(#{1,5}) ", r"#\1 ", text.strip(), flags=re.MULTILINE)


def _put(place: FilePlace, text: str, digest: str, news: bool) -> bool:
    """Append a section, or what is missing of it; False if the file was changed meanwhile."""
    before = place.content()
    mark = f"<!-- exuvia {digest} -->"  # comes last, so that a section that was cut off is not taken for whole
    if before is not None and mark.encode() in before:
        return True
    shown = _news(text, before or b"") if news else text
    content = f"{shown.strip()}\n\n{mark}\n".lstrip().encode()
    try:
        if before is None:
            place.replace(content, lambda: None)
        else:
            place.append(_rest(before, content), lambda: None)
    except FileChanged:
        return False
    return True


def _news(text: str, before: bytes) -> str:
    """The text without list items that stand in a file already, and without headings that have nothing below them then."""
    known = {_item(line) for line in before.decode(errors="replace").split("\n")} - {""}
    kept: list[str] = []
    for line in reversed(text.strip().split("\n")):
        level = _level(line)
        below = next((_level(under) for under in reversed(kept) if under), 1)
        gone = 0 < below <= level  # a heading, and what stood below it is gone
        if _item(line) not in known and line.strip() not in EMPTY and not gone:
            kept += ["", line, ""] if level else [line]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(reversed(kept))).strip()


def _item(line: str) -> str:
    found = re.match(r"\s*(?:[-*+]|\d+[.)])\s+(.*)", line)
    return " ".join(found[1].casefold().split()) if found else ""


def _level(line: str) -> int:
    """How deep a heading is; 0 for what is none."""
    found = re.match(r"(#{1,6}) ", line)
    return len(found[1]) if found else 0


def _rest(before: bytes, content: bytes) -> bytes:
    """What must follow for the section to stand behind an empty line; a power cut may have left its beginning."""
    for length in range(min(len(before), len(content) - 1), 15, -1):
        if before.endswith(content[:length]):
            return content[length:]
    if not before:
        return content
    return (b"\n" if before.endswith(b"\n") else b"\n\n") + content
