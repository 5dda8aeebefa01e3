"""Requests to remember something, written to the notes for a model that has no tool to do it."""

from __future__ import annotations

from collections.abc import Container

from gateway.conversations.notes.appending import NoteNotWritten
from gateway.conversations.notes.memory_writer import MemoryWriter
from plugins.memory.remember_requests import to_remember
from sessions.events.events import NoteAppended, PluginFailed
from sessions.state.transcript import open_turn
from sessions.store.recorder import Recorder

WRITE = "write"
"""The tool by which a model writes notes itself."""


class ExplicitMemory:
    """Handles the requests to remember in one session. `tools` are those that a model is offered, unless it is a small
    one."""

    def __init__(self, recorder: Recorder, memory_writer: MemoryWriter, tools: Container[str]) -> None:
        self._recorder = recorder
        self._memory_writer = memory_writer
        self._tools = tools

    async def write_requested(self, small: bool) -> bool:
        """Write what the messages of the open turn ask to be remembered; return False if there is nothing, or the model
        does it.

        A failure is recorded in the log.
        """
        if WRITE in self._tools and not small:
            return False
        transcript = self._recorder.transcript
        turn, view = open_turn(transcript), transcript.view
        written = False
        for index in range(view.first_from(turn.started), len(view)):
            what = to_remember(view.messages[index].text) if view.sources[index] in turn.takes else None
            if what is None:
                continue
            try:
                place = await self._memory_writer.remember(what, transcript.person, group=turn.group)
            except NoteNotWritten as error:
                failed = PluginFailed(plugin="memory", hook="remember", sentence=str(error))
                self._recorder.append(failed, turn=turn.ordinal)
            else:
                appended = NoteAppended(of=view.sources[index], path=place.partition("#")[0])
                self._recorder.append(appended, turn=turn.ordinal)
            written = True
        return written
