"""`exuvia context` rebuilds the requests of a past turn from the journal alone; the parts of a context add up."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.stage import Instrument, Model, Stage, says
from gateway.cli.main import cli
from gateway.conversations.commands.context_report import context_items, shared
from plugins.api.pruning import PruningRules
from sessions.events.codec import decode
from sessions.events.events import (
    CompactionReverted,
    ContextCompacted,
    ContextPruned,
    Event,
    InstructionsSet,
    ModelReplied,
    Recorded,
    RequestSent,
    TurnEnded,
    TurnStarted,
    UnknownEvent,
)
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolMessage, UserMessage
from sessions.events.pruning import Trim
from sessions.state.context import assemble
from sessions.state.persistent_list import plain
from sessions.state.request_sizes import Calibration
from sessions.state.transcript import Transcript
from tests.docs.view import request_by_the_page
from tests.stories import lines_of, opened, received, view_of

SESSION = "20261121-120000-aaaaaa"


def lay(home: Path, lines: list[bytes]) -> None:
    path = home / "sessions" / f"{SESSION}.jsonl"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(b"".join(lines))


def context(home: Path, *options: str) -> Result:
    return CliRunner().invoke(cli, ["context", "main", "--home", str(home), *options])


def rebuilt(home: Path, *options: str) -> dict[str, Any]:
    done = context(home, "--json", *options)
    assert done.exit_code == 0, done.output
    return dict(json.loads(done.output))


async def played() -> Stage:
    """Play six turns, each with two calls whose large results are pruned with age."""
    model = Model(*(says("", "tool"), says("done")) * 6)
    stage = Stage(model, Instrument("tool", lambda: "x" * 900), pruning=PruningRules(mode="always", min_prunable_chars=0))
    async with stage.playing():
        for number in range(6):
            await stage.say(f"go {number}", f"m{number}")
    assert stage.told(ContextPruned)
    return stage


async def test_each_request_of_each_past_turn_is_rebuilt_and_its_hash_agrees(tmp_path: Path) -> None:
    stage = await played()
    lay(tmp_path, stage.log.written)
    requests = [json.loads(msgspec.json.encode(request.context, enc_hook=plain)) for request in stage.model.requests]
    for turn in range(1, 7):
        found = rebuilt(tmp_path, "--turn", str(turn))
        assert (found["session"], found["turn"]) == (SESSION, turn)
        assert [request["context"] for request in found["requests"]] == requests[2 * turn - 2 : 2 * turn]
        assert [request["agrees"] for request in found["requests"]] == [True, True]
    (second,) = rebuilt(tmp_path, "--call", "2")["requests"]
    assert (second["call"], second["context"]) == (2, requests[-1])


async def test_people_see_the_verdicts_and_how_each_message_begins(tmp_path: Path) -> None:
    lay(tmp_path, (await played()).log.written)
    shown = context(tmp_path, "--turn", "3")
    assert shown.exit_code == 0
    assert shown.output.count(" matches\n") == 2
    assert shown.output.startswith(f"Turn 3 of {SESSION}\n1. #")
    assert "go 2" in shown.output
    assert "go 3" not in shown.output
    assert "→ tool {}" in shown.output


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (["--turn", "7"], f"Turn 7 of {SESSION} asked a model."),
        (["--call", "3"], f"Turn 6 of {SESSION} asked a model 2 times."),
    ],
)
async def test_a_turn_or_a_call_that_is_not_there_is_said_to_be_so(
    tmp_path: Path, options: list[str], sentence: str
) -> None:
    lay(tmp_path, (await played()).log.written)
    done = context(tmp_path, *options)
    assert done.exit_code == 2
    assert sentence in done.output


async def test_a_journal_that_was_altered_does_not_rebuild_what_was_sent(tmp_path: Path) -> None:
    stage = await played()
    lay(tmp_path, lines_of([_altered(decode(line)) for line in stage.log.written]))
    done = context(tmp_path)
    assert done.exit_code == 1
    assert "DIFFERS" in done.output


def _altered(recorded: Recorded) -> tuple[Event, int]:
    """Return the event as somebody would forge it to claim that the model was shown more."""
    event = recorded.event
    assert not isinstance(event, UnknownEvent)
    if isinstance(event, ContextPruned):
        more = [msgspec.structs.replace(edit, note="[More.]") for edit in event.edits]
        event = ContextPruned(edits=tuple(more))
    return event, recorded.turn or 0


class Story:
    """A journal under construction, whose requests have the hashes that docs/events.md defines."""

    def __init__(self) -> None:
        instructions = InstructionsSet(text="Be brief.", tools=(), notes=(), parameters={})
        self.events: list[tuple[Event, int]] = [(opened(SESSION), 0), (instructions, 0)]

    def turn(self, number: int) -> None:
        """Add a turn: six events, one of them a request beside the conversation."""
        self.events.append((received(f"message {number} " + "x" * 50, f"m{number}"), 0))
        start = TurnStarted(takes=(len(self.events),), provider="p", model="m", window=1000, reserve=0)
        self.events.append((start, number))
        request = request_by_the_page([json.loads(line) for line in lines_of(self.events)])
        text = json.dumps(request, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        digest = hashlib.sha256(text.encode()).hexdigest()
        reply = ModelReplied(reply=1, model="m", text=f"answer {number}", calls=(), stop="end", usage=None)
        self.events += [
            (RequestSent(purpose="flush", sha256="0" * 64, messages=1, tokens=1), number),
            (RequestSent(purpose="answer", sha256=digest, messages=len(request) - 1, tokens=1), number),
            (reply, number),
            (TurnEnded(outcome="replied", millis=1), number),
        ]

    def then(self, event: Event) -> None:
        """Add an event between two turns."""
        self.events.append((event, 0))


def compacted(number: int, keep_from: int) -> ContextCompacted:
    return ContextCompacted(
        compaction=number, keep_from=keep_from, summary=f"summary {number}", by="t", tokens_before=2, tokens_after=1
    )


def test_requests_before_and_behind_compactions_and_reverts_are_rebuilt(tmp_path: Path) -> None:
    story = Story()
    for number in (1, 2, 3):
        story.turn(number)
    story.then(compacted(1, keep_from=16))  # the beginning of the third turn
    story.turn(4)
    story.then(compacted(2, keep_from=23))  # that of the fourth
    story.turn(5)
    story.then(ContextPruned(edits=(Trim(of=22, head=1, tail=1),)))
    story.then(CompactionReverted(to=1, keep_from=16))
    story.turn(6)
    story.then(CompactionReverted(to=0, keep_from=1))
    story.turn(7)
    lay(tmp_path, lines_of(story.events))
    found = [rebuilt(tmp_path, "--turn", str(number))["requests"][0] for number in range(1, 8)]
    assert all(request["agrees"] for request in found)
    assert [len(request["context"]["messages"]) for request in found] == [1, 3, 5, 4, 4, 8, 13]


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
