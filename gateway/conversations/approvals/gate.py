"""The gate that every tool call passes before its `tool_called`: it lets the call run, refuses it, or parks the turn."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from datetime import datetime, timedelta
from hashlib import blake2b
from typing import Any

import msgspec

from gateway.config.approval_rules import PolicyAction
from gateway.config.settings import Settings
from gateway.conversations.approvals.policy import (
    NEVER_ASK,
    RememberedRule,
    choices_of,
    decide,
    pattern_of,
)
from gateway.conversations.approvals.remembered_rules import RememberedRules
from gateway.support.approval_text import answer_sentence
from gateway.support.errors import Conflict, GatewayError, sentence_of
from plugins.api.context import Clock
from plugins.api.tool import ApprovalRequest, DescribesCalls, Tool, ToolContext
from plugins.support.errors import ToolFailed
from plugins.support.secrets import scrubbed
from plugins.support.text.invisible import visible
from plugins.support.untrusted import is_own_object, reraise_cancellation
from sessions.events.codec import replace_surrogates
from sessions.events.errors import SessionsError
from sessions.events.events import ApprovalAsked, ApprovalGiven, ApprovalScope, Decision, PluginFailed, Recorded, TurnParked
from sessions.state.transcript import ApprovalQuestion, OpenCall, Transcript, open_turn
from sessions.store.header import random_suffix
from sessions.store.log_writer import stamp
from sessions.store.recorder import Recorder

DESCRIBE_SECONDS = 10.0
"""Seconds that a tool has to describe a call."""

DETAIL_LIMIT = 128 * 1024
"""Bytes of the longest detail that is shown. A call that cannot be shown in full is refused."""

WHAT_LIMIT = 2000
"""Characters of the line that says what would be done; a longer one is shown as detail."""


class MustPark(Exception):
    """A call waits for a person: the turn is parked, and its task ends."""


class UnknownApproval(GatewayError):
    """A question that does not exist in this session, or a choice that it does not offer."""


class ApprovalGate:
    """The gate of one session.

    Args:
        recorder: The recorder of the session.
        settings: The configuration in force.
        rules: The rules that people set by approving a call always.
        clock: The clock, by which questions expire.
    """

    def __init__(self, recorder: Recorder, settings: Settings, rules: RememberedRules, clock: Clock) -> None:
        self._recorder = recorder
        self._settings = settings
        self._rules = rules
        self._clock = clock
        self._deciding: set[str] = set()
        self._asking: dict[str, asyncio.Future[bool]] = {}
        self._asked = set[str]()
        self._opened_at = recorder.head
        recorder.on_event(self._on_event)

    @property
    def transcript(self) -> Transcript:
        """The transcript of the session."""
        return self._recorder.transcript

    def knows(self, approval: str) -> bool:
        """Return True if a question is open here, or was answered recently."""
        turn = self.transcript.open_turn
        is_open = turn is not None and turn.question(approval) is not None
        return is_open or any(given.approval == approval for given in self.transcript.answers)

    async def admit(self, call: OpenCall, tool: Tool, arguments: dict[str, object], context: ToolContext) -> str:
        """Decide about a call that is about to run.

        Returns:
            "" if it may run, else the reason for refusing it, as a sentence for the model.

        Raises:
            MustPark: A person is asked; the question and `turn_parked` are durable.
        """
        try:
            request = await self._describe(call.tool, tool, arguments, context)
        except ToolFailed as error:
            return str(error)
        action, because = await self._decide(call.tool, request, context)
        if action == "deny":
            return f"This call is not allowed, and nobody was asked. {because}"
        questions = open_turn(self._recorder.transcript).questions
        question = next((each for each in questions if each.asked.call == call.ref and not each.during), None)
        if action == "allow" and question is None:
            return ""
        request = request or _described_by_arguments(call.tool, arguments)
        if len(request.detail.encode()) > DETAIL_LIMIT:
            return f"A person must approve this call and cannot be shown {len(request.detail):,} characters; split it."
        digest = digest_of(call.tool, arguments, request)
        if question is None or question.answer is None:
            await self._park(question or self._ask(call, request, digest))
            raise MustPark
        return await self._answer_to(question, digest)  # also if rules have changed: this call is what the person was shown

    async def _answer_to(self, question: ApprovalQuestion, digest: str) -> str:
        assert question.answer is not None
        await self._recorder.until_durable(question.answered)
        with suppress(SessionsError):  # a crash may have come between the answer and its rule
            await self._remember(question.asked, question.answer)
        if question.answer.decision == "deny":
            return question.answer.reason or "A person denied this call. Do not try the same in another way; ask what to do."
        if question.asked.digest != digest:
            return "What this call depends on has changed since it was approved, so it did not run. Look at it again."
        return ""

    async def ask_during(self, call: OpenCall, request: ApprovalRequest) -> bool:
        """Ask a person while the call runs; return True if they approve before the question expires.

        A call that runs again after a crash has its question from before, if that was open at the start.
        """
        once = msgspec.structs.replace(request, rememberable=False)
        digest = digest_of(call.tool, {}, once)
        open_ = (
            each
            for each in open_turn(self._recorder.transcript).questions
            if each.during and each.asked.call == call.ref and each.asked.digest == digest
            if each.answer is None or each.answered > self._opened_at
        )
        question = next((each for each in open_ if each.asked.approval not in self._asked), None)
        asked = (question or self._ask(call, once, digest)).asked
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._asked.add(asked.approval)
        self._asking[asked.approval] = answer
        if question is not None and question.answer is not None:
            answer.set_result(question.answer.decision == "approve")
        left = (datetime.fromisoformat(asked.expires) - self._clock.now()).total_seconds()
        try:
            async with asyncio.timeout(max(0.0, left)):
                approved = await answer
                await self._recorder.until_durable(self._recorder.head)
                return approved
        except TimeoutError:
            with suppress(SessionsError, GatewayError):
                await self.expire(asked.approval)
            return False
        finally:
            del self._asking[asked.approval]

    def _on_event(self, recorded: Recorded) -> None:
        if isinstance(event := recorded.event, ApprovalGiven):
            answer = self._asking.get(event.approval)
            if answer is not None and not answer.done():
                answer.set_result(event.decision == "approve")

    # --- answers ------------------------------------------------------------------------------------------------------

    async def give(
        self, approval: str, decision: Decision, scope: ApprovalScope, *, by: str, channel: str, reason: str = ""
    ) -> int:
        """Record the answer to a question and return its seq once it is durable.

        Raises:
            UnknownApproval: There is no such question here, or it does not offer this scope.
            Conflict: It was answered before, or has expired.
            SessionsError: The answer, or the rule of one for always, could not be stored.
        """
        question = self._open_question(approval)
        if decision == "approve" and scope not in question.asked.choices:
            offered = ", ".join(question.asked.choices)
            raise UnknownApproval(f"This question cannot be answered with {scope}; it offers {offered}.")
        if question.asked.expires <= stamp(self._clock.now()):
            raise Conflict(f"The question {approval} has expired.")
        if approval in self._deciding:
            raise Conflict(f"The question {approval} is being answered already.")
        self._deciding.add(approval)
        try:
            given = ApprovalGiven(
                approval=approval,
                decision=decision,
                scope=scope if decision == "approve" else "once",
                by=by,
                channel=channel,
                reason=reason,
            )
            seq = await self._recorder.append_durable(given, turn=open_turn(self._recorder.transcript).ordinal)
            await self._remember(question.asked, given)
        finally:
            self._deciding.discard(approval)
        return seq

    async def _remember(self, asked: ApprovalAsked, given: ApprovalGiven) -> None:
        """Set the rule of a call that was approved always, unless it was set before. Raises SessionsError."""
        if given.decision == "approve" and given.scope == "always":
            transcript = self._recorder.transcript
            await self._rules.add(
                tool=asked.tool,
                agent=transcript.agent,
                person=transcript.person,
                pattern=asked.pattern,
                session=transcript.session,
                approval=asked.approval,
            )

    async def expire(self, approval: str) -> None:
        """Deny a question that nobody has answered in time, unless it is being answered."""
        if approval in self._deciding:
            return
        self._open_question(approval)
        given = ApprovalGiven(
            approval=approval,
            decision="deny",
            scope="once",
            by="",
            channel="",
            reason="Nobody answered the question whether this may run in time, so it did not run.",
        )
        await self._recorder.append_durable(given, turn=open_turn(self._recorder.transcript).ordinal)

    def _open_question(self, approval: str) -> ApprovalQuestion:
        transcript = self._recorder.transcript
        for given in transcript.answers:
            if given.approval == approval:
                raise Conflict(f"The question {approval} was already answered. {answer_sentence(given)}")
        question = transcript.open_turn.question(approval) if transcript.open_turn is not None else None
        if question is None:
            raise UnknownApproval(f"No question {approval} is open here; /approvals lists those that are.")
        return question

    # --- questions ----------------------------------------------------------------------------------------------------

    async def _describe(
        self, name: str, tool: Tool, arguments: dict[str, object], context: ToolContext
    ) -> ApprovalRequest | None:
        """Return the description of a call; None if it needs no approval."""
        if name in NEVER_ASK:
            return None
        if not isinstance(tool, DescribesCalls):
            return _described_by_arguments(name, arguments)
        own = is_own_object(tool)
        try:
            async with asyncio.timeout(DESCRIBE_SECONDS):
                request: Any = await tool.approval(arguments, context)
            if request is not None and not isinstance(request, ApprovalRequest):
                raise TypeError("it did not return an ApprovalRequest")
        except ToolFailed:
            raise
        except BaseException as error:
            reraise_cancellation(error)
            sentence = f"{type(error).__name__}: {sentence_of(error)}"
            ordinal = open_turn(self._recorder.transcript).ordinal
            self._recorder.append(PluginFailed(plugin=name, hook="approval", sentence=sentence), turn=ordinal)
            raise ToolFailed(f"The tool could not describe this call for approval: {sentence_of(error)}") from error
        if request is None:
            return None if own else _described_by_arguments(name, arguments)
        return _cleaned(request if own else msgspec.structs.replace(request, needed=True))

    async def _decide(self, tool: str, request: ApprovalRequest | None, context: ToolContext) -> tuple[PolicyAction, str]:
        keys, transcript = self._settings.current.approvals, self._recorder.transcript
        remembered: list[RememberedRule] = []
        if request is not None and request.rememberable:
            remembered = await self._rules.of_person(transcript.person)
        decided = decide(
            keys, tool=tool, agent=context.agent, request=request, grants=transcript.grants, remembered=remembered
        )
        return decided.action, decided.because

    def _ask(self, call: OpenCall, request: ApprovalRequest, digest: str) -> ApprovalQuestion:
        seconds = self._settings.current.approvals.expire
        asked = ApprovalAsked(
            approval=random_suffix(),
            call=call.ref,
            tool=call.tool,
            what=request.what,
            detail=request.detail,
            why=request.why,
            digest=digest,
            choices=choices_of(request),
            expires=stamp(self._clock.now() + timedelta(seconds=seconds)),
            pattern=pattern_of(request),
        )
        self._recorder.append(asked, turn=open_turn(self._recorder.transcript).ordinal, urgent=True)
        return ApprovalQuestion(asked=asked)

    async def _park(self, question: ApprovalQuestion) -> None:
        parked = TurnParked(approval=question.asked.approval)
        await self._recorder.append_durable(parked, turn=open_turn(self._recorder.transcript).ordinal)


def digest_of(tool: str, arguments: dict[str, object], request: ApprovalRequest) -> str:
    """Return 32 hexadecimal digits (BLAKE2b) over a call: its arguments, what a person is shown, and its `state`."""
    shown = (request.what, request.detail, request.argv, request.host, request.path, request.state)
    return blake2b(msgspec.json.encode((tool, arguments, shown), order="sorted"), digest_size=16).hexdigest()


def _described_by_arguments(name: str, arguments: dict[str, object]) -> ApprovalRequest:
    compact = msgspec.json.encode(arguments).decode()
    shown = msgspec.json.format(msgspec.json.encode(arguments), indent=2).decode()
    return _cleaned(ApprovalRequest(what=f"{name} {compact}", detail=shown if len(compact) > WHAT_LIMIT // 4 else ""))


def _cleaned(request: ApprovalRequest) -> ApprovalRequest:
    """Return a description that can be shown and recorded: one line of bounded length, and the rest as detail. What is
    invisible is written out, because the call has it."""
    what, detail = visible(request.what), visible(request.detail)
    detail = detail if detail.strip() != what else ""
    line = " ".join(what.splitlines())
    if len(what) > WHAT_LIMIT or line != what:
        detail = f"{what}\n{detail}" if detail else what
    return msgspec.structs.replace(
        request,
        what=replace_surrogates(scrubbed(line if len(line) <= WHAT_LIMIT else f"{line[:WHAT_LIMIT]}…")),
        detail=replace_surrogates(scrubbed(detail)),
        why=replace_surrogates(visible(request.why))[:WHAT_LIMIT],
    )
