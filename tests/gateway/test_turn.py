"""Turns: every path ends with paired calls and one `turn_ended`."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.stage import INSTRUCTIONS, Answer, Instrument, Model, Stage, breaks, hangs_after, says
from gateway.config.keys import SessionsKeys
from plugins.api.chat import ChatRequest, Delta, Reply
from plugins.support.errors import ContextOverflow, StreamCut, ToolFailed
from sessions.events.events import (
    CallRef,
    CommandAnswered,
    Event,
    Failure,
    InstructionsSet,
    ModelReplied,
    PluginFailed,
    RequestedCall,
    RequestSent,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from sessions.state.context import is_paired
from sessions.state.reducer import project
from tests.stories import lines_of, opened, received


async def test_a_text_turn_is_five_events_and_the_instructions_once() -> None:
    stage = Stage(Model(says("Hello!")))
    async with stage.playing():
        await stage.say("hi")
        await stage.say("again", "m2")
    turn = ["message_received", "turn_started", "request_sent", "model_replied", "turn_ended"]
    assert stage.kinds == ["session_opened", *turn[:2], "instructions_set", *turn[2:], *turn]
    assert stage.told(TurnEnded)[0] == TurnEnded(outcome="replied", millis=0)
    assert stage.told(InstructionsSet)[0].text == INSTRUCTIONS


async def test_the_request_is_the_view_and_its_hash_stands_in_the_log() -> None:
    stage = Stage(Model(says("one"), says("two")))
    async with stage.playing():
        for number in ("1", "2"):
            await stage.say(number, number)
    assert [m.text for m in stage.model.requests[1].context.messages] == ["1", "one", "2"]
    assert [(event.messages, len(event.sha256)) for event in stage.told(RequestSent)] == [(1, 64), (3, 64)]


async def test_tools_run_in_order_and_their_results_are_sent_back() -> None:
    first, second = Instrument("first", lambda: "1"), Instrument("second", lambda: "2", repeatable=True)
    stage = Stage(Model(says("", "first", "second"), says("done")), first, second)
    async with stage.playing():
        await stage.say("go")
    assert [event.repeatable for event in stage.told(ToolCalled)] == [False, True]
    assert [(event.outcome, event.output) for event in stage.told(ToolReturned)] == [("returned", "1"), ("returned", "2")]
    assert [m.text for m in stage.model.requests[1].context.messages[-2:]] == ["1", "2"]


async def test_an_unrepeatable_tool_runs_only_after_its_call_is_durable() -> None:
    seen: list[str] = []
    stage = Stage(Model(says("", "act"), says("done")))

    def act() -> str:
        durable = stage.log.written[: stage.recorder.durable]
        seen.append(project(durable).open_turn.calls[0].tool)  # type: ignore[union-attr]
        assert b'"kind":"tool_called"' in durable[-1]
        return "ok"

    stage.turn._calls._tools = {"act": Instrument("act", act)}  # type: ignore[dict-item]
    async with stage.playing():
        await stage.say("go")
    assert seen == ["act"]


@pytest.mark.parametrize(
    ("act", "outcome", "words"),
    [
        ("fail", "failed", "no such thing"),
        ("crash", "failed", "The tool failed: boom"),
        ("exit", "failed", "The tool failed: 7"),
        ("unknown", "refused", "There is no tool"),
    ],
)
async def test_a_tool_that_fails_is_told_to_the_model_in_a_sentence(act: str, outcome: str, words: str) -> None:
    def do() -> str:
        errors = {"fail": ToolFailed("no such thing"), "crash": RuntimeError("boom"), "exit": SystemExit(7)}
        raise errors[act]

    stage = Stage(Model(says("", "missing" if act == "unknown" else "tool"), says("I see")), Instrument("tool", do))
    async with stage.playing():
        await stage.say("go")
    (returned,) = stage.told(ToolReturned)
    assert returned.outcome == outcome
    assert words in returned.output
    assert len(stage.told(PluginFailed)) == (act in ("crash", "exit"))
    assert stage.told(TurnEnded) == [TurnEnded(outcome="replied", millis=0)]


async def test_a_large_output_stands_in_the_log_as_head_and_tail_and_whole_beside_it(tmp_path: Path) -> None:
    output = "head" + "x" * 300_000 + "tail"
    stage = Stage(Model(says("", "tool"), says("ok")), Instrument("tool", lambda: output), attachments=tmp_path)
    async with stage.playing():
        await stage.say("go")
    (returned,) = stage.told(ToolReturned)
    assert returned.output.startswith("head")
    assert returned.output.endswith("tail")
    assert len(returned.output) < 270_000
    assert returned.cut_from == len(output)
    assert (tmp_path / returned.whole).read_text() == output


async def test_a_model_that_never_stops_asking_for_tools_is_stopped() -> None:
    tool = Instrument("tool")
    stage = Stage(Model(says("", "tool")), tool, rounds=3)
    async with stage.playing():
        await stage.say("go")
    assert tool.runs == 3
    assert stage.told(TurnEnded)[0].error.code == "too_many_rounds"
    assert is_paired(tuple(stage.recorder.transcript.messages))


async def test_a_cut_stream_is_asked_again_and_never_taken_for_an_answer() -> None:
    stage = Stage(Model(breaks(StreamCut("cut"), "The ans"), says("The answer is 4.")))
    async with stage.playing():
        await stage.say("2+2")
    (reply,) = stage.told(ModelReplied)
    assert (reply.text, reply.reply) == ("The answer is 4.", 2)
    assert stage.slept == [0.5]


async def test_an_answer_that_exceeded_its_time_limit_is_not_requested_again() -> None:
    late = StreamCut("The reply was not complete within 1800 seconds.")
    late.retryable = False
    stage = Stage(Model(breaks(late, "The ans"), says("The answer is 4.")))
    async with stage.playing():
        await stage.say("2+2")
    (ended,) = stage.told(TurnEnded)
    assert (ended.outcome, ended.error.code) == ("failed", "stream_cut")
    assert stage.slept == []


async def test_an_end_without_a_reply_is_a_cut_stream() -> None:
    async def nothing(_: object) -> object:
        return
        yield

    stage = Stage(Model(nothing))  # type: ignore[arg-type]
    async with stage.playing():
        await stage.say("hi")
    assert stage.told(TurnEnded)[0].error.code == "stream_cut"
    assert len(stage.told(RequestSent)) == 3


@pytest.mark.parametrize(
    ("error", "code"),
    [(ContextOverflow("too long"), "context_overflow"), (RuntimeError("bug"), "bad_answer"), (KeyError(), "bad_answer")],
)
async def test_a_provider_that_fails_ends_the_turn_with_a_code_and_a_sentence(error: Exception, code: str) -> None:
    stage = Stage(Model(breaks(error), says("fine")))
    async with stage.playing():
        await stage.say("hi")
        await stage.say("again", "m2")
    failed, fine = stage.told(TurnEnded)
    assert (failed.outcome, failed.error.code) == ("failed", code)
    assert failed.error.sentence
    assert fine.outcome == "replied"


async def test_text_that_utf8_cannot_carry_reaches_the_log_as_a_replacement() -> None:
    stage = Stage(Model(says("a\ud800b")))
    async with stage.playing():
        await stage.say("hi")
    assert stage.told(ModelReplied)[0].text == "a\ufffdb"


# --- cancelling -------------------------------------------------------------------------------------------------------


async def test_text_streamed_before_a_cancellation_is_kept() -> None:
    stage = Stage(Model(hangs_after("Once upon a")))
    async with stage.playing():
        stage.hear("tell me")
        await stage.until(lambda: stage.streaming.current is not None and bool(stage.streaming.current.text))
        assert stage.turn.cancel()
        await stage.until_settled()
    assert stage.told(ModelReplied) == [
        ModelReplied(reply=1, model="model", text="Once upon a", calls=(), stop="cancelled", usage=None)
    ]
    assert stage.told(TurnEnded) == [TurnEnded(outcome="cancelled", millis=0)]
    assert not stage.turn.cancel()


async def test_a_cancelled_call_has_an_unknown_outcome_and_later_ones_are_refused() -> None:
    slow = Instrument("slow", lambda: asyncio.sleep(60))
    stage = Stage(Model(says("", "slow", "slow")), slow)
    async with stage.playing():
        stage.hear("go")
        await stage.until(lambda: slow.runs == 1)
        stage.turn.cancel()
        await stage.until_settled()
    assert [event.outcome for event in stage.told(ToolReturned)] == ["unknown", "refused"]


@settings(max_examples=40, deadline=None)
@given(steps=st.integers(0, 60))
def test_a_turn_can_be_cancelled_at_any_instant(steps: int) -> None:
    async def story() -> None:
        stage = Stage(Model(says("let me see", "tool"), says("done")), Instrument("tool", lambda: asyncio.sleep(0)))
        async with stage.playing():
            stage.hear("go")
            for _ in range(steps):
                await asyncio.sleep(0)
            stage.turn.cancel()
            await stage.until_settled()
        assert len(stage.told(TurnEnded)) == 1
        assert is_paired(tuple(stage.recorder.transcript.messages))

    asyncio.run(story())


# --- resuming ---------------------------------------------------------------------------------------------------------

STARTED = TurnStarted(takes=(2,), provider="staged", model="model", window=None, reserve=0)


def interrupted(*events: Event) -> list[bytes]:
    return lines_of([opened(), received("go"), (STARTED, 1), *[(event, 1) for event in events]])


def wished(*tools: str) -> ModelReplied:
    calls = tuple(RequestedCall(id="", tool=tool, arguments="{}") for tool in tools)
    return ModelReplied(reply=1, model="model", text="", calls=calls, stop="calls" if calls else "end", usage=None)


async def test_an_interrupted_turn_is_resumed_with_a_new_request() -> None:
    asked = RequestSent(purpose="answer", sha256="0" * 64, messages=1, tokens=1)
    stage = Stage(Model(says("Here I am.")), lines=interrupted(asked))
    async with stage.playing():
        await stage.until_settled()
    assert stage.told(TurnResumed) == [TurnResumed(attempt=1)]
    assert [(e.text, e.reply) for e in stage.told(ModelReplied)] == [("Here I am.", 3)]


async def test_an_unrepeatable_tool_that_began_is_never_run_again() -> None:
    began = ToolCalled(call=CallRef(of=4, index=0), repeatable=False)
    act = Instrument("act")
    stage = Stage(Model(says("done")), act, lines=interrupted(wished("act", "act"), began))
    async with stage.playing():
        await stage.until_settled()
    assert [event.outcome for event in stage.told(ToolReturned)] == ["unknown", "returned"]
    assert act.runs == 1


async def test_a_repeatable_tool_that_began_is_run_again() -> None:
    began = ToolCalled(call=CallRef(of=4, index=0), repeatable=True)
    look = Instrument("look", repeatable=True)
    stage = Stage(Model(says("done")), look, lines=interrupted(wished("look"), began))
    async with stage.playing():
        await stage.until_settled()
    assert [event.outcome for event in stage.told(ToolReturned)] == ["returned"]


async def test_a_turn_whose_answer_was_complete_is_only_ended() -> None:
    stage = Stage(Model(breaks(AssertionError("must not be asked"))), lines=interrupted(wished()))
    async with stage.playing():
        await stage.until_settled()
    assert stage.kinds[-2:] == ["turn_resumed", "turn_ended"]
    assert stage.told(TurnEnded) == [TurnEnded(outcome="replied", millis=0)]


@pytest.mark.parametrize(
    ("resume", "resumed", "moved"), [("never", 0, 0), ("offer", 0, 0), ("auto", 0, 3601), ("auto", 2, 0)]
)
async def test_a_turn_that_may_not_be_resumed_is_abandoned_with_a_sentence(resume: Any, resumed: int, moved: float) -> None:
    before = [TurnResumed(attempt=n + 1) for n in range(resumed)]
    began: list[Event] = [wished("act"), ToolCalled(call=CallRef(of=4 + resumed, index=0), repeatable=True)]
    stage = Stage(Model(says("next")), lines=interrupted(*before, *began))
    stage.configure(sessions=SessionsKeys(resume=resume))
    stage.clock.move(moved)
    async with stage.playing():
        await stage.until_settled()
    (end,) = stage.told(TurnEnded)
    assert (end.outcome, end.error.code) == ("abandoned", "not_resumed")
    assert is_paired(tuple(stage.recorder.transcript.messages))


async def test_a_stop_of_the_gateway_leaves_the_turn_open_for_the_next_start() -> None:
    stage = Stage(Model(hangs_after("Once")))
    async with stage.playing():
        stage.hear("tell me")
        await stage.until(lambda: stage.streaming.current is not None and bool(stage.streaming.current.text))
    assert stage.recorder.transcript.open_turn is not None
    assert stage.told(TurnEnded) == []
    assert stage.kinds[-1] == "turn_interrupted"
    again = Stage(Model(says("Once upon a time.")), lines=stage.log.written)
    async with again.playing():
        await again.until_settled()
    assert [event.text for event in again.told(ModelReplied)] == ["Once upon a time."]


def is_streaming(stage: Stage) -> bool:
    return stage.streaming.current is not None and bool(stage.streaming.current.text)


async def test_stops_on_purpose_are_no_crashes_and_a_turn_survives_any_number_of_them() -> None:
    stage = Stage(Model(hangs_after("Once")))
    stage.hear("tell me")
    for _ in range(4):
        async with stage.playing():
            await stage.until(partial(is_streaming, stage))
        lines = [*stage.log.written]
        stage = Stage(Model(hangs_after("Once")), lines=lines)
    again = Stage(Model(says("Once upon a time.")), lines=lines)
    async with again.playing():
        await again.until_settled()
    assert [event.outcome for event in again.told(TurnEnded)] == ["replied"]
    assert [event.attempt for event in again.told(TurnResumed)] == [1, 2, 3, 4]


async def test_a_paused_conversation_finishes_its_turn_and_begins_no_other() -> None:
    stage, gate = Stage(Model(says("one")), Instrument("tool")), asyncio.Event()

    async def slow(request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        await gate.wait()
        yield Reply(text="one", model="model", stop="end")

    stage.model.answers = [slow]
    async with stage.playing():
        stage.hear("first", "1")
        await stage.until(lambda: bool(stage.model.requests))
        second = stage.hear("second", "2")
        stage.conversation.pause()
        assert stage.conversation.busy
        gate.set()
        await stage.until(lambda: not stage.conversation.busy)
        await asyncio.sleep(0.02)
    assert [event.takes for event in stage.told(TurnStarted)] == [(2,)]
    assert [waiting.seq for waiting in stage.recorder.transcript.waiting] == [second]


# --- arrival is not the view ------------------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(
    arrivals=st.lists(st.tuples(st.integers(0, 30), st.sampled_from(["text", "/nope", "/stop"])), max_size=8),
    tools=st.integers(0, 3),
)
def test_messages_that_arrive_at_any_instant_never_part_a_call_from_its_result(
    arrivals: list[tuple[int, str]], tools: int
) -> None:
    async def story() -> None:
        answers: list[Answer] = [says("look", *["tool"] * tools), says("done")] * 12
        stage = Stage(Model(*answers), Instrument("tool", lambda: asyncio.sleep(0)))
        async with stage.playing():
            stage.hear("first", "first")
            for number, (steps, text) in enumerate(arrivals):
                for _ in range(steps):
                    await asyncio.sleep(0)
                stage.hear(text, f"m{number}")
            await stage.until_settled()
        assert all(is_paired(request.context.messages) for request in stage.model.requests)
        taken = [seq for event in stage.told(TurnStarted) for seq in event.takes]
        answered = [event.answers for event in stage.told(CommandAnswered)]
        assert sorted(taken) == taken
        assert len(taken) + len(answered) == 1 + len(arrivals)
        assert project(stage.log.written) == stage.recorder.transcript

    asyncio.run(story())


async def test_no_model_at_all_ends_the_turn_with_how_to_get_one() -> None:
    stage = Stage(Model(says("never")))
    stage.model.default_model = lambda: None  # type: ignore[method-assign]
    async with stage.playing():
        await stage.say("hi")
    error: Failure = stage.told(TurnEnded)[0].error
    assert error.code == "no_model"
    assert "OPENAI_API_KEY" in error.sentence


async def test_a_small_model_is_offered_no_tools_and_short_instructions() -> None:
    stage = Stage(Model(says("hi")), Instrument("look"))
    stage.model.small = True
    async with stage.playing():
        await stage.say("hello")
        stage.model.small = False
        await stage.say("and now?", "m2")
    small, large = stage.told(InstructionsSet)
    assert (small.text, small.tools, small.notes) == ("Be brief.", (), ())
    assert (large.text, [tool.name for tool in large.tools]) == (INSTRUCTIONS, ["look"])
    assert [request.context.tools for request in stage.model.requests] == [small.tools, large.tools]
