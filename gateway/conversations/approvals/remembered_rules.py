"""The log of the rules that people set by approving a call always: `HOME/approvals.jsonl`.

It has the line format of all logs (see docs/events.md), is opened when the first question is decided, and is created by the
first rule. If it cannot be read, no rule applies: people are asked.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from types import TracebackType
from typing import Self, TypeAlias

import msgspec

from gateway.conversations.approvals.policy import RememberedRule
from sessions.events.errors import SessionsError
from sessions.events.events import ActionPattern
from sessions.store.header import random_suffix
from sessions.store.lazy_log import LazyLog, LogFormat
from sessions.store.protocols import Lines, Store


class ApprovalRuleSet(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="approval_rule_set"
):
    """A person approved similar calls always, when answering the question `approval` of a session."""

    rule: str
    tool: str
    agent: str
    person: str
    session: str
    approval: str
    pattern: ActionPattern = ActionPattern()


class ApprovalRuleRevoked(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="approval_rule_revoked"):
    """A rule no longer applies."""

    rule: str
    by: str


RuleEvent: TypeAlias = ApprovalRuleSet | ApprovalRuleRevoked
Rules: TypeAlias = Mapping[str, RememberedRule]


class RememberedRules:
    """The rules of all persons, as an async context manager.

    Args:
        store: The store of the log.
        now: Returns the current time in UTC.
    """

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._log = LazyLog(RULES, store, now, unusable="The remembered approvals cannot be used, so people are asked")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._log.close()

    def problems(self) -> list[str]:
        """Return the problem of the log as a sentence, if there is one."""
        return [self._log.problem] if self._log.problem else []

    async def rewrite(self, rewritten: Callable[[Lines], Iterator[bytes]]) -> None:
        """Replace the lines of the log, see `LazyLog.rewrite`. Raises StorageFailed, JournalDamaged."""
        await self._log.rewrite(rewritten)

    async def of_person(self, person: str) -> list[RememberedRule]:
        """Return the rules of a person, oldest first; none if the log cannot be read."""
        try:
            rules = await self._log.durable_state()
        except SessionsError:
            return []
        return [rule for rule in rules.values() if rule.person == person]

    async def add(
        self, *, tool: str, agent: str, person: str, pattern: ActionPattern, session: str, approval: str
    ) -> RememberedRule:
        """Set a rule, unless this answer has set it before, and return it once it is durable. Raises SessionsError."""
        async with self._log.writing() as writer:
            if known := next((each for each in writer.state.values() if each.answer == (session, approval)), None):
                await writer.until_durable(writer.head)
                return known
            rule = new_rule_id(writer.state)
            event = ApprovalRuleSet(
                rule=rule, tool=tool, agent=agent, person=person, session=session, approval=approval, pattern=pattern
            )
            await writer.append_durable(event)
            return writer.durable_state[rule]

    async def revoke(self, rule: str, person: str) -> bool:
        """Revoke a rule of a person durably; return False if there is none with this id. Raises SessionsError."""
        known = (await self._log.durable_state()).get(rule)
        if known is None or known.person != person:
            return False
        async with self._log.writing() as writer:
            await writer.append_durable(ApprovalRuleRevoked(rule=rule, by=person))
        return True


def fold_rule(rules: Rules, event: RuleEvent, *, seq: int, at: str, turn: int | None, size: int) -> Rules:
    """Return the rules after one more event."""
    if isinstance(event, ApprovalRuleRevoked):
        return {name: rule for name, rule in rules.items() if name != event.rule}
    rule = RememberedRule(
        id=event.rule,
        tool=event.tool,
        agent=event.agent,
        person=event.person,
        answer=(event.session, event.approval),
        pattern=event.pattern,
        at=at,
    )
    return {**rules, event.rule: rule}


def new_rule_id(taken: Rules) -> str:
    """Return a short random id that is not taken."""
    while (rule := random_suffix()) in taken:
        pass
    return rule


RULES: LogFormat[RuleEvent, Rules] = LogFormat(
    name="approvals", events=(ApprovalRuleSet, ApprovalRuleRevoked), empty={}, fold=fold_rule
)
