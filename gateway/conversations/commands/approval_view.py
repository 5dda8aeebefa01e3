"""The questions about tool calls as a slash command sees and answers them, with the rights of its sender in that chat."""

from __future__ import annotations

from collections.abc import Sequence

from gateway.conversations.approvals.open_questions import Answerer
from gateway.conversations.commands.command_services import CommandServices
from gateway.conversations.commands.memory_view import as_command_failure
from gateway.support.approval_text import SCOPES, pattern_sentence, question_text
from plugins.api.command import CommandFailed, OpenQuestion, RememberedApproval
from sessions.events.events import ApprovalScope, MessageReceived


class SendersApprovals:
    """An `ApprovalsView` for the sender of a message, which is a command in a session.

    In a group, only the questions of this session are shown. A sender on a channel whose every sender counts as the person
    sees only what they have asked for themselves.
    """

    def __init__(self, services: CommandServices, message: MessageReceived, session: str) -> None:
        self._questions = services.questions
        self._senders = services.senders
        self._settings = services.settings
        self._message = message
        self._session = session
        self._group = message.chat == "group"

    async def questions(self) -> Sequence[OpenQuestion]:
        questions, person, answerer = self._questions, self._message.sender, await self._answerer()
        found = questions.of_session(self._session) if self._group else questions.of_person(person)
        return [
            OpenQuestion(
                approval=each.asked.approval, key=each.transcript.key, text=question_text(each.asked, self._settings.zone)
            )
            for each in found
            if answerer.may_answer(each.transcript)
        ]

    async def answer(self, approval: str, *, approve: bool, scope: ApprovalScope = "once") -> str:
        with as_command_failure():
            await self._questions.answer(approval, "approve" if approve else "deny", scope, await self._answerer())
        return f"Approved {SCOPES[scope]}." if approve else "Denied."

    async def remembered(self) -> Sequence[RememberedApproval]:
        if self._group or not (await self._answerer()).named:
            return []
        rules = await self._questions.rules.of_person(self._message.sender)
        return [RememberedApproval(id=rule.id, at=rule.at, text=pattern_sentence(rule.tool, rule.pattern)) for rule in rules]

    async def revoke(self, rule: str) -> str:
        known = {each.id: each.text for each in await self.remembered()}
        if rule not in known:
            raise CommandFailed(f"You have no rule {rule}; /approvals lists them in a private chat.")
        with as_command_failure():
            await self._questions.rules.revoke(rule, self._message.sender)
        return known[rule]

    async def _answerer(self) -> Answerer:
        """Return the sender with the rights that they have now. Raises CommandFailed if their address has none any more."""
        message = self._message
        with as_command_failure():
            sender = await self._senders.sender_of(message)
        if sender is None:
            raise CommandFailed("This address may not speak here any more.")
        return Answerer(person=message.sender, channel=message.channel, client=message.client, named=sender.named)
