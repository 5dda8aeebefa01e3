"""`[approvals]`: the rules that decide whether a tool call runs, is refused, or is asked about."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Annotated, Literal, TypeAlias

import msgspec

from gateway.config.validation import Seconds
from plugins.api.tool import ApprovalRequest

PolicyAction: TypeAlias = Literal["ask", "allow", "deny"]

_Text = Annotated[str, msgspec.Meta(min_length=1)]


class ApprovalRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One of `approvals.rules`.

    `tool`, `agent` and `path` may contain `*` and `?`, a `path` that ends with `/` matches everything below it. `argv`
    matches the beginning of a command. `host` matches a host, and with `*.` before it all hosts below it. An empty field
    matches everything.
    """

    tool: _Text
    decision: PolicyAction
    argv: tuple[str, ...] = ()
    host: str = ""
    path: str = ""
    agent: str = ""

    def names(self, tool: str, agent: str) -> bool:
        """Return True if the rule is about this tool of this agent."""
        return fnmatchcase(tool, self.tool) and fnmatchcase(agent, self.agent or "*")

    @property
    def is_general(self) -> bool:
        """True if the rule matches every call of its tools."""
        return not (self.argv or self.host or self.path)

    def matches(self, request: ApprovalRequest | None) -> bool:
        """Return True if the rule matches a call of a tool that it names."""
        if self.is_general:
            return True
        return request is not None and (
            request.argv[: len(self.argv)] == self.argv
            and (not self.host or _is_host(request.host, self.host))
            and (not self.path or _is_path(request.path, self.path))
        )

    def may_match(self, request: ApprovalRequest | None) -> bool:
        """Return True if it cannot be told whether the rule matches, because the command is no plain list of arguments."""
        return bool(self.argv) and request is not None and not request.argv


class ApprovalsKeys(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """`[approvals]`: which tool calls a person is asked about. A question that nobody answers within `expire` is denied."""

    default: PolicyAction = "ask"
    rules: tuple[ApprovalRule, ...] = ()
    expire: Seconds = Seconds(24 * 3600)


def _is_host(host: str, pattern: str) -> bool:
    if pattern.startswith("*."):
        return host.endswith(pattern[1:])
    return host == pattern


def _is_path(path: str, pattern: str) -> bool:
    if pattern.endswith("/"):
        return path.startswith(pattern)
    return bool(path) and fnmatchcase(path, pattern)
