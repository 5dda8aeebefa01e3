"""The oversize rule, and the tally that spares looking at everything."""

from __future__ import annotations

import random

import pytest

from sessions.admitting import joined
from sessions.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from sessions.oversize import MESSAGE_SHARE, RESULT_SHARE, oversize
from sessions.tally import Tally, characters
from sessions.tokens import estimate
from sessions.view import View


def large(text: str) -> View:
    """A view in which a person, the model and a tool say the same: at seq 2, 4 and 5."""
    call = ToolCall(id="call_4_0", tool="read", arguments="{}")
    view = View().grown(UserMessage(text=text), 3, 2)
    return view.grown(AssistantMessage(text=text, calls=(call,)), 4).grown(
        ToolMessage(id=call.id, tool="read", text=text), 5
    )


def after(view: View, window: int, start: int = 0) -> View:
    return view.pruned(joined(view, oversize(view, window, start)))


@pytest.mark.parametrize("window", [256, 4000, 8000, 200_000])
@pytest.mark.parametrize("letters", ["x", "é", "日", "a" * 999 + "日" * 999, "日" * 99_999 + "a" * 9])
def test_one_text_that_is_too_large_is_cut_to_its_share_and_not_far_below(window: int, letters: str) -> None:
    view = large(letters * (1 + 8 * window // len(letters)))
    person, model, tool = after(view, window).messages
    assert model == view.messages[1]
    for message, share in ((person, MESSAGE_SHARE), (tool, RESULT_SHARE)):
        assert 0.9 < estimate(message.text) / (window * share) <= 1


def test_what_fits_its_share_stays_whole_and_a_smaller_window_cuts_deeper() -> None:
    view = large("x" * 10_000)
    assert list(oversize(view, 8400)) == []
    for window in (8000, 4000, 4000):
        view = after(view, window)
        assert estimate(view.messages[2].text) <= RESULT_SHARE * window
        assert view.messages[2].text.endswith("[Shortened: it had 10,000 characters.]")
    assert view.edited[5].size == 10_000
    assert list(oversize(view, 4000)) == []


def test_what_was_looked_at_before_is_not_looked_at_again() -> None:
    view = large("x" * 10_000)
    assert [trim.of for trim in oversize(view, 4000)] == [2, 5]
    assert [trim.of for trim in oversize(view, 4000, 1)] == [5]
    assert list(oversize(view, 4000, 3)) == []


def test_the_summary_of_a_compaction_is_left_alone() -> None:
    view = large("hi").cut(4, "x" * 100_000)
    assert list(oversize(view, 4000)) == []


def test_a_tally_that_follows_a_view_says_what_one_that_counts_anew_does() -> None:
    chance = random.Random(3)
    tally, messages = Tally(), list[Message]()
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
        assert tally.sizes == [characters(message) for message in messages]
        assert tally.characters == sum(tally.sizes)


def test_a_tally_counts_only_what_is_new() -> None:
    tally = Tally()
    messages: tuple[Message, ...] = tuple(UserMessage(text="x") for _ in range(5))
    assert tally.follow(messages) == 0
    assert tally.follow(messages) == 5
    assert tally.follow((*messages, UserMessage(text="y"))) == 5
    assert tally.follow((*messages[:2], UserMessage(text="z"), *messages[3:])) == 2
