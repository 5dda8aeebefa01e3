"""The preparation of a turn's first request: instructions and notes, requests to remember, recall."""

from __future__ import annotations

from collections.abc import Mapping

from gateway.conversations.context.conversation_config import ConversationConfig
from gateway.conversations.context.loaded_notes import LoadedNotes
from gateway.conversations.notes.explicit_memory import ExplicitMemory
from gateway.conversations.turn.recalling import Recall
from gateway.models.registry import ChosenModel
from plugins.api.tool import Tool
from sessions.events.events import InstructionsSet, LoadedNote
from sessions.state.transcript import open_turn
from sessions.store.recorder import Recorder


class TurnPreparation:
    """Prepares the turns of one session."""

    def __init__(
        self,
        recorder: Recorder,
        config: ConversationConfig,
        *,
        tools: Mapping[str, Tool],
        notes: LoadedNotes,
        explicit_memory: ExplicitMemory,
        recall: Recall,
    ) -> None:
        self._recorder = recorder
        self._config = config
        self._tools = tools
        self._notes = notes
        self._explicit_memory = explicit_memory
        self._recall = recall

    async def prepare(self, model: ChosenModel) -> None:
        """Record the instructions of the open turn, write what it asks to be remembered, or else recall what is relevant to
        it."""
        small = model.provider.limits(model.model).small
        self._record_instructions(await self._notes.load(model.window, small), small)
        if not await self._explicit_memory.write_requested(small):
            await self._recall.recall(model.window, small)

    def _record_instructions(self, notes: tuple[LoadedNote, ...], small: bool) -> None:
        rules, transcript = self._config.turn, self._recorder.transcript
        wanted = InstructionsSet(
            text=rules.short_reason if small else rules.instructions,
            tools=() if small else tuple(tool.definition for tool in self._tools.values()),
            notes=notes,
            parameters=rules.parameters,
        )
        if transcript.instructions != wanted:
            self._recorder.append(wanted, turn=open_turn(transcript).ordinal)
