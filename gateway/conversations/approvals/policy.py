"""The approval policy: pure functions from a tool call, the configuration and the remembered rules to a decision.

The first rule of `approvals.rules` that matches a call decides. `allow` and `deny` are final; `ask` asks unless a person
approved similar calls before. `approvals.default` applies where no rule matches.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gateway.config.approval_rules import ApprovalsKeys, PolicyAction
from plugins.api.tool import ApprovalRequest
from sessions.events.events import ActionPattern, ApprovalScope
from sessions.state.transcript import Grant

NEVER_ASK = frozenset({"read", "memory_search", "memory_get"})
"""Tools that only read what the person may see: they run unless a rule names them."""


class RememberedRule(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that a person approved always: a tool, an agent, and the exact pattern of the call that was asked about.
    `answer` is the session and the id of that question."""

    id: str
    tool: str
    agent: str
    person: str
    answer: tuple[str, str] = ("", "")
    pattern: ActionPattern = ActionPattern()
    at: str = ""


class PolicyDecision(msgspec.Struct, frozen=True, kw_only=True):
    """A decision about a call, and the reason as a sentence."""

    action: PolicyAction
    because: str


def decide(
    keys: ApprovalsKeys,
    *,
    tool: str,
    agent: str,
    request: ApprovalRequest | None,
    grants: Iterable[Grant] = (),
    remembered: Iterable[RememberedRule] = (),
) -> PolicyDecision:
    """Return the decision about a call.

    Args:
        keys: The configuration.
        tool: The name of the tool.
        agent: The name of the agent.
        request: The description of the call; None if a built-in tool needs no approval for it.
        grants: The calls that were approved for the session.
        remembered: The rules of the person.
    """
    action, because = _configured(keys, tool, agent, request)
    if action == "ask" and request is not None and request.rememberable:
        pattern = pattern_of(request)
        if any((grant.tool, grant.pattern) == (tool, pattern) for grant in grants):
            return PolicyDecision(action="allow", because="It was approved for this session.")
        for rule in remembered:
            if (rule.tool, rule.agent, rule.pattern) == (tool, agent, pattern):
                return PolicyDecision(action="allow", because=f"It was approved always (rule {rule.id}).")
    return PolicyDecision(action=action, because=because)


def _configured(keys: ApprovalsKeys, tool: str, agent: str, request: ApprovalRequest | None) -> tuple[PolicyAction, str]:
    """Return what the configuration says about a call, and which part of it."""
    unsure = 0
    for number, rule in enumerate(keys.rules, start=1):
        if not rule.names(tool, agent):
            continue
        if rule.matches(request):
            if unsure and rule.decision == "allow":
                return "ask", _unsure(unsure)
            return rule.decision, f"Rule {number} of approvals.rules says {rule.decision}."
        if rule.decision != "allow" and rule.may_match(request):
            unsure = unsure or number
    if request is None or not request.needed or tool in NEVER_ASK:
        return "allow", "This call needs no approval."
    if unsure and keys.default == "allow":
        return "ask", _unsure(unsure)
    return keys.default, f"No rule names this call, and approvals.default is {keys.default}."


def _unsure(number: int) -> str:
    return f"Rule {number} of approvals.rules may apply: the command is no plain list of arguments."


def pattern_of(request: ApprovalRequest) -> ActionPattern:
    """Return what an approval that is remembered matches: the same command, host or file."""
    return ActionPattern(argv=request.argv, host=request.host, path=request.path)


def choices_of(request: ApprovalRequest) -> tuple[ApprovalScope, ...]:
    """Return the scopes that are offered for a question."""
    return ("once", "session", "always") if request.rememberable else ("once",)


def is_withheld(keys: ApprovalsKeys, tool: str, agent: str) -> bool:
    """Return True if every call of a tool is denied by a rule, so that models are not offered it."""
    named = next((rule for rule in keys.rules if rule.names(tool, agent)), None)
    return named is not None and named.is_general and named.decision == "deny"
