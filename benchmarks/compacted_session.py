"""A session without a gateway process, compacted by the gateway's own rules."""

from __future__ import annotations

from pathlib import Path

import msgspec

from benchmarks.pruned_session import PrunedSession
from gateway.config.agents import AgentKeys
from gateway.config.keys import CompactionKeys
from gateway.conversations.context.compacting import Compactor
from gateway.conversations.context.session_models import SessionModels
from gateway.conversations.context.summarization import Summarization
from gateway.conversations.notes.day_notes import DayNotes, PendingNotes
from gateway.metrics.counters import Counters
from gateway.models.call import ModelCaller
from gateway.models.registry import ModelRegistry
from plugins.api.pruning import PruningRules
from sessions.events.events import ContextCompacted, Event, Recorded
from sessions.state.context import Gauge, assemble


class CompactedSession(PrunedSession):
    """A session that is also compacted. The summary is the extract, so no model is called; there is no workspace.

    `made` lists each compaction with the index of the request that it precedes.
    """

    def __init__(self, rules: PruningRules, window: int) -> None:
        super().__init__(rules, window)
        self.made: list[tuple[int, ContextCompacted]] = []
        recorder, hooks = self.recorder, self.hooks
        registry = ModelRegistry({}, AgentKeys(context_window=window))
        keys, agent = CompactionKeys(summarizer="extract"), AgentKeys(workspace_access="none")
        self.settings.offer(msgspec.structs.replace(self.settings.current, compaction=keys, agent=agent))
        models = SessionModels(recorder, registry, self.config)
        notes = PendingNotes(recorder, DayNotes(Path("unused")))
        summarization = Summarization(
            recorder,
            models=models,
            caller=ModelCaller(Counters()),
            summarizers={name: kind() for name, kind in hooks.summarizers().items()},
            flushes={},
            notes=notes,
            clock=self.clock,
        )
        self._compacting = Compactor(
            recorder,
            config=self.config,
            models=models,
            summarization=summarization,
            hooks=hooks,
        )
        self._view_gauge = Gauge()
        recorder.on_event(self._keep)

    async def shrink(self) -> None:
        await self.prune(self._compacting.reserve(self.window))
        tokens = self._view_gauge.measure(assemble(self.recorder.transcript)).units.total
        await self._compacting.before_request(self.window, tokens)

    def _keep(self, recorded: Recorded) -> None:
        event: Event = recorded.event  # type: ignore[assignment]
        if isinstance(event, ContextCompacted):
            self.made.append((len(self.sent), event))
