"""A session without a gateway that is compacted as the gateway compacts: its triggers, its cuts, its extract."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path

from benchmarks.pruned_session import PrunedSession
from gateway.config.keys import AgentKeys, CompactionKeys
from gateway.conversations.context.compacting import Compactor
from gateway.conversations.context.compaction_rules import CompactionRules, compaction_rules
from gateway.conversations.context.summarization import Summarization
from gateway.conversations.notes.day_notes import DayNotes
from gateway.conversations.notes.pending_notes import PendingNotes
from gateway.models.registry import ModelRegistry
from plugins.api.pruning import PruningRules
from sessions.events.events import ContextCompacted, Event, Recorded
from sessions.state.context import Gauge, assemble


class CompactedSession(PrunedSession):
    """No model is asked: the summary is the extract, and there is no workspace to flush to. `made` has each compaction with
    the request, counted from 0, before which it was made."""

    def __init__(self, rules: PruningRules, window: int) -> None:
        super().__init__(rules, window)
        self.made: list[tuple[int, ContextCompacted]] = []
        recorder, hooks, clock = self.recorder, self.hooks, lambda: self.now

        def lines(first: int) -> Awaitable[list[bytes]]:
            return recorder.log.lines(first, limit=1)

        notes = PendingNotes(recorder, DayNotes(Path("unused")), lines)
        summarization = Summarization(
            recorder,
            choose=ModelRegistry({}, configured="auto", window=window).choose,
            summarizers={name: kind() for name, kind in hooks.summarizers().items()},
            flushes={},
            notes=notes,
            clock=clock,
        )
        self._compacting = Compactor(
            recorder,
            rules=self._rules,
            summarization=summarization,
            notes=notes,
            hooks=hooks,
            vision=lambda: None,
            now=clock,
        )
        self._measured = Gauge()
        recorder.on_event(self._keep)

    async def shrink(self) -> None:
        await self.prune(self._compacting.reserve(self.window))
        tokens = self._measured.measure(assemble(self.recorder.transcript)).units.total
        await self._compacting.before_request(self.window, tokens)

    def _rules(self) -> CompactionRules:
        keys, agent = CompactionKeys(summarizer="extract"), AgentKeys(workspace_access="none")
        return compaction_rules(keys, agent, self.now)

    def _keep(self, recorded: Recorded) -> None:
        event: Event = recorded.event  # type: ignore[assignment]
        if isinstance(event, ContextCompacted):
            self.made.append((len(self.sent), event))
