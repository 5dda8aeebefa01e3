"""The open questions of all sessions in memory: who may see and answer which.

A session whose turn is parked stays in memory, and is opened again after a restart, so these are all open questions.
"""

from __future__ import annotations

import asyncio
from weakref import WeakValueDictionary

import msgspec

from gateway.conversations.approvals.gate import ApprovalGate, UnknownApproval
from gateway.conversations.approvals.remembered_rules import RememberedRules
from gateway.support.errors import GatewayError
from plugins.support.workspace import OWNER
from sessions.events.events import ApprovalAsked, ApprovalScope, Decision
from sessions.state.transcript import Transcript


class NotYourQuestion(GatewayError):
    """A question of another person."""


class Answerer(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody who answers a question.

    Attributes:
        person: The person.
        channel: The channel of the answer.
        client: The client program, or the sender on a plugin's channel.
        named: False for a sender on a channel whose every sender counts as the person: such a sender may only answer what
            they have asked for themselves.
    """

    person: str
    channel: str
    client: str = ""
    named: bool = True

    def may_answer(self, transcript: Transcript) -> bool:
        """Return True if they may see and answer the questions of a session."""
        if not self.named:
            turn = transcript.open_turn
            to = turn.reply_to if turn is not None else None
            if turn is None or to is None or to.channel != self.channel or self.client not in turn.senders:
                return False
        return self.person in (transcript.person, OWNER)


class SessionQuestion(msgspec.Struct, frozen=True):
    """An open question in the event `seq`, and the transcript of the session that waits for its answer."""

    transcript: Transcript
    asked: ApprovalAsked
    seq: int


class RecordedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The answer to a question, which is durable as event `seq` of its session."""

    session: str
    key: str
    seq: int


class OpenQuestions:
    """The open questions of all sessions in memory, and the `rules` that people set by approving calls always."""

    def __init__(self, rules: RememberedRules) -> None:
        self.rules = rules
        self._gates = WeakValueDictionary[str, ApprovalGate]()
        self._complete = asyncio.Event()

    def add(self, gate: ApprovalGate) -> None:
        """Add a session that was opened; the questions of a session that is opened again replace the former ones."""
        self._gates[gate.transcript.session] = gate

    def complete(self) -> None:
        """Note that every session that a stop left with an open turn is in memory, as far as it can be opened."""
        self._complete.set()

    def of_person(self, person: str) -> list[SessionQuestion]:
        """Return the open questions of a person's sessions, oldest first."""
        return [question for question in self._all() if question.transcript.person == person]

    def of_session(self, session: str) -> list[SessionQuestion]:
        """Return the open questions of a session, oldest first."""
        return [question for question in self._all() if question.transcript.session == session]

    async def posted(self, channel: str, chat: str, receipt: str) -> ApprovalAsked | None:
        """Return the open question of which a channel delivered a post with this receipt in a chat. After a start this waits
        until all questions are known."""
        await self._complete.wait()
        for gate in tuple(self._gates.values()):
            turn = gate.transcript.open_turn
            if turn is None or turn.reply_to is None:
                continue
            if (turn.reply_to.channel, turn.reply_to.chat) == (channel, chat):  # some services number posts by chat
                for question in turn.questions:
                    if question.answer is None and receipt in question.receipts:
                        return question.asked
        return None

    async def answer(self, approval: str, decision: Decision, scope: ApprovalScope, answerer: Answerer) -> RecordedAnswer:
        """Answer a question, and return once the answer is durable.

        Raises:
            UnknownApproval: There is no such question, or it does not offer this scope.
            NotYourQuestion: The answerer may not answer it.
            Conflict: It was answered before, or has expired.
            SessionsError: The answer could not be stored.
        """
        if (gate := self._find(approval)) is None:
            await self._complete.wait()
            gate = self._find(approval)
        if gate is None:
            raise UnknownApproval(f"There is no question {approval}; /approvals lists the open ones.")
        transcript = gate.transcript
        if not answerer.may_answer(transcript):
            raise NotYourQuestion("Only the person who asked for this, or the owner, may answer.")
        if scope == "always" and not answerer.named:
            raise NotYourQuestion("Only a sender who is named or paired may approve a call always.")
        seq = await gate.give(approval, decision, scope, by=answerer.person, channel=answerer.channel)
        return RecordedAnswer(session=transcript.session, key=transcript.key, seq=seq)

    def _find(self, approval: str) -> ApprovalGate | None:
        return next((gate for gate in tuple(self._gates.values()) if gate.knows(approval)), None)

    def _all(self) -> list[SessionQuestion]:
        found = [
            SessionQuestion(gate.transcript, question.asked, question.seq)
            for gate in tuple(self._gates.values())
            if gate.transcript.open_turn is not None
            for question in gate.transcript.open_turn.questions
            if question.answer is None
        ]
        return sorted(found, key=lambda question: question.asked.expires)
