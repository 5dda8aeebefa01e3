"""Proposed edits: which are admitted, how they meet, that they only ever make the view smaller."""

from __future__ import annotations

from itertools import permutations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.events.events import CallRef, ContextPruned, Event, ModelReplied, RequestedCall, ToolReturned, TurnStarted
from sessions.events.messages import ToolMessage
from sessions.events.pruning import Clear, Edit, Trim
from sessions.events.tokens import estimate
from sessions.state.context import assemble, is_paired
from sessions.state.edit_validation import AT_ONCE, NOTE, merge_proposals, validate_edits
from sessions.state.reducer import project
from sessions.state.transcript import Transcript, from_checkpoint, to_checkpoint
from sessions.state.view import View
from tests.stories import lines_of, opened, received

NOTES = st.text(max_size=12)
FIRST = 5
"""The seq of the first result of a story."""


def edits_of(*seqs: int) -> st.SearchStrategy[Edit]:
    of, count = st.sampled_from(seqs), st.integers(0, 40)
    return st.one_of(
        st.builds(Trim, of=of, head=count, tail=count, note=NOTES, by=st.sampled_from("ab")),
        st.builds(Clear, of=of, note=NOTES, by=st.sampled_from("ab")),
    )


def story(*outputs: str, edits: tuple[Edit, ...] = ()) -> list[bytes]:
    """A turn in which the model calls a tool for each output, at once (results at seq 5, 6, …), and then the edits."""
    calls = tuple(RequestedCall(id="", tool="read", arguments="{}") for _ in outputs)
    events: list[Event] = [
        received("hi"),
        TurnStarted(takes=(2,), provider="staged", model="model", window=1000, reserve=0),
        ModelReplied(reply=1, model="model", text="", calls=calls, stop="calls", usage=None),
        *(
            ToolReturned(call=CallRef(of=4, index=index), outcome="returned", output=output)
            for index, output in enumerate(outputs)
        ),
        *(ContextPruned(edits=(edit,)) for edit in edits),
    ]
    return lines_of([opened(), *((event, 1) for event in events)])


def view_of(*outputs: str, edits: tuple[Edit, ...] = ()) -> View:
    return project(story(*outputs, edits=edits)).view


def pruned(transcript: Transcript, edits: tuple[Edit, ...]) -> Transcript:
    return project(lines_of([(ContextPruned(edits=edits), 1)]), transcript)


def texts(transcript: Transcript) -> list[str]:
    return [message.text for message in transcript.messages if isinstance(message, ToolMessage)]


class _Odd(Trim, frozen=True, kw_only=True):
    """A stranger's own kind."""


class _Number(int):
    """A stranger's own kind of number, which is in order only as long as it is looked at."""

    def __le__(self, other: object) -> bool:
        return True

    def __hash__(self) -> int:
        raise RuntimeError


class _Text(str):
    """A stranger's own kind of text."""

    __slots__ = ()

    def __len__(self) -> int:
        return 0


@pytest.mark.parametrize(
    "offer",
    [
        None,
        Trim(of=_Number(5), head=_Number(-5), tail=3),
        Clear(of=5, note=_Text("x" * (NOTE + 1))),
        "clear everything",
        {"of": 5, "how": "clear", "note": ""},
        _Odd(of=5, head=0, tail=0),
        Clear(of=4, note=""),
        Clear(of=3, note=""),
        Clear(of=2, note=""),
        Trim(of=2, head=0, tail=0),
        Clear(of=0, note=""),
        Clear(of=10**6, note=""),
        Clear(of=-5, note=""),
        Clear(of=10**30, note=""),
        Clear(of="5", note=""),  # type: ignore[arg-type]
        Clear(of=True, note=""),
        Clear(of=5, note=None),  # type: ignore[arg-type]
        Clear(of=5, note="x" * (NOTE + 1)),
        Clear(of=5, note="\ud800"),
        Trim(of=5, head=-1, tail=3),
        Trim(of=5, head=1.5, tail=3),  # type: ignore[arg-type]
        Trim(of=5, head=float("nan"), tail=3),  # type: ignore[arg-type]
        Trim(of=5, head=10**30, tail=3),
    ],
)
def test_proposals_that_are_not_edits_of_a_tool_result_are_refused_and_the_others_kept(offer: object) -> None:
    good = Clear(of=6, note="gone")
    checked = validate_edits(view_of("x" * 99, "y" * 99), [offer, good], "test")
    assert checked.edits == (Clear(of=6, note="gone", by="test"),)
    assert len(checked.refused) == 1


