"""One request's context: always paired, always the same hash for the same content."""

from __future__ import annotations

import hashlib
import json
import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from sessions.events import tokens
from sessions.events.events import InstructionsSet
from sessions.events.messages import AssistantMessage, Message, ToolCall, ToolDefinition, ToolMessage, UserMessage
from sessions.events.tokens import TokenFeatures
from sessions.state.context import LOST_RESULT, MARKED, Context, Gauge, assemble, is_paired, pair_results
from sessions.state.persistent_list import PersistentList
from sessions.state.transcript import Transcript
from tests.stories import view_of

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
IDS = st.sampled_from(["call_1_0", "call_1_1", "call_2_0"])


def call(id_: str) -> ToolCall:
    return ToolCall(id=id_, tool="read", arguments="{}")


MESSAGES: st.SearchStrategy[list[Message]] = st.lists(
    st.one_of(
        st.builds(UserMessage, text=TEXT),
        st.builds(AssistantMessage, text=TEXT, calls=st.lists(st.builds(call, IDS), max_size=2, unique=True).map(tuple)),
        st.builds(ToolMessage, id=IDS, tool=st.just("read"), text=TEXT),
    ),
    max_size=12,
)


def strict_pairing(messages: list[Message]) -> None:
    """Assert the pairing of calls and results that providers require, independently of the code under test."""
    index = 0
    while index < len(messages):
        message = messages[index]
        assert not isinstance(message, ToolMessage), "a result without a call"
        calls = list(message.calls) if isinstance(message, AssistantMessage) else []
        results = messages[index + 1 : index + 1 + len(calls)]
        assert all(isinstance(result, ToolMessage) for result in results)
        assert sorted(c.id for c in calls) == sorted(r.id for r in results if isinstance(r, ToolMessage))
        index += 1 + len(calls)


@given(MESSAGES)
def test_in_any_view_each_call_gets_one_result_and_no_text_is_lost(messages: list[Message]) -> None:
    repaired = pair_results(messages)
    strict_pairing(repaired)
    assert is_paired(repaired)
    said = [m.text for m in messages if not isinstance(m, ToolMessage)]
    assert [m.text for m in repaired if not isinstance(m, ToolMessage)] == said
    if is_paired(messages):
        assert [m for m in repaired if not isinstance(m, ToolMessage)] == [
            m for m in messages if not isinstance(m, ToolMessage)
        ]


# Failure 8: the guard is the repair in `assemble`.
@given(st.lists(MESSAGES, max_size=4))
def test_incremental_assembly_equals_complete_assembly(steps: list[list[Message]]) -> None:
    view, before = PersistentList[Message](), None
    for step in steps:
        for message in step:
            view = view.grown(message)
        transcript = Transcript(view=view_of(view))
        before = assemble(transcript, before)
        assert before == assemble(transcript)
        strict_pairing(list(before.messages))


def test_a_missing_result_is_replaced_by_a_notice() -> None:
    view: PersistentList[Message] = PersistentList(
        [AssistantMessage(text="", calls=(call("call_1_0"),)), UserMessage(text="and?")]
    )
    context = assemble(Transcript(view=view_of(view)))
    assert context.messages[1] == ToolMessage(id="call_1_0", tool="read", text=LOST_RESULT, failed=True)


def context_of(messages: list[Message], instructions: str = "Be brief.") -> Context:
    tool = ToolDefinition(name="read", description="Reads.", parameters={"type": "object"})
    return Context(instructions=instructions, tools=(tool,), parameters={"temperature": 0.5}, messages=tuple(messages))


def plain(value: Any) -> Any:
    return msgspec.to_builtins(value)


@given(MESSAGES, TEXT)
def test_the_hash_is_that_of_the_documented_canonical_json(messages: list[Message], instructions: str) -> None:
    context = context_of(messages, instructions)
    head = {"instructions": instructions, "parameters": context.parameters, "tools": plain(context.tools)}
    canonical = json.dumps([head, *plain(messages)], sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()
    assert Gauge().measure(context).sha256 == hashlib.sha256(canonical).hexdigest()


@given(st.lists(MESSAGES, max_size=4))
def test_incremental_measurement_equals_complete_measurement(steps: list[list[Message]]) -> None:
    gauge, view = Gauge(), PersistentList[Message]()
    for step in steps:
        for message in step:
            view = view.grown(message)
        context = context_of(list(view))
        assert gauge.measure(context) == Gauge().measure(context)


def test_a_changed_beginning_is_measured_again() -> None:
    gauge = Gauge()
    one, two, three = UserMessage(text="one"), UserMessage(text="two"), UserMessage(text="three")
    gauge.measure(context_of([one, two]))
    for context in (context_of([two, three]), context_of([two]), context_of([two], "Other.")):
        assert gauge.measure(context) == Gauge().measure(context)


def test_the_context_is_the_instructions_in_force_and_the_view() -> None:
    tool = ToolDefinition(name="read", description="Reads.", parameters={})
    transcript = Transcript(
        view=view_of([UserMessage(text="hi")]),
        instructions=InstructionsSet(text="Be brief.", tools=(tool,), notes=(), parameters={"temperature": 1}),
    )
    assert assemble(transcript) == Context(
        instructions="Be brief.", tools=(tool,), parameters={"temperature": 1}, messages=(UserMessage(text="hi"),)
    )


def test_a_gauge_that_follows_edits_and_cuts_equals_a_new_gauge() -> None:
    chance, gauge = random.Random(5), Gauge()
    messages: list[Message] = []
    for step in range(400):
        if messages and step % 7 == 0:
            messages[chance.randrange(len(messages))] = UserMessage(text=f"edited {step}")
        if step % 97 == 96:
            del messages[: len(messages) // 2]
        messages += [UserMessage(text=f"{step} {'x' * chance.randint(0, 9)}")] * (step % 3)
        context = Context(instructions="", tools=(), parameters={}, messages=tuple(messages))
        assert gauge.measure(context) == Gauge().measure(context)
        assert len(gauge._marks) <= len(messages) // MARKED + 2


# Failure 14: the guard is the gauge's marks, so that no request costs what the conversation holds.
def test_a_message_is_counted_once_in_repeated_measurements(monkeypatch: pytest.MonkeyPatch) -> None:
    counted: list[Message] = []

    def of_message(message: Message) -> TokenFeatures:
        counted.append(message)
        return tokens.message_features(message)

    monkeypatch.setattr("sessions.state.context.message_features", of_message)
    gauge, messages = Gauge(), list[Message]()
    for number in range(100):
        messages.append(UserMessage(text=f"{number}"))
        gauge.measure(context_of(messages))
        gauge.measure(context_of(messages))
    assert counted == messages
