"""The notes of each day: sections that the gateway appends to `memory/YYYY-MM-DD.md`, each once and in one piece.

A section whose event is in the log is pending until it is appended and recorded as written; an interrupted one is written
later.
"""

from __future__ import annotations

import asyncio
import hashlib
import re
from datetime import date
from pathlib import Path

import structlog

from gateway.conversations.notes.appending import NoteNotWritten, append_once
from gateway.support.errors import error_fields, sentence_of
from plugins.support.workspace import own_note
from sessions.events.codec import decode
from sessions.events.events import ContextCompacted, MemoryFlushed, NoteAppended
from sessions.state.compaction_cycle import PendingNote
from sessions.store.recorder import Recorder

log = structlog.get_logger("exuvia.notes")

FOLDER = "memory"

EMPTY = frozenset({"", "(none)", "- (none)"})
"""Lines without content."""


class DayNotes:
    """The day notes of one workspace."""

    def __init__(self, workspace: Path) -> None:
        self._workspace = workspace
        self._problems: dict[str, str] = {}

    def problems(self) -> list[str]:
        """Return a sentence for each note that could not be written at the last try."""
        return [
            f"The note {path} could not be written: {reason.rstrip('.')}. Its text is in the journal and is written later."
            for path, reason in self._problems.items()
        ]

    def problem(self, path: str) -> str:
        """Return why a note could not be written at the last try; empty if it could."""
        return self._problems.get(path, "")

    async def append(self, path: str, text: str, digest: str, *, new_only: bool = False) -> str:
        """Append the section with this digest unless the note has it, and return its file.

        With `new_only`, list items that the note already has are left out. The file is another one of the day if the note is
        full or not writable. Raises NoteNotWritten.
        """
        try:
            file, _ = await asyncio.to_thread(self._append, path, text, digest, new_only)
        except NoteNotWritten as error:
            self._problems[path] = str(error)
            raise
        self._problems.pop(path, None)
        return file

    def _append(self, path: str, text: str, digest: str, new_only: bool) -> tuple[str, int]:
        mark = f"<!-- exuvia {digest} -->"  # comes last, so that a truncated section is not taken for a complete one

        def section(before: bytes) -> bytes:
            shown = _new_items(text, before) if new_only else text
            return f"{shown.strip()}\n\n{mark}\n".lstrip().encode()

        def line(content: bytes) -> int | None:
            at = content.find(mark.encode())
            return None if at < 0 else content.count(b"\n", 0, at) + 1

        return append_once(self._workspace, path, section, line, continued=True)


class PendingNotes:
    """Writes the pending sections of one session."""

    def __init__(self, recorder: Recorder, notes: DayNotes) -> None:
        self._recorder = recorder
        self._notes = notes
        self._lock = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self.problem = ""
        """Why a section could not be appended at the last try, as a sentence."""

    @property
    def _key(self) -> str:
        return self._recorder.transcript.key

    async def write(self) -> None:
        """Append the pending sections. If one fails, it and the later sections of the same note stay pending."""
        async with self._lock:
            problems: dict[str, str] = {}
            for section in self._recorder.transcript.cycle.owed:
                if section.path not in problems and (problem := await self._write(section)):
                    problems[section.path] = problem
            self.problem = next(iter(problems.values()), "")

    def write_in_background(self) -> None:
        """Append the pending sections in a background task."""
        task = asyncio.create_task(self._try_to_write())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        if self._background:
            await asyncio.wait(self._background)

    async def _try_to_write(self) -> None:
        try:
            await self.write()
        except Exception as error:  # all sections stay pending
            if (problem := sentence_of(error)) != self.problem:
                log.warning("note_not_written", session=self._recorder.transcript.session, **error_fields(error))
            self.problem = problem

    async def _write(self, section: PendingNote) -> str:
        """Append one section; return why it failed as a sentence, empty if it succeeded."""
        await self._recorder.until_durable(section.of)
        (line, *_) = await self._recorder.log.lines(section.of, limit=1)
        path = own_note(self._recorder.transcript.person, section.path)
        before = self._notes.problem(path)
        try:
            match decode(line).event:
                case MemoryFlushed() as flushed:
                    path = await self._notes.append(path, flushed.text, flushed.digest)
                case ContextCompacted() as compacted:
                    text = as_section(f"Summary {compacted.compaction} of {self._key}", compacted.summary)
                    path = await self._notes.append(path, text, digest_of(text), new_only=True)
        except NoteNotWritten as error:
            if str(error) != before:  # each sweep tries again
                log.warning("note_not_written", session=self._recorder.transcript.session, reason=str(error))
            return str(error)
        self._recorder.append(NoteAppended(of=section.of, path=path))
        return ""


def day_note(day: date) -> str:
    """Return the path of a day's note in the workspace."""
    return f"{FOLDER}/{day:%Y-%m-%d}.md"


def digest_of(text: str) -> str:
    """Return the marker of a section: 16 hexadecimal digits of the SHA-256 of its stripped text."""
    return hashlib.sha256(text.strip().encode()).hexdigest()[:16]


def as_section(title: str, text: str) -> str:
    """Return a text under a heading of a day's note, its own headings one level deeper."""
    return f"## {title}\n\n" + re.sub(r"^(#{1,5}) ", r"#\1 ", text.strip(), flags=re.MULTILINE)


def _new_items(text: str, before: bytes) -> str:
    """Return the text without list items that a file already has, and without headings that this leaves empty."""
    known = {_item(line) for line in before.decode(errors="replace").split("\n")} - {""}
    kept: list[str] = []
    for line in reversed(text.strip().split("\n")):
        level = _level(line)
        below = next((_level(under) for under in reversed(kept) if under), 1)
        emptied = 0 < below <= level  # a heading under which nothing is left
        if _item(line) not in known and line.strip() not in EMPTY and not emptied:
            kept += ["", line, ""] if level else [line]
    return re.sub(r"\n{3,}", "\n\n", "\n".join(reversed(kept))).strip()


def _item(line: str) -> str:
    found = re.match(r"\s*(?:[-*+]|\d+[.)])\s+(.*)", line)
    return " ".join(found[1].casefold().split()) if found else ""


def _level(line: str) -> int:
    """Return the depth of a heading; 0 for any other line."""
    found = re.match(r"(#{1,6}) ", line)
    return len(found[1]) if found else 0
