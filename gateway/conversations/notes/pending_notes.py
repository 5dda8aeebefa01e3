"""Sections that the log promises and the notes lack: each is appended, then recorded as written. An interrupted one is
written later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from gateway.conversations.notes.appending import NoteNotWritten
from gateway.conversations.notes.day_notes import DayNotes, as_section, digest_of
from plugins.support.workspace import own_note
from sessions.events.codec import decode
from sessions.events.errors import SessionsError
from sessions.events.events import ContextCompacted, MemoryFlushed, NoteAppended
from sessions.state.compaction_cycle import PendingNote
from sessions.store.recorder import Recorder

log = structlog.get_logger("exuvia.notes")


class PendingNotes:
    """Writes the pending sections of one session. `lines` reads its journal from a seq on."""

    def __init__(self, recorder: Recorder, notes: DayNotes, lines: Callable[[int], Awaitable[list[bytes]]]) -> None:
        self._recorder = recorder
        self._notes = notes
        self._lines = lines
        self._lock = asyncio.Lock()
        self._background: set[asyncio.Task[None]] = set()
        self.problem = ""
        """Why a section could not be appended at the last try, as a sentence."""

    @property
    def _key(self) -> str:
        return self._recorder.transcript.key

    async def write(self) -> None:
        """Append the pending sections. After a failure, it and later sections of the same note stay pending."""
        async with self._lock:
            problems: dict[str, str] = {}
            for owed in self._recorder.transcript.cycle.owed:
                if owed.path not in problems and (problem := await self._write(owed)):
                    problems[owed.path] = problem
            self.problem = next(iter(problems.values()), "")

    def write_in_background(self) -> None:
        """Append the pending sections in a background task."""
        task = asyncio.create_task(self._try_to_write())
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def close(self) -> None:
        """Wait for the background tasks."""
        if self._background:
            await asyncio.wait(self._background)

    async def _try_to_write(self) -> None:
        try:
            await self.write()
        except SessionsError as error:  # all of it stays owed
            if str(error) != self.problem:
                log.warning("note_not_written", session=self._recorder.transcript.session, reason=str(error))
            self.problem = str(error)

    async def _write(self, owed: PendingNote) -> str:
        """Append one section; return why it failed as a sentence, empty if it succeeded."""
        await self._recorder.until_durable(owed.of)
        (line, *_) = await self._lines(owed.of)
        path = own_note(self._recorder.transcript.person, owed.path)
        before = self._notes.problem(path)
        try:
            match decode(line).event:
                case MemoryFlushed() as flushed:
                    path = await self._notes.append(path, flushed.text, flushed.digest)
                case ContextCompacted() as compacted:
                    text = as_section(f"Summary {compacted.compaction} of {self._key}", compacted.summary)
                    path = await self._notes.append(path, text, digest_of(text), news=True)
        except NoteNotWritten as error:
            if str(error) != before:  # each sweep tries again
                log.warning("note_not_written", session=self._recorder.transcript.session, reason=str(error))
            return str(error)
        self._recorder.append(NoteAppended(of=owed.of, path=path))
        return ""
