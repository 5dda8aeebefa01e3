"""One attempt to compact, the hooks of plugins that it calls, and the pause after too many failures."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta

import msgspec

from gateway.conversations.context.conversation_config import CompactionRules
from plugins.api.compaction import AfterCompaction, BeforeCompaction, CompactionBudget, CompactionContext
from plugins.host.hooks import Hooks
from sessions.events.events import ContextCompacted, PluginFailed, Trigger
from sessions.state import compaction
from sessions.state.compaction import FRAME, Budget, CompactionPlan, Sizes
from sessions.state.compaction_cycle import CompactionCycle
from sessions.store.recorder import Recorder

FAILURES = 3
"""Consecutive failures after which no model is asked for a summary during a pause."""

FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=5), timedelta(hours=6)


class CompactionAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to shrink a view below `target` tokens. `sizes` are those of the next request now, `allowed` is what
    the window allows."""

    trigger: Trigger
    rules: CompactionRules
    sizes: Sizes
    allowed: Budget
    target: int
    focus: str = ""

    def room(self, cut: CompactionPlan) -> int:
        """Return the tokens that a summary may have."""
        return self.target - 1 - self.sizes.head - FRAME - sum(self.sizes.messages[cut.first :])

    @property
    def requested(self) -> bool:
        return self.trigger == "command"


class CompactionHooks:
    """Calls the compaction hooks on behalf of one session, and records their failures in its log. Never raises an error of a
    plugin."""

    def __init__(self, recorder: Recorder, hooks: Hooks) -> None:
        self._recorder = recorder
        self._hooks = hooks

    async def cut(self, attempt: CompactionAttempt) -> CompactionPlan | None:
        """Return the cut that a plugin proposes; None if none does."""
        view, sizes, allowed = self._recorder.transcript.view, attempt.sizes, attempt.allowed
        if not (cuts := compaction.fitting_cuts(view, sizes, below=attempt.target)):
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
            target=attempt.target,
            keep_tokens=allowed.recent,
            keep_messages=attempt.rules.thresholds.recent_messages,
        )
        planned = await self._hooks.plan_compaction(context, budget, attempt.trigger)
        self._record_failures(planned.failures)
        if planned.keep_from is None:
            return None
        return compaction.plan_at(view, sizes, allowed, view.first_from(planned.keep_from), below=attempt.target)

    async def before(self, attempt: CompactionAttempt, keep_from: int) -> None:
        """Notify the plugins that a cycle has begun; `keep_from` is the seq of the first message that it would keep."""
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
        self._record_failures(await self._hooks.before_compaction(begins))

    async def after(self, attempt: CompactionAttempt, made: ContextCompacted) -> None:
        """Notify the plugins that a compaction was recorded."""
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
        self._record_failures(await self._hooks.after_compaction(ended))

    def _record_failures(self, failures: Iterable[PluginFailed]) -> None:
        turn = self._recorder.transcript.open_turn
        for failure in failures:
            self._recorder.append(failure, turn=turn.ordinal if turn else None)


def paused(cycle: CompactionCycle, now: datetime) -> bool:
    """Return True during the pause after repeated failures, which doubles with each further one."""
    if cycle.failures < FAILURES:
        return False
    pause = min(FIRST_PAUSE * 2 ** min(cycle.failures - FAILURES, 12), LONGEST_PAUSE)
    until: datetime = datetime.fromisoformat(cycle.failed_at) + pause
    return now < until
