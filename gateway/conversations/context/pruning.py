"""Pruning before a model request: the size limit first, then the plugins; new edits are recorded in the log."""

from __future__ import annotations

from datetime import datetime
from functools import partial
from types import MappingProxyType

from gateway.conversations.context.conversation_config import ConversationConfig
from plugins.api.pruning import PruningBudget, PruningContext
from plugins.host.hooks import Hooks
from sessions.events.events import ContextPruned
from sessions.events.pruning import Edit
from sessions.state.edit_validation import merge_proposals
from sessions.state.transcript import Transcript, open_turn
from sessions.state.truncation import required_trims
from sessions.state.view_size import CharacterCount, text_tokens
from sessions.store.recorder import Recorder


class Pruner:
    """Prunes one session's view. A message that was found small enough is not measured again."""

    def __init__(self, recorder: Recorder, hooks: Hooks, config: ConversationConfig) -> None:
        self._recorder = recorder
        self._hooks = hooks
        self._config = config
        self._counts = CharacterCount()
        self._checked: tuple[int, int] | None = None
        """The window, and what the reserve leaves of it, for which every counted message is small enough."""

    async def prune(self, window: int | None, reserve: int) -> None:
        """Record the edits that the next request of the open turn needs. `window` and `reserve` are in tokens; if the window
        is unknown, nothing is pruned."""
        fresh = self._counts.follow(self._recorder.transcript.messages)
        if window is None:
            self._checked = None
            return
        room = window - reserve
        if self._checked is None or window < self._checked[0] or room < self._checked[1]:
            fresh = 0
        view = self._recorder.transcript.view
        weigh = partial(text_tokens, self._recorder.transcript)
        self._record(merge_proposals(view, required_trims(view, window, reserve, fresh, count_tokens=weigh)))
        self._checked = window, room
        context = pruning_context(self._recorder.transcript, self._counts)
        budget = PruningBudget(window=window, reserve=reserve, rules=self._config.current.pruning)
        proposed = await self._hooks.propose_prunes(
            self._recorder.transcript.view, context, budget, self._config.clock.now()
        )
        for failure in proposed.failures:
            self._recorder.append(failure, turn=self._ordinal)
        self._record(proposed.edits)

    def _record(self, edits: tuple[Edit, ...]) -> None:
        if edits:
            self._recorder.append(ContextPruned(edits=edits), turn=self._ordinal)

    @property
    def _ordinal(self) -> int:
        return open_turn(self._recorder.transcript).ordinal


def pruning_context(transcript: Transcript, counts: CharacterCount) -> PruningContext:
    """Return the content of the next request for pruning; `counts` follows the transcript's messages."""
    counts.follow(transcript.messages)
    return PruningContext(
        messages=counts.messages,
        sources=transcript.view.sources,
        sizes=counts.sizes,
        characters=counts.characters,
        edited=MappingProxyType(transcript.view.edited),
        asked_at=datetime.fromisoformat(transcript.asked_at) if transcript.asked_at else None,
    )