def test_an_edit_that_would_save_nothing_is_silently_ignored() -> None:
    view = view_of("x" * 99, "abc", edits=(Clear(of=5, note="gone"),))
    idle = [Clear(of=5, note="gone"), Trim(of=5, head=1, tail=1), Clear(of=6, note="long"), Trim(of=6, head=1, tail=1)]
    checked = validate_edits(view, idle, "test")
    assert (checked.edits, checked.refused) == ((), ())


def test_fewer_characters_that_are_more_tokens_save_nothing() -> None:
    assert validate_edits(view_of("abcdefgh"), [Clear(of=5, note="日本日本")], "test").edits == ()


def test_the_number_of_edits_in_an_event_is_bounded() -> None:
    outputs = ["x" * 20] * (AT_ONCE + 5)
    view = view_of(*outputs)
    proposed = [Clear(of=FIRST + index, note="") for index in range(len(outputs))]
    assert len(validate_edits(view, proposed, "test").edits) == AT_ONCE
    assert len(merge_proposals(view, proposed)) == AT_ONCE


def test_the_proposer_and_the_savings_are_not_taken_from_the_proposal() -> None:
    view = view_of("x" * 99)
    checked = validate_edits(view, [Clear(of=5, note="gone", by="somebody else", saved=10**6)], "test")
    assert merge_proposals(view, checked.edits) == (Clear(of=5, note="gone", by="test", saved=95),)


@given(st.lists(st.text(max_size=120), min_size=1, max_size=3), st.lists(edits_of(5, 6), max_size=4))
def test_edits_of_several_plugins_combine_in_any_order_and_when_repeated(outputs: list[str], edits: list[Edit]) -> None:
    view = view_of(*outputs)
    admitted_edits = [edit for by in "ab" for edit in validate_edits(view, [e for e in edits if e.by == by], by).edits]
    outcomes = {merge_proposals(view, order) for order in permutations(admitted_edits)}
    assert len(outcomes) == 1
    assert outcomes == {merge_proposals(view, admitted_edits * 2)}


@given(st.lists(st.text(max_size=120), min_size=1, max_size=4), st.lists(st.lists(edits_of(*range(1, 10)), max_size=5)))
def test_valid_edits_shorten_the_view_as_stated_and_separate_no_call_from_its_result(
    outputs: list[str], rounds: list[list[Edit]]
) -> None:
    transcript = project(story(*outputs))
    for proposed in rounds:
        before = texts(transcript)
        edits = merge_proposals(transcript.view, validate_edits(transcript.view, proposed, "test").edits)
        transcript = pruned(transcript, edits)
        assert is_paired(assemble(transcript).messages)
        after = texts(transcript)
        assert sum(map(len, before)) - sum(map(len, after)) == sum(edit.saved for edit in edits)
        assert all(estimate(new) <= estimate(old) for new, old in zip(after, before, strict=True))
        assert all(edit.saved > 0 and edit.by == "test" for edit in edits)
        assert merge_proposals(transcript.view, edits) == ()


@given(st.lists(edits_of(5), max_size=4), st.integers(0, 9))
def test_a_checkpoint_among_edits_gives_the_same_view_as_the_whole_journal(edits: list[Edit], cut: int) -> None:
    lines = story("abcdefghijklmnopqrstuvwxyz" * 3, edits=tuple(edits))
    rested = from_checkpoint(to_checkpoint(project(lines[:cut])))
    assert project(lines[cut:], rested) == project(lines)


def test_the_view_does_not_keep_removed_text_in_memory() -> None:
    transcript = project(story("x" * 200_000, edits=(Clear(of=5, note="gone"),)))
    assert len(to_checkpoint(transcript)) < 2000


def test_the_gateway_itself_may_trim_a_message_of_a_person() -> None:
    lines = lines_of(
        [opened(), received("a long message"), (TurnStarted(takes=(2,), provider="", model="", window=1, reserve=0), 1)]
    )
    transcript = project(lines)
    edit = Trim(of=2, head=1, tail=1, by="oversize")
    assert merge_proposals(transcript.view, [edit]) == (msgspec.structs.replace(edit, saved=14 - 7),)
    (message,) = pruned(transcript, (edit,)).messages
    assert message.text == "a\n...\ne"
