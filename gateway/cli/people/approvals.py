"""`exuvia approvals list|explain`: print, and return an exit code. They only read, also while the gateway runs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from datetime import UTC, datetime
from urllib.parse import urlsplit

import msgspec

from gateway.cli.options import SUCCESS, Invocation, print_json
from gateway.conversations.approvals.policy import decide
from gateway.conversations.approvals.remembered_rules import RULES
from gateway.support.approval_text import pattern_sentence, question_text
from gateway.support.printable import one_line, printable
from gateway.support.storage import fact_logs, session_logs
from plugins.api.tool import ApprovalRequest
from plugins.tools.execution.plain_command import is_rememberable, parse
from sessions.events.codec import InvalidLine, decode, is_complete_line
from sessions.events.errors import SessionsError
from sessions.events.events import ApprovalAsked, ApprovalGiven, SessionForked, SessionOpened, TurnEnded, TurnStarted
from sessions.store.header import JournalHeader, read_header
from sessions.store.protocols import Lines


class ListedQuestion(msgspec.Struct, frozen=True, kw_only=True):
    """An open question, and the session that waits for its answer."""

    session: str
    key: str
    person: str
    question: ApprovalAsked


class ListedRule(msgspec.Struct, frozen=True, kw_only=True):
    """Calls that a person approved always."""

    id: str
    person: str
    agent: str
    tool: str
    at: str
    covers: str


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """The decision about a call, and the reason."""

    tool: str
    action: str
    decision: str
    because: str


def list_approvals(call: Invocation) -> int:
    """Print the open questions of all sessions, and what was approved always."""
    questions, rules = list(_open_questions(call)), _rules(call)
    if call.as_json:
        print_json({"questions": questions, "rules": rules}, call.out)
        return SUCCESS
    now = datetime.now(UTC)
    for each in questions:
        late = ", expired" if datetime.fromisoformat(each.question.expires) <= now else ""
        call.out.write(f"{one_line(each.key, 64)} of {one_line(each.person, 64)}, session {each.session}{late}:\n\n")
        call.out.write(printable(question_text(each.question)) + "\n\n")
    for rule in rules:
        whose = f"{one_line(rule.person, 64)}, agent {one_line(rule.agent, 64)}, since {rule.at}"
        call.out.write(f"{rule.id}  approved always: {printable(rule.covers)} ({whose})\n")
    if not questions and not rules:
        call.out.write("No question is open, and nothing was approved always.\n")
    return SUCCESS


def explain_decision(call: Invocation, action: str, *, tool: str, agent: str, person: str) -> int:
    """Print what would be decided about a call, and why."""
    remembered = [rule for rule in RULES.read(fact_logs(call.home)).values() if rule.person == person]
    decided = decide(call.config().approvals, tool=tool, agent=agent, request=_request(tool, action), remembered=remembered)
    if call.as_json:
        found = Explanation(tool=tool, action=action, decision=decided.action, because=decided.because)
        print_json(found, call.out)
        return SUCCESS
    call.out.write(f"{decided.action}: {printable(decided.because)}\n")
    return SUCCESS


def _request(tool: str, action: str) -> ApprovalRequest:
    """Describe a call as its tool would."""
    match tool:
        case "shell":
            argv = parse(action)
            return ApprovalRequest(what=action, argv=argv, rememberable=is_rememberable(argv))
        case "python":
            return ApprovalRequest(what=action, rememberable=False)
        case "fetch":
            return ApprovalRequest(what=action, host=urlsplit(action).hostname or "")
        case "write" | "edit":
            return ApprovalRequest(what=action, path=action)
    return ApprovalRequest(what=action)


def _open_questions(call: Invocation) -> Iterator[ListedQuestion]:
    logs = session_logs(call.home)
    for session, _ in logs.listed():
        with suppress(SessionsError, InvalidLine), logs.read(session) as lines:
            questions = questions_at_end(lines)
            header = read_header(lines) if questions else None
            yield from (_listed(header, question) for question in questions if header is not None)


def _listed(header: JournalHeader, question: ApprovalAsked) -> ListedQuestion:
    return ListedQuestion(session=header.session, key=header.key, person=header.person, question=question)


def questions_at_end(lines: Lines) -> list[ApprovalAsked]:
    """Return the open questions of a log, oldest first; only the lines of its last turn are read. Raises InvalidLine."""
    found: list[ApprovalAsked] = []
    answered = set()
    for line, _ in lines.backward():
        if not is_complete_line(line):  # it is being written
            continue
        match decode(line).event:
            case ApprovalGiven(approval=approval):
                answered.add(approval)
            case ApprovalAsked() as asked if asked.approval not in answered:
                found.append(asked)
            case TurnStarted() | TurnEnded() | SessionOpened() | SessionForked():
                break
            case _:
                pass
    return found[::-1]


def _rules(call: Invocation) -> list[ListedRule]:
    return [
        ListedRule(
            id=rule.id,
            person=rule.person,
            agent=rule.agent,
            tool=rule.tool,
            at=rule.at,
            covers=pattern_sentence(rule.tool, rule.pattern),
        )
        for rule in RULES.read(fact_logs(call.home)).values()
    ]
