"""What the configuration says of compactions, one attempt at one, and how long none is tried after too many failures."""

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
"""After so many in a row no model is asked to summarise for a while."""

FIRST_PAUSE, LONGEST_PAUSE = timedelta(minutes=5), timedelta(hours=6)


class CompactionRules(msgspec.Struct, frozen=True, kw_only=True):
    """What the configuration says. `provider_side` lets a service compact by itself, `by` and `flush_by` name the summarizer
    and the flush, `force_bytes` is the growth of the journal that asks for a flush (0: none does), `writable` says whether
    the workspace may be written, `today` is now where the person is."""

    enabled: bool
    provider_side: bool
    figures: compaction.Rules
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
    """One attempt to make a view smaller than `below` tokens; `sizes` are those of the next request as it is, `allowed` what
    the window allows."""

    trigger: Trigger
    rules: CompactionRules
    sizes: Sizes
    allowed: Budget
    below: int
    focus: str = ""

    def room(self, cut: CompactionPlan) -> int:
        """Tokens that a summary may have for the view to become small enough."""
        return self.below - 1 - self.sizes.head - FRAME - sum(self.sizes.messages[cut.first :])

    @property
    def wanted(self) -> bool:
        """Whether a person asked for it."""
        return self.trigger == "command"


def compaction_rules(keys: CompactionKeys, agent: AgentKeys, today: datetime) -> CompactionRules:
    """The rules that a configuration amounts to."""
    flush = keys.memory_flush
    return CompactionRules(
        enabled=keys.enabled,
        provider_side=keys.provider_side,
        figures=compaction.Rules(
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
    """Whether too much went wrong lately: the pause doubles with each further failure."""
    if cycle.failures < FAILURES:
        return False
    pause = min(FIRST_PAUSE * 2 ** min(cycle.failures - FAILURES, 12), LONGEST_PAUSE)
    until: datetime = datetime.fromisoformat(cycle.failed_at) + pause
    return now < until
