"""Sections that the log owes the notes: each is appended, then the log says so. Whatever stops that, it is done later."""

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
        """Append what is owed. What cannot be now stays owed, with what follows it in the same note."""
        async with self._paying:
            troubles: dict[str, str] = {}
            for owed in self._recorder.transcript.cycle.owed:
                if owed.path not in troubles and (trouble := await self._pay(owed)):
                    troubles[owed.path] = trouble
            self.trouble = next(iter(troubles.values()), "")

    def pay_behind(self) -> None:
        """The same in the background."""
        task = asyncio.create_task(self._try_to_pay())
        self._behind.add(task)
        task.add_done_callback(self._behind.discard)

    async def close(self) -> None:
        """Let what runs in the background end."""
        if self._behind:
            await asyncio.wait(self._behind)

    async def _try_to_pay(self) -> None:
        try:
            await self.pay()
        except SessionsError as error:  # all of it stays owed
            self.trouble = str(error)
            log.warning("note_not_written", session=self._recorder.transcript.session, reason=self.trouble)

    async def _pay(self, owed: PendingNote) -> str:
        """Append one section; returns why it could not be, as a sentence, empty where it was."""
        await self._recorder.until_durable(owed.of)
        (line, *_) = await self._lines(owed.of)
        path = own_note(self._recorder.transcript.person, owed.path)
        try:
            match decode(line).event:
                case MemoryFlushed() as flushed:
                    path = await self._notes.append(path, flushed.text, flushed.digest)
                case ContextCompacted() as compacted:
                    text = as_section(f"Summary {compacted.compaction} of {self._key}", compacted.summary)
                    path = await self._notes.append(path, text, digest_of(text), news=True)
        except NoteNotWritten as error:
            log.warning("note_not_written", session=self._recorder.transcript.session, reason=str(error))
            return str(error)
        self._recorder.append(NoteAppended(of=owed.of, path=path))
        return ""
