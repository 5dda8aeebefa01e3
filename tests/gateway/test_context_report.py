"""The parts of a context add up to the reported total."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from gateway.conversations.commands.context_report import context_items, shared
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from sessions.state.context import assemble
from sessions.state.request_sizes import Calibration
from sessions.state.transcript import Transcript
from tests.stories import view_of


@given(st.lists(st.floats(0, 1e6)), st.integers(0, 10**7))
def test_shares_add_up_and_none_is_negative(weights: list[float], total: int) -> None:
    shares = shared(weights, total)
    assert all(share >= 0 for share in shares)
    assert len(shares) == len(weights)
    assert not any(weights) or sum(shares) == total


def test_each_message_stands_under_its_part_and_the_sum_is_the_estimate() -> None:
    call = ToolCall(id="call_1_0", tool="read", arguments='{"path":"a"}')
    messages: list[Message] = [
        UserMessage(text="Read it."),
        AssistantMessage(text="Yes.", calls=(call,)),
        ToolMessage(id="call_1_0", tool="read", text="what stands there"),
    ]
    transcript = Transcript(view=view_of(messages))
    context = assemble(transcript)
    items = context_items(None, transcript.view, context, vision=None, weigh=Calibration().tokens, total=1234)
    assert [item.part for item in items] == ["Your messages", "Answers", "Tool calls", "Tool results"]
    assert sum(item.tokens for item in items) == 1234
    assert all(item.tokens > 0 for item in items)


def test_a_tokenizer_puts_the_shares_right() -> None:
    messages: list[Message] = [UserMessage(text="what"), UserMessage(text="QUJD" * 100)]
    transcript = Transcript(view=view_of(messages))
    given: list[str] = []

    def shares(exact: list[int] | None) -> list[int]:
        def count(texts: Sequence[str]) -> list[int] | None:
            given[:] = texts
            return exact

        weigh = Calibration().tokens
        context = assemble(transcript)
        items = context_items(None, transcript.view, context, vision=None, weigh=weigh, total=1000, count=count)
        assert sum(item.tokens for item in items) == 1000
        return [item.tokens for item in items]

    assert shares([1, 300])[1] > shares(None)[1]
    assert given == ["what", "QUJD" * 100]
