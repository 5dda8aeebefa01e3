"""Sections that the log owes the notes: each is appended, then the log says so. Whatever stops that, it is done later."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog

from gateway.conversations.day_notes import DayNotes, NoteNotWritten, as_section, digest_of
from sessions.cycle import Owed
from sessions.events import ContextCompacted, MemoryFlushed, NoteAppended
from sessions.recorder import Recorder
from sessions.wire import decode

log = structlog.get_logger("exuvia.notes")


class OwedNotes:
    """Pays what one session owes. `lines` reads its journal from a seq on."""

    def __init__(self, recorder: Recorder, notes: DayNotes, lines: Callable[[int], Awaitable[list[bytes]]]) -> None:
        self._recorder = recorder
        self._notes = notes
        self._lines = lines
        self._paying = asyncio.Lock()
        self._behind: set[asyncio.Task[None]] = set()
        self.trouble = ""
        """Why a section could not be appended when it was last tried, as a sentence."""

    @property
    def _key(self) -> str:
        return self._recorder.transcript.key

    async def pay(self) -> None:
        """Append what is owed; what cannot be now stays owed."""
        async with self._paying:
            for owed in self._recorder.transcript.cycle.owed:
                if not await self._pay(owed):
                    return
            self.trouble = ""

    def pay_behind(self) -> None:
        """The same in the background."""
        task = asyncio.create_task(self.pay())
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)

    async def close(self) -> None:
        """Let what runs in the background end."""
        if self._behind:
            await asyncio.wait(self._behind)

    async def _pay(self, owed: Owed) -> bool:
        await self._recorder.until_durable(owed.of)
        (line, *_) = await self._lines(owed.of)
        try:
            match decode(line).event:
                case MemoryFlushed() as flushed:
                    await self._notes.append(owed.path, flushed.text, flushed.digest)
                case ContextCompacted() as compacted:
                    text = as_section(f"Summary {compacted.compaction} of {self._key}", compacted.summary)
                    await self._notes.append(owed.path, text, digest_of(text), news=True)
        except NoteNotWritten as error:
            self.trouble = str(error)
            log.warning("note_not_written", session=self._recorder.transcript.session, reason=str(error))
            return False
        self._recorder.note(NoteAppended(of=owed.of, path=owed.path))
        return True
