"""The fold: what a journal amounts to, and that a restart sees the same."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sessions.events.events import (
    CallRef,
    CommandAnswered,
    Event,
    ModelReplied,
    RequestedCall,
    RequestSent,
    SettingChanged,
    ToolCalled,
    ToolReturned,
    TurnEnded,
    TurnResumed,
    TurnStarted,
)
from sessions.events.messages import AssistantMessage, ToolCall, ToolMessage, Usage, UserMessage
from sessions.state.reducer import project
from sessions.state.transcript import Transcript, from_checkpoint, to_checkpoint
from tests.stories import lines_of, opened, received

Step = Event | tuple[Event, int]


def started(*takes: int) -> TurnStarted:
    return TurnStarted(takes=takes, provider="scripted", model="echo", window=1000, reserve=0)


def asked() -> RequestSent:
    return RequestSent(purpose="answer", sha256="0" * 64, messages=1, tokens=1)


def replied(text: str, *tools: str, usage: Usage | None = None) -> ModelReplied:
    calls = tuple(RequestedCall(id="", tool=tool, arguments="{}") for tool in tools)
    return ModelReplied(reply=1, model="echo", text=text, calls=calls, stop="calls" if calls else "end", usage=usage)


def ended() -> TurnEnded:
    return TurnEnded(outcome="replied", millis=3)


def folded(*steps: Step) -> Transcript:
    return project(lines_of([opened(), *steps]))


def test_a_message_waits_until_a_turn_takes_it() -> None:
    waiting = folded(received("hi"))
    assert [w.seq for w in waiting.waiting] == [2]
    assert len(waiting.messages) == 0
    taken = folded(received("hi"), (started(2), 1))
    assert taken.waiting == ()
    assert list(taken.messages) == [UserMessage(text="hi")]


def test_a_message_that_arrives_during_a_turn_is_not_in_its_view() -> None:
    transcript = folded(received("hi"), (started(2), 1), received("more", "m2"), (replied("hello"), 1), (ended(), 1))
    assert list(transcript.messages) == [UserMessage(text="hi"), AssistantMessage(text="hello")]
    assert [w.message.text for w in transcript.waiting] == ["more"]


def test_a_call_and_its_result_share_a_generated_id() -> None:
    call = CallRef(of=4, index=0)
    transcript = folded(
        received("hi"),
        (started(2), 1),
        (replied("", "read"), 1),
        (ToolCalled(call=call, repeatable=True), 1),
        (ToolReturned(call=call, outcome="returned", output="text"), 1),
    )
    assert list(transcript.messages)[1:] == [
        AssistantMessage(text="", calls=(ToolCall(id="call_4_0", tool="read", arguments="{}"),)),
        ToolMessage(id="call_4_0", tool="read", text="text"),
    ]
    assert transcript.open_turn is not None
    assert transcript.open_turn.calls == ()


def test_an_interrupted_call_is_open_and_has_begun() -> None:
    transcript = folded(
        received("hi"),
        (started(2), 1),
        (replied("", "a", "b"), 1),
        (ToolCalled(call=CallRef(of=4, index=0), repeatable=False), 1),
    )
    assert transcript.open_turn is not None
    assert [(c.tool, c.began, c.repeatable) for c in transcript.open_turn.calls] == [
        ("a", True, False),
        ("b", False, False),
    ]


def test_replies_count_requests_and_resumptions_and_only_grow() -> None:
    transcript = folded(received("hi"), (started(2), 1), (asked(), 1), (TurnResumed(attempt=1), 1), (asked(), 1))
    assert transcript.open_turn is not None
    assert (transcript.open_turn.replies, transcript.open_turn.resumed) == (3, 1)


def test_a_command_waits_until_it_is_answered() -> None:
    assert not folded(received("/help")).settled
    assert folded(received("/help"), CommandAnswered(answers=2, answer="…", failed=False)).settled


def test_a_setting_of_null_returns_to_the_configured_one() -> None:
    change = SettingChanged(name="model", value="a:b", by="owner")
    assert folded(change).settings == {"model": "a:b"}
    assert folded(change, SettingChanged(name="model", value=None, by="owner")).settings == {}


def test_usage_is_summed_and_the_last_usage_is_kept() -> None:
    transcript = folded(
        received("hi"),
        (started(2), 1),
        (replied("a", usage=Usage(input=10, output=2, cached=4)), 1),
        (ended(), 1),
        received("more", "m2"),
        (started(6), 2),
        (replied("b", usage=Usage(input=20, output=3)), 2),
    )
    assert transcript.usage == Usage(input=30, output=5, cached=4)
    assert transcript.last_usage == Usage(input=20, output=3)


STORY: list[Step] = [
    received("hi"),
    (started(2), 1),
    (asked(), 1),
    (replied("", "read", usage=Usage(input=3)), 1),
    (ToolCalled(call=CallRef(of=5, index=0), repeatable=True), 1),
    (ToolReturned(call=CallRef(of=5, index=0), outcome="returned", output="text"), 1),
    received("more", "m2"),
    (asked(), 1),
    (replied("done"), 1),
    (ended(), 1),
]


@given(cut=st.integers(0, len(STORY) + 1))
def test_a_checkpoint_anywhere_gives_the_same_transcript_as_the_whole_journal(cut: int) -> None:
    lines = lines_of([opened(), *STORY])
    rested = from_checkpoint(to_checkpoint(project(lines[:cut])))
    assert project(lines[cut:], rested) == project(lines)
