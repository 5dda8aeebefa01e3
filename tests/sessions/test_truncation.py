"""The oversize rule, and the tally that spares looking at everything."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from sessions.events.tokens import estimate
from sessions.state.edit_validation import merge_proposals
from sessions.state.truncation import RESULT_SHARE, TOGETHER_SHARE, required_trims, size_limit
from sessions.state.view import View
from sessions.state.view_size import CharacterCount, characters


def large(text: str) -> View:
    """A view in which a person, the model and a tool say the same: at seq 2, 4 and 5."""
    call = ToolCall(id="call_4_0", tool="read", arguments="{}")
    view = View().grown(UserMessage(text=text), 3, 2)
    return view.grown(AssistantMessage(text=text, calls=(call,)), 4).grown(
        ToolMessage(id=call.id, tool="read", text=text), 5
    )


def after(view: View, window: int, start: int = 0) -> View:
    return view.pruned(merge_proposals(view, required_trims(view, window, 0, start)))


@pytest.mark.parametrize("window", [256, 4000, 8000, 200_000])
@pytest.mark.parametrize("letters", ["x", "é", "日", "a" * 999 + "日" * 999, "日" * 99_999 + "a" * 9])
def test_a_text_that_is_too_large_is_trimmed_to_its_share_and_not_far_below(window: int, letters: str) -> None:
    view = large(letters * (1 + 8 * window // len(letters)))
    person, model, tool = after(view, window).messages
    assert model == view.messages[1]
    for message, share in ((person, TOGETHER_SHARE), (tool, RESULT_SHARE)):
        assert 0.9 < estimate(message.text) / (window * share) <= 1


def digits(text: str) -> float:
    """A tokenizer that counts each digit, and prose as it is estimated."""
    return estimate(text) + sum(map(text.count, "0123456789"))


@pytest.mark.parametrize("text", ["7" * 40_000, "7" * 10_000 + "x" * 40_000, "7 x" * 9_000 + "7" * 900])
def test_a_text_is_trimmed_by_the_models_own_token_count(text: str) -> None:
    view = large(text)
    left = view.pruned(merge_proposals(view, required_trims(view, 8_000, count_tokens=digits)))
    assert 0.6 * RESULT_SHARE * 8_000 < digits(left.messages[2].text) <= RESULT_SHARE * 8_000


def test_a_text_that_fits_is_unchanged_and_a_smaller_window_trims_more() -> None:
    view = large("x" * 10_000)
    assert list(required_trims(view, 8400)) == []
    for window in (8000, 4000, 4000):
        view = after(view, window)
        assert estimate(view.messages[2].text) <= RESULT_SHARE * window
        assert view.messages[2].text.endswith("[Shortened: it had 10,000 characters.]")
    assert view.edited[5].size == 10_000
    assert list(required_trims(view, 4000)) == []


def test_messages_checked_before_are_not_checked_again() -> None:
    view = large("x" * 10_000)
    assert [trim.of for trim in required_trims(view, 4000)] == [2, 5]
    assert [trim.of for trim in required_trims(view, 4000, 0, 1)] == [5]
    assert list(required_trims(view, 4000, 0, 3)) == []


def test_the_summary_of_a_compaction_is_not_trimmed() -> None:
    view = large("hi").cut(4, "x" * 100_000)
    assert list(required_trims(view, 4000)) == []


def tokens_of(view: View, kind: type) -> list[int]:
    return [estimate(message.text) for message in view.messages if isinstance(message, kind)]


def test_the_results_of_one_reply_together_fit_half_of_the_window_without_the_reserve() -> None:
    view = View().grown(UserMessage(text="go"), 3, 2).grown(AssistantMessage(text=""), 4)
    for index, size in enumerate([400, 1000, 4000, 4000, 2000]):
        view = view.grown(ToolMessage(id=f"call_4_{index}", tool="read", text="x" * size), 5 + index)
    left = view.pruned(merge_proposals(view, required_trims(view, 4000, 1000)))
    assert sum(tokens_of(left, ToolMessage)) <= TOGETHER_SHARE * 3000
    assert tokens_of(left, ToolMessage) == [100, 250, 383, 383, 383]
    assert list(required_trims(left, 4000, 1000)) == []
    other = left.grown(AssistantMessage(text=""), 10).grown(ToolMessage(id="call_10_0", tool="read", text="x" * 4000), 11)
    assert list(required_trims(other, 4000, 1000)) == []  # those of another reply can be parted from these


def test_messages_taken_by_one_turn_are_trimmed_together_and_others_separately() -> None:
    view = View()
    for number in range(6):
        view = view.grown(UserMessage(text="x" * 4000), 10 + number // 4 * 10, 2 + number)
    left = after(view, 4000)
    assert tokens_of(left, UserMessage) == [500] * 4 + [1000] * 2


@given(st.lists(st.integers(0, 1000), min_size=1), st.integers(1, 3000))
def test_the_size_limit_reduces_the_largest_and_no_more_than_necessary(sizes: list[int], room: int) -> None:
    limit = size_limit(sizes, room)
    left = [min(size, limit) for size in sizes]
    assert sum(left) <= room * 1.000001
    assert limit == float("inf") or sum(left) >= room * 0.999999


def test_an_incremental_character_count_equals_a_complete_one() -> None:
    chance = random.Random(3)
    tally, messages = CharacterCount(), list[Message]()
    for step in range(300):
        match chance.randint(0, 9):
            case 0 if messages:  # an edit
                messages[chance.randrange(len(messages))] = ToolMessage(id="c", tool="t", text="x" * step)
            case 1 if step % 50 == 0:  # a compaction
                messages = [UserMessage(text="summary"), *messages[len(messages) // 2 :]]
            case _:
                call = ToolCall(id="c", tool="t", arguments="{}")
                messages.append(AssistantMessage(text="x" * step, calls=(call,), opaque="sealed"))
        tally.follow(tuple(messages))
        assert list(tally.sizes) == [characters(message) for message in messages]
        assert tally.characters == sum(tally.sizes)


def test_a_character_count_examines_only_new_messages() -> None:
    tally = CharacterCount()
    messages: tuple[Message, ...] = tuple(UserMessage(text="x") for _ in range(5))
    assert tally.follow(messages) == 0
    assert tally.follow(messages) == 5
    assert tally.follow((*messages, UserMessage(text="y"))) == 5
    assert tally.follow((*messages[:2], UserMessage(text="z"), *messages[3:])) == 2
