"""The commands that answer questions about tool calls: `/approve`, `/deny` and `/approvals`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, get_args

from plugins.api.command import ApprovalsView, CommandFailed, CommandTime, ConversationView, OpenQuestion
from plugins.commands.markdown import code
from sessions.events.events import ApprovalScope

SCOPES: tuple[ApprovalScope, ...] = get_args(ApprovalScope)


class Approve:
    """The `/approve` command, which lets a tool call run."""

    name: ClassVar[str] = "approve"
    usage: ClassVar[str] = "/approve [ID] [once|session|always]"
    summary: ClassVar[str] = "Approve a tool call that waits; without an ID, the only one."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Approve the call, by default once."""
        *named, last = argument.split() or [""]
        scope = next((scope for scope in SCOPES if scope == last), None)
        if scope is None:
            named, scope = argument.split(), "once"
        if len(named) > 1:
            raise CommandFailed(f"Write {self.usage}.")
        approvals = conversation.approvals
        return await approvals.answer(named[0] if named else await _only(approvals), approve=True, scope=scope)


class Deny:
    """The `/deny` command, which refuses a tool call."""

    name: ClassVar[str] = "deny"
    usage: ClassVar[str] = "/deny [ID]"
    summary: ClassVar[str] = "Deny a tool call that waits; without an ID, the only one."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Deny the call."""
        if len(named := argument.split()) > 1:
            raise CommandFailed(f"Write {self.usage}.")
        approvals = conversation.approvals
        return await approvals.answer(named[0] if named else await _only(approvals), approve=False)


async def _only(approvals: ApprovalsView) -> str:
    """Return the id of the only open question. Raises CommandFailed if there is none, or another."""
    questions = await approvals.questions()
    if not questions:
        raise CommandFailed("No question is open.")
    if len(questions) > 1:
        ids = ", ".join(code(question.approval) for question in questions)
        raise CommandFailed(f"{len(questions)} questions are open; name one: {ids}. /approvals shows them.")
    return questions[0].approval


class Approvals:
    """The `/approvals` command, which shows the open questions and the remembered approvals, and revokes one of those."""

    name: ClassVar[str] = "approvals"
    usage: ClassVar[str] = "/approvals [revoke ID]"
    summary: ClassVar[str] = "Show the tool calls that wait for approval and those approved always, or revoke one of these."
    when: ClassVar[CommandTime] = "now"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        """Show everything, or revoke a remembered approval."""
        match argument.split():
            case []:
                return await self._overview(conversation)
            case ["revoke", rule]:
                covered = await conversation.approvals.revoke(rule)
                return f"Revoked; from now on you are asked about {covered}."
        raise CommandFailed(f"Write {self.usage}.")

    async def _overview(self, conversation: ConversationView) -> str:
        questions, rules = await conversation.approvals.questions(), await conversation.approvals.remembered()
        lines = [*_question_lines(questions, conversation.key)]
        if rules:
            lines += ["**Approved always**", ""]
            lines += [
                f"- {rule.text}, since {conversation.local(rule.at):%Y-%m-%d %H:%M} (`/approvals revoke {rule.id}`)"
                for rule in rules
            ]
        return "\n".join(lines).rstrip() or "No question is open, and nothing was approved always."


def _question_lines(questions: Sequence[OpenQuestion], key: str) -> list[str]:
    lines = []
    for question in questions:
        if question.key != key:
            lines += [f"In the conversation {code(question.key)}:", ""]
        lines += [question.text, ""]
    return lines
