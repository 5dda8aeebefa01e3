"""When to compact and where to cut, to the figure, and for any view whatever."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from sessions.state.compaction import (
    FRAME,
    SMALLEST_SUMMARY,
    Rules,
    Sizes,
    budget,
    compaction_trigger,
    cut_points,
    plan,
    removed_messages,
)
from sessions.state.context import is_paired
from sessions.state.view import View
from tests.stories import view_of

RULES = Rules()


@pytest.mark.parametrize(
    ("window", "compact_at", "flush_at", "recent"),
    [
        (200_000, 180_000, 176_000, 20_000),
        (1_000_000, 980_000, 976_000, 20_000),
        (80_000, 60_000, 56_000, 20_000),
        (32_000, 24_000, 20_000, 9_600),
        (8_000, 6_000, 5_000, 2_400),
        (4_000, 3_000, 2_500, 1_200),
    ],
)
def test_the_budget_of_a_window(window: int, compact_at: int, flush_at: int, recent: int) -> None:
    found = budget(window, RULES)
    assert (found.compact_at, found.flush_at, found.recent) == (compact_at, flush_at, recent)


def talk(turns: int) -> list[Message]:
    """Turns of four messages: a question, a call, its result, an answer."""
    told: list[Message] = []
    for turn in range(turns):
        call = ToolCall(id=f"call_{turn}_0", tool="read", arguments="{}")
        told += [UserMessage(text=f"question {turn}"), AssistantMessage(text="", calls=(call,))]
        told += [ToolMessage(id=call.id, tool="read", text="result"), AssistantMessage(text=f"answer {turn}")]
    return told


def test_recent_messages_stay_and_the_cut_is_at_a_message_of_a_person_or_a_model() -> None:
    view = view_of(talk(10))
    sizes = Sizes(head=100, messages=(100,) * 40)
    window = budget(8_000, RULES)  # keeps 2,400 tokens: 24 messages
    found = plan(view, sizes, window, RULES, below=window.flush_at)
    assert found is not None
    assert (found.first, found.keep_from) == (16, 17)
    assert isinstance(view.messages[found.first], UserMessage)
    assert len(removed_messages(view, found)) == 16


def test_the_cut_moves_towards_the_end_until_the_view_fits() -> None:
    view = view_of(talk(4))
    sizes = Sizes(head=1_500, messages=(10,) * 12 + (1_000, 500, 500, 10))
    window = budget(4_000, RULES)
    found = plan(view, sizes, window, RULES, below=window.flush_at)
    assert found is not None
    assert found.first == 15  # the question, its call and the result leave; only the answer can stay
    assert sizes.head + FRAME + found.summary + 10 < window.flush_at
    assert plan(view, Sizes(head=2_400, messages=sizes.messages), window, RULES, below=window.flush_at) is None


# Failure 6: the guard is the number of messages in `_keeping`.
def test_a_compaction_on_request_keeps_only_the_last_few_messages() -> None:
    view = view_of(talk(3))
    sizes = Sizes(head=100, messages=(10,) * 12)
    window = budget(200_000, RULES)
    found = plan(view, sizes, window, RULES, below=window.flush_at, least=True)
    assert found is not None
    assert found.first == 9  # the call before the last result
    assert plan(view_of(talk(1)[:1]), Sizes(head=1, messages=(10,)), window, RULES, below=100, least=True) is None


def test_a_cut_never_removes_only_the_summary() -> None:
    view = view_of(talk(1)).cut(4, "what was")
    assert [type(message) for message in view.messages] == [UserMessage, AssistantMessage]
    assert cut_points(view) == []


@pytest.mark.parametrize(
    ("rules", "tokens", "expected"),
    [
        (Rules(), 5_999, None),
        (Rules(), 6_000, "budget"),
        (Rules(threshold=1_700), 100, None),  # 16 messages of 100 could leave
        (Rules(threshold=1_600), 100, "threshold"),
        (Rules(ratio=0.21), 100, None),
        (Rules(ratio=0.2), 100, "ratio"),
        (Rules(messages=17), 100, None),
        (Rules(messages=16), 100, "messages"),
    ],
)
def test_the_optional_triggers_count_only_removable_messages(rules: Rules, tokens: int, expected: str | None) -> None:
    view, sizes = view_of(talk(10)), Sizes(head=0, messages=(100,) * 40)
    assert compaction_trigger(tokens, view, sizes, budget(8_000, rules), rules) == expected


@given(
    st.lists(st.sampled_from(["user", "assistant", "calls"]), max_size=30),
    st.integers(4_000, 300_000),
    st.booleans(),
    st.booleans(),
    st.data(),
)
def test_every_plan_keeps_calls_with_results_and_the_view_below_the_limit(
    kinds: list[str], tokens: int, least: bool, summarised: bool, data: st.DataObject
) -> None:
    view = View()
    for number, kind in enumerate(kinds):
        if kind == "user":
            view = view.grown(UserMessage(text="a"), view_end(view))
        elif kind == "assistant":
            view = view.grown(AssistantMessage(text="b"), view_end(view))
        else:
            calls = tuple(ToolCall(id=f"call_{number}_{n}", tool="read", arguments="{}") for n in range(2))
            view = view.grown(AssistantMessage(text="", calls=calls), view_end(view))
            for call in calls:
                view = view.grown(ToolMessage(id=call.id, tool="read", text="r"), view_end(view))
    if summarised and len(view):
        view = view.cut(1, "before")
    head = data.draw(st.integers(0, 6_000))
    sizes = Sizes(head=head, messages=tuple(data.draw(st.integers(1, tokens // 2)) for _ in view.messages))
    window = budget(tokens, RULES)
    found = plan(view, sizes, window, RULES, below=window.flush_at, least=least)
    if found is None:
        return
    after = view.cut(found.keep_from, "new")
    assert is_paired(after.messages)
    assert len(after) == 1 + len(view) - found.first
    assert len(after) < len(view) or not summarised or len(removed_messages(view, found)) >= 1
    assert SMALLEST_SUMMARY <= found.summary <= window.summary
    assert head + FRAME + found.summary + sum(sizes.messages[found.first :]) < window.flush_at


def view_end(view: View) -> int:
    return len(view) + 1
