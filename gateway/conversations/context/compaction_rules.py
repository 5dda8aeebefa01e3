"""The configuration of compactions, one attempt at one, and the pause after too many failures."""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

from gateway.config.keys import AgentKeys, CompactionKeys
from plugins.api.summarization import FlushRules, IdentifierPolicy
from sessions.events.events import Trigger
from sessions.state import compaction
from sessions.state.compaction import FRAME, Budget, CompactionPlan, Sizes
from sessions.state.compaction_cycle import CompactionCycle

FAILURES = 3
"""Consecutive failures after which no model is asked for a summary during a pause."""

FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=5), timedelta(hours=6)


class CompactionRules(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of compactions.

    `provider_side` lets a provider compact by itself, `by` and `flush_by` name the summarizer and the flush, `force_bytes`
    is the growth of the journal that triggers a flush (0: none), `writable` is True if the workspace may be written,
    `today` is the current local time.
    """

    enabled: bool
    provider_side: bool
    thresholds: compaction.Rules
    by: str
    identifier_policy: IdentifierPolicy
    identifier_instructions: str
    flush_enabled: bool
    flush_by: str
    flush_rules: FlushRules
    force_bytes: int
    writable: bool
    language: str
    today: datetime


class CompactionAttempt(msgspec.Struct, frozen=True, kw_only=True):
    """One attempt to shrink a view below `below` tokens. `sizes` are those of the next request now, `allowed` is what
    the window allows."""

    trigger: Trigger
    rules: CompactionRules
    sizes: Sizes
    allowed: Budget
    below: int
    focus: str = ""

    def room(self, cut: CompactionPlan) -> int:
        """Return the tokens that a summary may have."""
        return self.below - 1 - self.sizes.head - FRAME - sum(self.sizes.messages[cut.first :])

    @property
    def wanted(self) -> bool:
        """Return True if a person requested it."""
        return self.trigger == "command"


def compaction_rules(keys: CompactionKeys, agent: AgentKeys, today: datetime) -> CompactionRules:
    """Return the rules of a configuration."""
    flush = keys.memory_flush
    return CompactionRules(
        enabled=keys.enabled,
        provider_side=keys.provider_side,
        thresholds=compaction.Rules(
            floor=keys.reserve_tokens_floor,
            soft=flush.soft_threshold_tokens,
            recent=keys.keep_recent_tokens,
            recent_messages=keys.keep_recent_messages,
            threshold=keys.threshold_tokens,
            ratio=keys.ratio,
            messages=keys.messages,
        ),
        by=keys.summarizer,
        identifier_policy=keys.identifier_policy,
        identifier_instructions=keys.identifier_instructions,
        flush_enabled=flush.enabled,
        flush_by=flush.by,
        flush_rules=FlushRules(system_prompt=flush.system_prompt or "", prompt=flush.prompt or ""),
        force_bytes=flush.force_bytes,
        writable=agent.workspace_access == "rw",
        language=agent.language,
        today=today,
    )


def paused(cycle: CompactionCycle, now: datetime) -> bool:
    """Return True during the pause after repeated failures, which doubles with each further one."""
    if cycle.failures < FAILURES:
        return False
    pause = min(FIRST_PAUSE * 2 ** min(cycle.failures - FAILURES, 12), LONGEST_PAUSE)
    until: datetime = datetime.fromisoformat(cycle.failed_at) + pause
    return now < until
