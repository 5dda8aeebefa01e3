"""Approvals: the policy, the gate before each tool call, parked turns, and the rules that people set."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any, ClassVar

import msgspec
import pytest

from benchmarks.stage import Instrument, Model, Stage, says
from gateway.config.approval_rules import ApprovalRule, ApprovalsKeys
from gateway.config.keys import load_config
from gateway.config.settings import Settings
from gateway.conversations.approvals.policy import RememberedRule, decide, is_withheld
from gateway.conversations.approvals.remembered_rules import RememberedRules
from gateway.conversations.turn.tool_calls import OfferedTools
from gateway.support.errors import Conflict
from plugins.api.tool import ApprovalRequest, FileVersions, OutputFile, ToolContext, ToolOutput
from sessions.events.events import (
    ActionPattern,
    ApprovalAsked,
    ToolReturned,
    TurnEnded,
)
from sessions.files.committer import Committer
from sessions.files.journals import Journals
from sessions.state.transcript import Grant
from tests.pictures import png

ASK = ApprovalsKeys()
PUSH = ApprovalRequest(what="git push", argv=("git", "push"))
SCRIPT = ApprovalRequest(what="rm -r *; git push", rememberable=False)


def rules(*found: ApprovalRule, default: Any = "ask") -> ApprovalsKeys:
    return ApprovalsKeys(default=default, rules=found)


@pytest.mark.parametrize(
    ("keys", "tool", "request_", "action"),
    [
        (ASK, "shell", PUSH, "ask"),
        (ASK, "read", None, "allow"),
        (ASK, "skill", None, "allow"),
        (rules(ApprovalRule(tool="read", decision="deny")), "read", None, "deny"),
        (rules(default="allow"), "shell", PUSH, "allow"),
        (rules(default="deny"), "shell", PUSH, "deny"),
        (rules(default="deny"), "memory_get", None, "allow"),
        (rules(ApprovalRule(tool="shell", argv=("git",), decision="allow")), "shell", PUSH, "allow"),
        (rules(ApprovalRule(tool="shell", argv=("git", "pull"), decision="allow")), "shell", PUSH, "ask"),
        (rules(ApprovalRule(tool="sh*", argv=("git", "push"), decision="deny"), default="allow"), "shell", PUSH, "deny"),
        (
            rules(ApprovalRule(tool="shell", decision="deny"), ApprovalRule(tool="shell", decision="allow")),
            "shell",
            PUSH,
            "deny",
        ),
        (rules(ApprovalRule(tool="shell", decision="allow", agent="other")), "shell", PUSH, "ask"),
        # A command that is no plain list of arguments may hide one that a rule denies.
        (rules(ApprovalRule(tool="shell", argv=("rm",), decision="deny"), default="allow"), "shell", SCRIPT, "ask"),
        (
            rules(ApprovalRule(tool="shell", argv=("rm",), decision="deny"), ApprovalRule(tool="shell", decision="allow")),
            "shell",
            SCRIPT,
            "ask",
        ),
        (rules(ApprovalRule(tool="shell", argv=("git",), decision="allow")), "shell", SCRIPT, "ask"),
        (
            rules(ApprovalRule(tool="fetch", host="*.example.com", decision="allow")),
            "fetch",
            ApprovalRequest(what="x", host="a.example.com"),
            "allow",
        ),
        (
            rules(ApprovalRule(tool="fetch", host="*.example.com", decision="allow")),
            "fetch",
            ApprovalRequest(what="x", host="badexample.com"),
            "ask",
        ),
        (
            rules(ApprovalRule(tool="write", path="drafts/", decision="allow")),
            "write",
            ApprovalRequest(what="x", path="drafts/a/b.md"),
            "allow",
        ),
        (
            rules(ApprovalRule(tool="write", path="drafts/", decision="allow")),
            "write",
            ApprovalRequest(what="x", path="draftsman.md"),
            "ask",
        ),
        (rules(ApprovalRule(tool="write", path="*.md", decision="allow")), "write", ApprovalRequest(what="x"), "ask"),
    ],
)
def test_the_first_rule_that_matches_decides(
    keys: ApprovalsKeys, tool: str, request_: ApprovalRequest | None, action: str
) -> None:
    assert decide(keys, tool=tool, agent="main", request=request_).action == action


def test_what_was_approved_is_allowed_again_only_for_the_same_call() -> None:
    same, other = ActionPattern(argv=("git", "push")), ActionPattern(argv=("git", "push", "--force"))
    always = RememberedRule(id="r", tool="shell", agent="main", person="owner", pattern=same)

    def action(keys: ApprovalsKeys, request: ApprovalRequest, *, agent: str = "main") -> str:
        return decide(keys, tool="shell", agent=agent, request=request, remembered=[always]).action

    assert action(ASK, PUSH) == "allow"
    assert (
        decide(ASK, tool="shell", agent="main", request=PUSH, grants=[Grant(tool="shell", pattern=same)]).action == "allow"
    )
    assert decide(ASK, tool="shell", agent="main", request=PUSH, grants=[Grant(tool="shell", pattern=other)]).action == "ask"
    assert decide(ASK, tool="shell", agent="main", request=PUSH, grants=[Grant(tool="other", pattern=same)]).action == "ask"
    assert action(ASK, ApprovalRequest(what="x", argv=("git", "push", "--force"))) == "ask"
    assert action(ASK, PUSH, agent="other") == "ask"
    # The operator's word is final.
    assert action(rules(ApprovalRule(tool="shell", decision="deny")), PUSH) == "deny"
    # A call that must not be remembered is asked about each time.
    assert action(ASK, msgspec.structs.replace(PUSH, rememberable=False)) == "ask"


def test_a_tool_that_a_rule_denies_altogether_is_not_offered() -> None:
    assert is_withheld(rules(ApprovalRule(tool="w*", decision="deny")), "write", "main")
    assert not is_withheld(rules(ApprovalRule(tool="write", path="a", decision="deny")), "write", "main")
    allowed_first = rules(
        ApprovalRule(tool="write", path="a", decision="allow"), ApprovalRule(tool="write", decision="deny")
    )
    assert not is_withheld(allowed_first, "write", "main")


def test_tools_of_sources_are_offered_after_those_of_plugins() -> None:
    mine, theirs, later, denied = Instrument("a"), Instrument("a"), Instrument("b"), Instrument("c")

    class Source:
        def __init__(self, *tools: Instrument) -> None:
            self.found = {tool.definition.name: tool for tool in tools}

        def tools(self) -> dict[str, Instrument]:
            return self.found

    source = Source()
    settings = Settings(load_config(None, environment={}, overrides={}))
    settings.offer(msgspec.structs.replace(settings.current, approvals=rules(ApprovalRule(tool="c", decision="deny"))))
    offered = OfferedTools({"a": mine}, settings, [source, Source(denied)])  # type: ignore[dict-item, list-item]
    assert list(offered) == ["a"]
    source.found = {"a": theirs, "b": later}
    chosen: list[Any] = [offered["a"], offered["b"]]
    assert chosen == [mine, later]
    assert list(offered) == ["a", "b"]
    with pytest.raises(KeyError):
        offered["c"]


class Described(Instrument):
    """A tool that describes its calls."""

    state: ClassVar[str] = "1"

    async def approval(self, arguments: dict[str, Any], call: ToolContext) -> ApprovalRequest | None:
        return ApprovalRequest(what="git push", argv=("git", "push"), state=type(self).state)


def open_turn_parked(stage: Stage) -> str:
    turn = stage.recorder.transcript.open_turn
    return turn.parked if turn is not None else ""


async def asked(stage: Stage) -> ApprovalAsked:
    """Return the open question once the turn is parked."""
    await stage.until(lambda: bool(open_turn_parked(stage)) and stage.conversation.parked)
    turn = stage.recorder.transcript.open_turn
    assert turn is not None
    question = turn.question(turn.parked)
    assert question is not None
    return question.asked


def staged(*answers: Any, act: Any = None, keys: ApprovalsKeys = ASK, **options: Any) -> tuple[Stage, Described]:
    tool = Described("shell", act)
    return Stage(Model(*answers), tool, approvals=keys, **options), tool


async def test_a_call_that_is_asked_about_runs_once_after_it_is_approved() -> None:
    stage, tool = staged(says("", "shell"), says("done"))
    async with stage.playing():
        stage.hear("go")
        question = await asked(stage)
        assert (question.what, question.choices) == ("git push", ("once", "session", "always"))
        assert tool.runs == 0
        assert not stage.conversation.busy
        await stage.conversation.approvals.give(question.approval, "approve", "once", by="owner", channel="websocket")
        await stage.until_settled()
    assert tool.runs == 1
    assert stage.kinds[-8:] == [
        "approval_asked",
        "turn_parked",
        "approval_given",
        "tool_called",
        "tool_returned",
        "request_sent",
        "model_replied",
        "turn_ended",
    ]


async def test_a_plugin_that_says_that_its_call_needs_no_approval_is_not_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def harmless(self: Described, arguments: dict[str, Any], call: ToolContext) -> ApprovalRequest:
        return ApprovalRequest(what="git push", needed=False)

    monkeypatch.setattr(Described, "approval", harmless)
    stage, tool = staged(says("", "shell"), says("done"))
    async with stage.playing():
        stage.hear("go")
        await stage.until(lambda: bool(open_turn_parked(stage)) or "turn_ended" in stage.kinds)
    assert tool.runs == 0


async def test_a_denied_call_does_not_run_and_the_model_is_told() -> None:
    stage, tool = staged(says("", "shell"), says("then not"))
    async with stage.playing():
        stage.hear("go")
        question = await asked(stage)
        await stage.conversation.approvals.give(question.approval, "deny", "once", by="owner", channel="websocket")
        await stage.until_settled()
    (returned,) = stage.told(ToolReturned)
    assert (tool.runs, returned.outcome) == (0, "refused")
    assert "denied" in returned.output


async def test_of_two_answers_the_first_counts() -> None:
    stage, _ = staged(says("", "shell"), says("done"))
    async with stage.playing():
        stage.hear("go")
        question = await asked(stage)
        give = stage.conversation.approvals.give
        results = await asyncio.gather(
            give(question.approval, "deny", "once", by="owner", channel="a"),
            give(question.approval, "approve", "once", by="owner", channel="b"),
            return_exceptions=True,
        )
        await stage.until_settled()
    assert isinstance(results[0], int)
    assert isinstance(results[1], Conflict)
    assert stage.told(ToolReturned)[0].outcome == "refused"


async def test_an_approval_for_the_session_covers_the_same_call_until_the_session_ends() -> None:
    stage, tool = staged(says("", "shell"), says("", "shell"), says("done"))
    async with stage.playing():
        stage.hear("go")
        question = await asked(stage)
        await stage.conversation.approvals.give(question.approval, "approve", "session", by="owner", channel="websocket")
        await stage.until_settled()
    assert tool.runs == 2
    assert len(stage.told(ApprovalAsked)) == 1


async def test_a_call_whose_circumstances_changed_after_the_approval_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, tool = staged(says("", "shell"), says("done"))
    async with stage.playing():
        stage.hear("go")
        question = await asked(stage)
        monkeypatch.setattr(Described, "state", "2")
        await stage.conversation.approvals.give(question.approval, "approve", "once", by="owner", channel="websocket")
        await stage.until_settled()
    (returned,) = stage.told(ToolReturned)
    assert (tool.runs, returned.outcome) == (0, "refused")
    assert "changed" in returned.output


async def test_a_question_that_nobody_answers_is_denied_when_it_expires() -> None:
    stage, tool = staged(says("", "shell"), says("done"))
    async with stage.playing():
        stage.hear("go")
        question = await asked(stage)
        stage.clock.move(25 * 3600)
        with pytest.raises(Conflict, match="expired"):
            await stage.conversation.approvals.give(question.approval, "approve", "once", by="owner", channel="websocket")
        stage.hear("are you there?", "m2")  # anything durable makes it look at the clock
        await stage.until_settled()
    assert tool.runs == 0
    assert "in time" in stage.told(ToolReturned)[0].output


async def test_stop_ends_a_parked_turn() -> None:
    stage, tool = staged(says("", "shell"), says("done"))
    async with stage.playing():
        stage.hear("go")
        await asked(stage)
        assert stage.conversation.stop()
        await stage.until_settled()
    assert tool.runs == 0
    assert stage.told(TurnEnded)[0].outcome == "cancelled"
    assert stage.told(ToolReturned)[0].outcome == "refused"


async def test_messages_wait_while_a_turn_is_parked_and_an_interrupting_one_ends_it() -> None:
    stage, _ = staged(says("", "shell"), says("done"))
    async with stage.playing():
        stage.hear("go")
        question = await asked(stage)
        stage.hear("another", "m2")
        await stage.until(lambda: stage.recorder.durable == stage.recorder.transcript.head)
        assert len(stage.recorder.transcript.waiting) == 1
        await stage.conversation.approvals.give(question.approval, "approve", "once", by="owner", channel="websocket")
        await stage.until_settled()
    assert [event.outcome for event in stage.told(TurnEnded)] == ["replied", "replied"]

    stage, tool = staged(says("", "shell"), says("done"), queue="interrupt")
    async with stage.playing():
        stage.hear("go")
        await asked(stage)
        await stage.say("no, stop", "m2")
    assert tool.runs == 0
    assert [event.outcome for event in stage.told(TurnEnded)] == ["cancelled", "replied"]


async def test_after_a_restart_the_same_question_is_open_however_much_time_has_passed() -> None:
    stage, _ = staged(says("", "shell"))
    async with stage.playing():
        stage.hear("go")
        question = await asked(stage)
    for _ in range(4):  # more restarts than a running turn may be resumed
        stage, tool = staged(says("done"), lines=stage.log.written, clock=stage.clock)
        stage.clock.move(5 * 3600)
        async with stage.playing():
            assert (await asked(stage)).approval == question.approval
    assert stage.kinds.count("approval_asked") == 1
    assert "turn_resumed" not in stage.kinds
    stage, tool = staged(says("done"), lines=stage.log.written, clock=stage.clock)
    async with stage.playing():
        await stage.conversation.approvals.give(question.approval, "approve", "once", by="owner", channel="websocket")
        await stage.until_settled()
    assert tool.runs == 1
    assert stage.told(TurnEnded)[0].outcome == "replied"


async def test_a_crash_at_any_event_runs_the_call_at_most_once_and_never_unapproved() -> None:
    stage, tool = staged(says("", "shell"), says("done"))
    async with stage.playing():
        stage.hear("go")
        question = await asked(stage)
        await stage.conversation.approvals.give(question.approval, "approve", "once", by="owner", channel="websocket")
        await stage.until_settled()
    lines = list(stage.log.written)
    first = stage.kinds.index("model_replied")
    for upto in range(first + 1, len(lines)):
        again, tool = staged(says("done"), lines=lines[:upto])
        began, given = "tool_called" in again.kinds, "approval_given" in again.kinds
        async with again.playing():
            if not given:
                assert tool.runs == 0
                assert (await asked(again)).what == "git push"
                open_ = again.recorder.transcript.open_turn
                assert open_ is not None
                await again.conversation.approvals.give(open_.parked, "approve", "once", by="owner", channel="websocket")
            await again.until_settled()
        assert tool.runs == (0 if began else 1), again.kinds
        assert len(again.told(ApprovalAsked)) == 1
        assert len(again.told(ToolReturned)) == 1


async def test_an_approval_always_is_remembered_by_its_person_and_can_be_revoked(tmp_path: Path) -> None:
    async with Committer() as committer:
        store = Journals(tmp_path, tmp_path / "quarantine", committer)
        stage, tool = staged(says("", "shell"), says("done"))
        async with RememberedRules(store, stage.clock.now) as known:
            stage, tool = staged(says("", "shell"), says("done"), rules=known)
            async with stage.playing():
                stage.hear("go")
                question = await asked(stage)
                await stage.conversation.approvals.give(
                    question.approval, "approve", "always", by="owner", channel="websocket"
                )
                await stage.until_settled()
        async with RememberedRules(store, stage.clock.now) as known:  # after a restart
            stage, tool = staged(says("", "shell"), says("done"), rules=known)
            async with stage.playing():
                await stage.say("go")
            assert (tool.runs, stage.told(ApprovalAsked)) == (1, [])
            assert await known.of_person("ana") == []
            (rule,) = await known.of_person("owner")
            assert not await known.revoke(rule.id, "ana")
            assert await known.revoke(rule.id, "owner")
        async with RememberedRules(store, stage.clock.now) as known:
            assert await known.of_person("owner") == []


async def test_a_damaged_log_of_rules_means_that_people_are_asked(tmp_path: Path) -> None:
    async with Committer() as committer:
        store = Journals(tmp_path, tmp_path / "quarantine", committer)
        (tmp_path / "approvals.jsonl").write_bytes(b'{"seq":1,"at":"","turn":null,"kind":"x","sum":"0000000000000000"}\n')
        stage, _ = staged()
        async with RememberedRules(store, stage.clock.now) as known:
            stage, _ = staged(says("", "shell"), says("done"), rules=known)
            async with stage.playing():
                stage.hear("go")
                await asked(stage)
            assert "people are asked" in known.problems()[0]


async def test_a_tool_may_ask_in_the_middle_of_a_run() -> None:
    class Asks(Instrument):
        async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
            approved = await call.ask(ApprovalRequest(what="Send your address?"))
            return ToolOutput(text=f"approved: {approved}")

    for decision in ("approve", "deny"):
        stage = Stage(Model(says("", "shell"), says("done")), Asks("shell"))
        async with stage.playing():
            stage.hear("go")
            await stage.until(lambda stage=stage: bool(stage.told(ApprovalAsked)))  # type: ignore[misc]
            (question,) = stage.told(ApprovalAsked)
            assert question.choices == ("once",)
            await stage.conversation.approvals.give(question.approval, decision, "once", by="owner", channel="websocket")
            await stage.until_settled()
        assert stage.told(ToolReturned)[0].output == f"approved: {decision == 'approve'}"
        assert "turn_parked" not in stage.kinds


async def test_a_tool_that_does_not_describe_its_calls_is_asked_about_with_its_arguments() -> None:
    tool = Instrument("plain")
    stage = Stage(Model(says("", "plain"), says("done")), tool, approvals=ASK)
    async with stage.playing():
        stage.hear("go")
        question = await asked(stage)
        assert question.what == "plain {}"
        await stage.conversation.approvals.give(question.approval, "approve", "once", by="owner", channel="websocket")
        await stage.until_settled()
    assert tool.runs == 1


async def test_the_event_of_a_result_holds_what_people_are_shown(tmp_path: Path) -> None:
    class Draws(Instrument):
        async def run(self, arguments: dict[str, Any], call: ToolContext) -> ToolOutput:
            return ToolOutput(
                text="drawn",
                exit_code=3,
                diff="+a",
                attachments=(OutputFile(content=png(), media="image/png"),),
                changes=(FileVersions(path="a", before=None, after=b"a"),),
            )

    stage = Stage(Model(says("", "draw"), says("done")), Draws("draw"), attachments=tmp_path)
    async with stage.playing():
        await stage.say("go")
    (returned,) = stage.told(ToolReturned)
    assert (returned.exit_code, returned.diff, returned.attachments[0].media) == (3, "+a", "image/png")
    assert returned.changes[0].before is None
    assert returned.millis is not None
