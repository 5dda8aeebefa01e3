"""The view under edits, cuts and reverts: the fold, and the same computed from the page that describes the log."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.events.codec import FIRST, decode, encode, without_sum
from sessions.events.events import (
    CallRef,
    CompactionReverted,
    ContextCompacted,
    ContextPruned,
    Event,
    ModelReplied,
    Recorded,
    RequestedCall,
    ToolReturned,
    TurnEnded,
    TurnJoined,
    TurnStarted,
)
from sessions.events.messages import AssistantMessage, ToolMessage, UserMessage
from sessions.events.pruning import GAP, Clear, Edit, Edited, Trim, apply_edit, combine_edits, shown_size
from sessions.state.context import is_paired
from sessions.state.reducer import evolve
from sessions.state.transcript import FOLD, Transcript, Unfolding, from_checkpoint, to_checkpoint
from sessions.store.recorder import fold_reverted
from tests.docs.view import messages_by_the_page
from tests.stored import stored
from tests.stories import AT, opened, received, view_of

notes = st.sampled_from(["", "[gone]", "[Trimmed from 900 characters.]"])
lengths = st.integers(0, 60)
edits = st.one_of(
    st.builds(Trim, of=st.just(3), head=lengths, tail=lengths, note=notes, by=st.sampled_from(["", "a", "b"])),
    st.builds(Clear, of=st.just(3), note=notes, by=st.sampled_from(["", "a", "b"])),
)


# --- edits ------------------------------------------------------------------------------------------------------------


@given(edits, edits, edits)
def test_edits_combine_in_any_order_and_a_repeated_one_changes_nothing(one: Edit, two: Edit, three: Edit) -> None:
    assert combine_edits(one, two) == combine_edits(two, one)
    assert combine_edits(combine_edits(one, two), three) == combine_edits(one, combine_edits(two, three))
    assert combine_edits(combine_edits(one, two), two) == combine_edits(one, two)


@given(st.text(max_size=100), st.lists(edits, min_size=1, max_size=5), st.randoms())
def test_a_text_after_several_edits_does_not_depend_on_their_order(text: str, several: list[Edit], chance: Any) -> None:
    shuffled = [*several, *several]
    chance.shuffle(shuffled)
    shown = [under(text, order) for order in (several, shuffled)]
    assert shown[0] == shown[1]
    (message, edited) = shown[0]
    assert len(message.text) == shown_size(edited.edit, edited.size)


def under(text: str, order: list[Edit]) -> tuple[Any, Edited]:
    message: Any = ToolMessage(id="call_1_0", tool="read", text=text)
    edited: Edited | None = None
    for edit in order:
        message, edited = apply_edit(message, edited, edit)
    assert edited is not None
    return message, edited


def test_a_trimmed_result_is_its_head_its_tail_and_a_note() -> None:
    message = ToolMessage(id="call_1_0", tool="read", text="a" * 5 + "b" * 90 + "c" * 5)
    shown, _ = apply_edit(message, None, Trim(of=1, head=6, tail=2, note="[Shortened.]"))
    assert shown.text == "aaaaab" + GAP + "cc\n\n[Shortened.]"
    whole, _ = apply_edit(message, None, Trim(of=1, head=60, tail=40))
    assert whole == message


def test_a_models_reply_is_never_edited() -> None:
    message = AssistantMessage(text="a" * 100, opaque="signed")
    assert apply_edit(message, None, Clear(of=1, note=""))[0] is message


# --- whole journals ---------------------------------------------------------------------------------------------------

steps = st.lists(
    st.tuples(
        st.sampled_from(["ask", "ask two", "reply", "tools", "join", "prune", "compact", "revert"]), st.integers(0, 9)
    ),
    max_size=40,
)


class Story:
    """A legal journal, told step by step: its events, and their lines as the page reads them."""

    def __init__(self) -> None:
        self.folded = Transcript()
        self.lines: list[dict[str, Any]] = []
        self.bytes = b""
        self.sum = FIRST
        self.cuts: dict[int, int] = {}
        self.add(opened())

    def add(self, event: Event, turn: int | None = None) -> int:
        recorded = Recorded(seq=len(self.lines) + 1, at=AT, turn=turn, event=event)
        line, self.sum = encode(recorded, self.sum)
        self.bytes += line
        self.lines.append(json.loads(without_sum(line)))
        self.folded = evolve(self.folded, recorded)
        return recorded.seq

    def seqs(self, *kinds: str) -> list[int]:
        return [line["seq"] for line in self.lines if line["kind"] in kinds]

    def tell(self, step: str, number: int) -> None:
        match step:
            case "ask" | "ask two":
                takes = [self.add(received(f"question {number}")) for _ in range(1 + (step == "ask two"))]
                self.add(TurnStarted(takes=tuple(takes), provider="p", model="m", window=None, reserve=0), 1)
            case "join":
                self.add(TurnJoined(takes=(self.add(received("also")),)), 1)
            case "reply":
                self.add(ModelReplied(reply=1, model="m", text=f"answer {number}", calls=(), stop="end", usage=None), 1)
            case "tools":
                call = RequestedCall(id="x", tool="read", arguments="{}")
                said = ModelReplied(reply=1, model="m", text="", calls=(call,) * (number % 3 + 1), stop="calls", usage=None)
                of = self.add(said, 1)
                for index in range(len(said.calls)):
                    output = f"{number}" * 50 + "é" * number
                    self.add(ToolReturned(call=CallRef(of=of, index=index), outcome="returned", output=output), 1)
            case "prune" if results := self.seqs("tool_returned"):
                of = results[-1 - number % len(results)]
                edit: Edit = Trim(of=of, head=number * 3, tail=9 - number) if number < 7 else Clear(of=of, note="[cleared]")
                if self.folded.view.index_of(of) is not None:
                    self.add(ContextPruned(edits=(edit,)), 1)
            case "compact" if places := [place for place in self.folded.view.placed if place]:
                starts = [place for place in places if place in self.seqs("turn_started", "turn_joined", "model_replied")]
                self.compact(starts[number % len(starts)])
            case "revert":
                past = [cut for cut in self.folded.cuts if cut.compaction < self.folded.cut]
                target = past[number % len(past)] if past and number % 2 else None
                to, keep_from = (target.compaction, target.keep_from) if target else (0, 1)
                if self.folded.cut:
                    self.add(CompactionReverted(to=to, keep_from=keep_from))
                    self.fold_again()

    def compact(self, keep_from: int) -> None:
        number = len(self.cuts) + 1
        self.cuts[number] = keep_from
        self.add(
            ContextCompacted(
                compaction=number, keep_from=keep_from, summary=f"Summary {number}.", by="x", tokens_before=9, tokens_after=8
            )
        )

    def fold_again(self) -> None:
        assert self.folded.stale is not None
        folded = Transcript(unfolding=self.folded.stale)
        for line in self.lines:
            folded = evolve(folded, Recorded(seq=line["seq"], at=AT, turn=line["turn"], event=event_of(line)))
        assert folded.stale is None
        assert folded.unfolding is None
        self.folded = folded


def event_of(line: dict[str, Any]) -> Event:
    return decode(msgspec.json.encode({**line, "sum": ""})).event  # type: ignore[return-value]


@given(steps)
def test_the_view_follows_its_documentation_and_no_cut_separates_a_call_from_its_result(told: list[tuple[str, int]]) -> None:
    story = Story()
    for step, number in [("ask", 0), *told]:
        story.tell(step, number)
    view = story.folded.view
    assert json.loads(msgspec.json.encode(list(view.messages))) == messages_by_the_page(story.lines)
    assert len(view.placed) == len(view.sources) == len(view.messages)
    assert list(view.placed) == sorted(view.placed)
    assert is_paired(view.messages)
    assert from_checkpoint(to_checkpoint(story.folded)) == story.folded


def test_a_journal_with_a_revert_opens_with_the_larger_view_also_before_the_revert_is_written(tmp_path: Path) -> None:
    story = Story()
    for step in ("ask", "tools", "reply", "ask", "reply"):
        story.tell(step, 1)
    whole = list(story.folded.view.messages)
    story.compact(story.seqs("turn_started")[1])
    compacted = list(story.folded.view.messages)
    assert (len(whole), len(compacted)) == (7, 3)
    assert "Summary 1." in compacted[0].text
    path = tmp_path / "20261121-031241-7k2m9q.jsonl"
    path.write_bytes(story.bytes)

    asked = CompactionReverted(to=0, keep_from=1)
    thought = fold_reverted(stored(path), Unfolding(until=len(story.lines) + 1, to=0, keep_from=1), upto=len(story.bytes))
    considered = evolve(thought, Recorded(seq=len(story.lines) + 1, at=AT, turn=None, event=asked))
    assert list(considered.view.messages) == whole

    story.add(asked)
    path.write_bytes(story.bytes)
    assert story.folded.stale is not None
    again = fold_reverted(stored(path), story.folded.stale, upto=len(story.bytes))
    assert list(again.view.messages) == whole
    assert (again.cut, again.stale, again.unfolding, len(again.cuts)) == (0, None, None, 1)


def test_the_end_of_a_turn_leaves_the_view_unchanged() -> None:
    before = view_of([UserMessage(text="hi")])
    ended = evolve(Transcript(view=before), Recorded(seq=9, at=AT, turn=1, event=TurnEnded(outcome="replied", millis=1)))
    assert ended.view == before


@pytest.mark.parametrize("source", [0, 4, 99])
def test_an_edit_of_a_message_outside_the_view_changes_nothing(source: int) -> None:
    view = view_of([UserMessage(text="a"), ToolMessage(id="call_1_0", tool="read", text="b")])
    assert view.pruned((Clear(of=source, note=""),)) == view


def test_the_fold_has_a_version_of_its_own() -> None:
    assert FOLD >= 4
