"""A session without a gateway that is compacted as the gateway compacts: its triggers, its cuts, its extract."""

from __future__ import annotations

from collections.abc import Awaitable
from pathlib import Path

from benchmarks.pruned_session import PrunedSession
from gateway.configuration.keys import AgentKeys, CompactionKeys
from gateway.conversations.compacting import Compacting
from gateway.conversations.compaction_rules import CompactionRules, compaction_rules
from gateway.conversations.condensing import Condensing
from gateway.conversations.day_notes import DayNotes
from gateway.conversations.owed_notes import OwedNotes
from gateway.models.choosing import Models
from plugins.pruning import PruningRules
from sessions.context import Gauge, assemble
from sessions.events import ContextCompacted, Event, Recorded


class CompactedSession(PrunedSession):
    """No model is asked: the summary is the extract, and there is no workspace to flush to. `made` has each compaction with
    the request, counted from 0, before which it was made."""

    def __init__(self, rules: PruningRules, window: int) -> None:
        super().__init__(rules, window)
        self.made: list[tuple[int, ContextCompacted]] = []
        recorder, hooks, clock = self.recorder, self.hooks, lambda: self.now

        def lines(first: int) -> Awaitable[list[bytes]]:
            return recorder.log.lines(first, limit=1)

        notes = OwedNotes(recorder, DayNotes(Path("unused")), lines)
        condensing = Condensing(
            recorder,
            choose=Models({}, configured="auto", window=window).choose,
            summarizers={name: kind() for name, kind in hooks.summarizers().items()},
            flushes={},
            notes=notes,
            clock=clock,
        )
        self._compacting = Compacting(
            recorder, rules=self._rules, condensing=condensing, notes=notes, hooks=hooks, sight=lambda: None, now=clock
        )
        self._measured = Gauge()
        recorder.read_along(self._keep)

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
