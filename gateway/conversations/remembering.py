"""What a person wants remembered is written at once: an item at the end of `MEMORY.md`, in a group of the day's note.

A person may write in the same file at the same time; what they wrote is never replaced, as in `day_notes`.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable
from datetime import datetime
from pathlib import Path

from gateway.conversations.day_notes import TRIES, NoteNotWritten, day_note
from plugins.memory.memory import Memory
from plugins.memory.notes import MAIN, Notes, is_note
from plugins.tools.beneath import NotBeneath
from plugins.tools.file_place import FileChanged, FilePlace, file_place
from sessions.wire import carriable

LONGEST = 4000
"""Characters of what is remembered at once."""

_LINES = re.compile(rb"[^\n]*\n|[^\n]+")

_PLACE = re.compile(r"(.+)#L(\d{1,9})(?:-L(\d{1,9}))?")


class Remembering:
    """Writes into the notes of a workspace. `now` is the time in the person's zone."""

    def __init__(self, workspace: Path, memory: Memory, now: Callable[[], datetime]) -> None:
        self.notes = Notes(workspace)
        self._workspace = workspace
        self._memory = memory
        self._now = now

    async def remember(self, text: str, person: str, *, group: bool) -> str:
        """Have it stand in a note once, with who said it when, and be found from now on; returns where it stands, as
        `MEMORY.md#L12-L12`. Raises NoteNotWritten."""
        now = self._now()
        path = day_note(f"{now:%Y-%m-%d}") if group else MAIN
        said = " ".join(carriable(text).split())
        if not said:
            raise NoteNotWritten("There is nothing to be remembered.")
        if len(said) > LONGEST:
            raise NoteNotWritten(f"That is longer than {LONGEST:,} characters; write it into a note of its own.")
        first = await asyncio.to_thread(self._write, path, f"- {said}", f"({person}, {now:%Y-%m-%d})")
        await self._memory.look()
        return f"{path}#L{first}-L{first}"

    async def forget(self, place: str, *, group: bool) -> str:
        """Take the lines out of a note that a citation such as `MEMORY.md#L3-L4` names; returns what stood there. Raises
        NoteNotWritten."""
        found = _PLACE.fullmatch(place)
        if found is None or not is_note(found[1]) or (group and found[1] == MAIN):
            raise NoteNotWritten(f"{place} names no lines of a note; those look like {MAIN}#L3-L4.")
        first, last = int(found[2]), int(found[3] or found[2])
        gone = await asyncio.to_thread(self._take_out, found[1], first, last)
        await self._memory.look()
        return gone

    def _take_out(self, path: str, first: int, last: int) -> str:
        try:
            with file_place(self._workspace, tuple(path.split("/")), make=False) as place:
                for _ in range(TRIES):
                    lines = _LINES.findall(place.content() or b"")
                    if not 1 <= first <= last <= len(lines):
                        raise NoteNotWritten(f"{path} has no lines {first} to {last}; it has {len(lines)}.")
                    try:
                        place.replace(b"".join([*lines[: first - 1], *lines[last:]]), lambda: None)
                    except FileChanged:
                        continue
                    return b"".join(lines[first - 1 : last]).decode(errors="replace").rstrip("\n")
        except FileNotFoundError:
            raise NoteNotWritten(f"There is no note {path}.") from None
        except NotBeneath as error:
            raise NoteNotWritten(f"{path}: {error}") from error
        except OSError as error:
            raise NoteNotWritten(f"{path} cannot be written: {error.strerror or error}.") from error
        raise NoteNotWritten(f"{path} is being changed by somebody else.")

    def _write(self, path: str, item: str, whose: str) -> int:
        try:
            with file_place(self._workspace, tuple(path.split("/")), make=True) as place:
                for _ in range(TRIES):
                    if (line := _put(place, item, whose)) is not None:
                        return line
        except NotBeneath as error:
            raise NoteNotWritten(f"{path}: {error}") from error
        except OSError as error:
            raise NoteNotWritten(f"{path} cannot be written: {error.strerror or error}.") from error
        raise NoteNotWritten(f"{path} is being changed by somebody else.")


def _put(place: FilePlace, item: str, whose: str) -> int | None:
    """Append an item to the file, unless it stands there; returns its line, None if somebody changed the file meanwhile."""
    before = place.content()
    lines = (before or b"").decode(errors="replace").replace("\r\n", "\n").split("\n")
    for number, line in enumerate(lines, 1):
        if line == item or line.startswith(f"{item} ("):
            return number
    last = lines[-2] if len(lines) > 1 and not lines[-1] else lines[-1]
    gap = "" if not last.strip() or last.lstrip().startswith(("- ", "* ", "+ ")) else "\n"
    end = "\n" if lines[-1] else ""
    addition = f"{end}{gap}{item} {whose}\n"
    try:
        if before is None:
            place.replace(addition.encode(), lambda: None)
        else:
            place.append(addition.encode(), lambda: None)
    except FileChanged:
        return None
    return len(lines) + addition.count("\n") - 1
