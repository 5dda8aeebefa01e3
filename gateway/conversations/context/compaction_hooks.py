"""The compaction hooks of plugins for one session; failures are recorded in its log."""

from __future__ import annotations

from collections.abc import Iterable

from gateway.conversations.context.compaction_rules import CompactionAttempt
from plugins.api.compaction import AfterCompaction, BeforeCompaction, CompactionBudget, CompactionContext
from plugins.host.hooks import Hooks
from sessions.events.events import ContextCompacted, PluginFailed
from sessions.state import compaction
from sessions.state.compaction import CompactionPlan
from sessions.store.recorder import Recorder


class CompactionHooks:
    """Calls the compaction hooks on behalf of one session. Never raises an error of a plugin."""

    def __init__(self, recorder: Recorder, hooks: Hooks) -> None:
        self._recorder = recorder
        self._hooks = hooks

    async def cut(self, attempt: CompactionAttempt) -> CompactionPlan | None:
        """Return the cut that a plugin proposes; None if none does."""
        view, sizes, allowed = self._recorder.transcript.view, attempt.sizes, attempt.allowed
        if not (cuts := compaction.fitting_cuts(view, sizes, below=attempt.below)):
            return None
        context = CompactionContext(
            messages=tuple(view.messages),
            places=tuple(view.placed),
            sizes=sizes.messages,
            head=sizes.head,
            cuts=tuple(cuts),
        )
        budget = CompactionBudget(
            window=allowed.window,
            below=attempt.below,
            recent=allowed.recent,
            recent_messages=attempt.rules.thresholds.recent_messages,
        )
        planned = await self._hooks.plan_compaction(context, budget, attempt.trigger)
        self._note(planned.failures)
        if planned.keep_from is None:
            return None
        return compaction.plan_at(view, sizes, allowed, view.first_from(planned.keep_from), below=attempt.below)

    async def before(self, attempt: CompactionAttempt, keep_from: int) -> None:
        """Report that a cycle has begun, which would keep everything from this seq on."""
        transcript = self._recorder.transcript
        begins = BeforeCompaction(
            session=transcript.session,
            person=transcript.person,
            key=transcript.key,
            compaction=transcript.cycle.compaction,
            trigger=attempt.trigger,
            focus=attempt.focus,
            keep_from=keep_from,
            tokens_before=attempt.sizes.total,
        )
        self._note(await self._hooks.before_compaction(begins))

    async def after(self, attempt: CompactionAttempt, made: ContextCompacted) -> None:
        """Report that a compaction is recorded."""
        transcript = self._recorder.transcript
        ended = AfterCompaction(
            session=transcript.session,
            person=transcript.person,
            key=transcript.key,
            compaction=made.compaction,
            trigger=attempt.trigger,
            focus=attempt.focus,
            keep_from=made.keep_from,
            tokens_before=made.tokens_before,
            tokens_after=made.tokens_after,
            messages=made.messages,
            summary=made.summary,
            by=made.by,
        )
        self._note(await self._hooks.after_compaction(ended))

    def _note(self, failures: Iterable[PluginFailed]) -> None:
        turn = self._recorder.transcript.open_turn
        for failure in failures:
            self._recorder.append(failure, turn=turn.ordinal if turn else None)
