"""What a person asks to be remembered, written down for a model that has no tool to do it."""

from __future__ import annotations

from collections.abc import Container

from gateway.conversations.notes.appending import NoteNotWritten
from gateway.conversations.notes.memory_writer import MemoryWriter
from plugins.memory.remember_requests import to_remember
from sessions.events.events import NoteAppended, PluginFailed
from sessions.state.transcript import open_turn
from sessions.store.recorder import Recorder

WRITE = "write"
"""The tool by which a model writes down what it is told to remember."""


class ExplicitMemory:
    """Heeds the messages of one session. `tools` are those that a model is offered, if it is not a small one."""

    def __init__(self, recorder: Recorder, remembering: MemoryWriter, tools: Container[str]) -> None:
        self._recorder = recorder
        self._remembering = remembering
        self._tools = tools

    async def heed(self, small: bool) -> bool:
        """Write down what the messages ask to be remembered that the open turn began with; False if that is nothing, or left
        to the model. What cannot be written is noted."""
        if WRITE in self._tools and not small:
            return False
        transcript = self._recorder.transcript
        turn, view = open_turn(transcript), transcript.view
        heeded = False
        for index in range(view.first_from(turn.started), len(view)):
            what = to_remember(view.messages[index].text) if view.sources[index] in turn.takes else None
            if what is None:
                continue
            try:
                place = await self._remembering.remember(what, transcript.person, group=turn.group)
            except NoteNotWritten as error:
                failed = PluginFailed(plugin="memory", hook="remember", sentence=str(error))
                self._recorder.append(failed, turn=turn.ordinal)
            else:
                appended = NoteAppended(of=view.sources[index], path=place.partition("#")[0])
                self._recorder.append(appended, turn=turn.ordinal)
            heeded = True
        return heeded
