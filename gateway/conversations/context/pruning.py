"""Pruning before a model's call: the oversize rule, then the plugins; what is new goes into the log and so into the view."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from functools import partial
from types import MappingProxyType

from plugins.api.pruning import PruningBudget, PruningContext, PruningRules
from plugins.host.hooks import Hooks
from sessions.events.events import ContextPruned
from sessions.events.pruning import Edit
from sessions.state.edit_validation import joined
from sessions.state.transcript import open_turn
from sessions.state.truncation import oversize
from sessions.state.view_size import CharacterCount, weighed
from sessions.store.recorder import Recorder


class Pruner:
    """Keeps one session's view small. `now` is the time of day, in UTC. What was counted of the view, and found to be of a
    bearable size, is not looked at again."""

    def __init__(
        self,
        recorder: Recorder,
        hooks: Hooks,
        *,
        rules: Callable[[], PruningRules],
        now: Callable[[], datetime],
    ) -> None:
        self._recorder = recorder
        self._hooks = hooks
        self._rules = rules
        self._now = now
        self._tally = CharacterCount()
        self._bearable: tuple[int, int] | None = None
        """The window, and what the reserve leaves of it, that nothing in the tally is too large for."""

    async def prune(self, window: int | None, reserve: int) -> None:
        """Note what the next request of the open turn shows less of, at a window and a reserve of so many tokens. Where the
        window is not known nothing is too long for it."""
        fresh = self._tally.follow(self._recorder.transcript.messages)
        if window is None:
            self._bearable = None
            return
        room = window - reserve
        if self._bearable is None or window < self._bearable[0] or room < self._bearable[1]:
            fresh = 0
        view = self._recorder.transcript.view
        weigh = partial(weighed, self._recorder.transcript)
        self._note(joined(view, oversize(view, window, reserve, fresh, weigh=weigh)))
        self._bearable = window, room
        context, budget = self._context(), PruningBudget(window=window, reserve=reserve, rules=self._rules())
        proposed = await self._hooks.propose_prunes(self._recorder.transcript.view, context, budget, self._now())
        for failure in proposed.failures:
            self._recorder.append(failure, turn=self._ordinal)
        self._note(proposed.edits)

    def _context(self) -> PruningContext:
        transcript, tally = self._recorder.transcript, self._tally
        tally.follow(transcript.messages)
        return PruningContext(
            messages=tally.messages,
            sources=transcript.view.sources,
            sizes=tally.sizes,
            characters=tally.characters,
            edited=MappingProxyType(transcript.view.edited),
            asked_at=datetime.fromisoformat(transcript.asked_at) if transcript.asked_at else None,
        )

    def _note(self, edits: tuple[Edit, ...]) -> None:
        if edits:
            self._recorder.append(ContextPruned(edits=edits), turn=self._ordinal)

    @property
    def _ordinal(self) -> int:
        return open_turn(self._recorder.transcript).ordinal
