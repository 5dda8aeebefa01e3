"""The log of the rules that people set by approving a call always: `HOME/approvals.jsonl`.

It has the line format of all logs (see docs/events.md), is opened when the first question is decided, and is created by the
first rule. If it cannot be read, no rule applies: people are asked.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from datetime import datetime
from types import TracebackType
from typing import Self, TypeAlias

import msgspec

from gateway.conversations.approvals.policy import RememberedRule
from gateway.support.errors import sentence_of
from sessions.events.codec import InvalidLine
from sessions.events.errors import SessionsError, StorageFailed, UnknownSession
from sessions.events.events import ActionPattern
from sessions.store.header import random_suffix
from sessions.store.log_writer import LogWriter
from sessions.store.protocols import START, Log, LogReader, Position, Store
from sessions.store.reading import verify_lines

LOG = "approvals"
"""The id of the log in its store."""


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


class _Envelope(msgspec.Struct, frozen=True):
    at: str
    kind: str


_envelope = msgspec.json.Decoder(_Envelope).decode
_decoders: dict[str, Callable[[bytes], RuleEvent]] = {
    "approval_rule_set": msgspec.json.Decoder(ApprovalRuleSet).decode,
    "approval_rule_revoked": msgspec.json.Decoder(ApprovalRuleRevoked).decode,
}


class RememberedRules:
    """The rules of all persons, as an async context manager.

    Args:
        store: The store of the log.
        now: Returns the current time in UTC.
    """

    def __init__(self, store: Store, now: Callable[[], datetime]) -> None:
        self._store = store
        self._now = now
        self._opening = asyncio.Lock()
        self._writer: LogWriter[RuleEvent, Rules] | None = None
        self._missing = False
        self._problem = ""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._writer is not None:
            await self._writer.close()

    def problems(self) -> list[str]:
        """Return the problem of the log as a sentence, if there is one."""
        return [self._problem] if self._problem else []

    async def of_person(self, person: str) -> list[RememberedRule]:
        """Return the rules of a person, oldest first; none if the log cannot be read."""
        try:
            writer = await self._opened(create=False)
        except SessionsError:
            return []
        return [rule for rule in writer.durable_state.values() if rule.person == person] if writer else []

    async def add(
        self, *, tool: str, agent: str, person: str, pattern: ActionPattern, session: str, approval: str
    ) -> RememberedRule:
        """Set a rule, unless this answer has set it before, and return it once it is durable. Raises SessionsError."""
        writer = await self._opened(create=True)
        assert writer is not None
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
        writer = await self._opened(create=False)
        known = writer.state.get(rule) if writer else None
        if writer is None or known is None or known.person != person:
            return False
        await writer.append_durable(ApprovalRuleRevoked(rule=rule, by=person))
        return True

    async def _opened(self, *, create: bool) -> LogWriter[RuleEvent, Rules] | None:
        async with self._opening:
            if self._writer is not None and self._writer.failure is None:
                return self._writer
            if self._missing and not create:
                return None
            try:
                self._missing = await asyncio.to_thread(self._store.stamp, LOG) is None
                if self._missing and not create:
                    return None
                self._writer = LogWriter(*await self._open(), self._now, fold_rule)
            except (SessionsError, InvalidLine) as error:
                self._problem = f"The remembered approvals cannot be used, so people are asked: {sentence_of(error)}"
                raise StorageFailed(self._problem) from error
            self._missing, self._problem = False, ""
            return self._writer

    async def _open(self) -> tuple[Log, Position, Rules]:
        if self._missing:
            return await self._store.create(LOG), START, {}
        folded = _RuleFold()
        log, position = await self._store.open(LOG, fold=folded)
        return log, position, folded.rules


class _RuleFold:
    """The rules in the lines that were applied."""

    def __init__(self) -> None:
        self.rules: Rules = {}

    def __call__(self, line: bytes) -> None:
        try:
            envelope = _envelope(line)
            decoder = _decoders.get(envelope.kind)
            event = decoder(line) if decoder else None
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise InvalidLine(f"it cannot be read: {error}") from error
        if event is not None:
            self.rules = fold_rule(self.rules, event, seq=0, at=envelope.at, turn=None, size=0)


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


def read_rules(logs: LogReader) -> Rules:
    """Return the durable rules, even while another process writes them.

    Raises JournalDamaged, StorageFailed and InvalidLine.
    """
    folded = _RuleFold()
    try:
        with logs.read(LOG) as lines:
            verify_lines(lines, START, folded)
    except UnknownSession:
        return {}
    return folded.rules
