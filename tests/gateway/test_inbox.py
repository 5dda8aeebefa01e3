"""The queue modes: how each handles messages during a turn; none is lost, duplicated or reordered."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import ClassVar, Literal

import pytest

from benchmarks.stage import Instrument, Model, Stage, hangs_after, says
from gateway.config.keys import QueueMode, SessionsKeys
from gateway.conversations.turn.inbox import MODES
from gateway.protocol import slash_commands
from plugins.api.chat import CallDraft, ChatRequest, Delta, Reply
from plugins.api.command import Command, CommandTime, ConversationView
from sessions.events.events import (
    CommandAnswered,
    MessageReceived,
    ModelReplied,
    RequestedCall,
    SettingChanged,
    ToolReturned,
    TurnEnded,
    TurnJoined,
    TurnStarted,
)
from sessions.state.context import is_paired
from sessions.state.reducer import project
from sessions.state.transcript import WaitingMessage
from tests.gateway.gateways import gateway
from tests.stories import lines_of, opened, received
from tests.waiting import deadline, until

ARRIVALS = 1000


class Between:
    """A command that waits for the end of the turn."""

    name: ClassVar[str] = "between"
    usage: ClassVar[str] = "/between"
    summary: ClassVar[str] = ""
    when: ClassVar[CommandTime] = "between_turns"

    async def run(self, argument: str, conversation: ConversationView) -> str:
        return "done"


class Now(Between):
    """A command that does not wait."""

    name: ClassVar[str] = "now"
    when: ClassVar[CommandTime] = "now"


def taken(stage: Stage) -> list[Sequence[int]]:
    """Return the messages of each turn, with those that joined it."""
    return [event.takes for event in stage.events if isinstance(event, TurnStarted | TurnJoined)]


class Gate:
    """A tool that runs until the test releases it."""

    def __init__(self) -> None:
        self.entered = asyncio.Event()
        self.open = asyncio.Event()

    async def __call__(self) -> str:
        self.entered.set()
        await self.open.wait()
        return "done"


async def staged_in_a_tool(queue: QueueMode, **commands: Command) -> tuple[Stage, Gate]:
    gate = Gate()
    stage = Stage(Model(says("", "tool"), says("answer")), Instrument("tool", gate), queue=queue, commands=commands)
    return stage, gate


async def test_followup_gives_each_message_a_turn_of_its_own() -> None:
    stage, gate = await staged_in_a_tool("followup")
    async with stage.playing():
        first = stage.hear("one", "1")
        await gate.entered.wait()
        others = [stage.hear(text, text) for text in ("two", "three")]
        gate.open.set()
        await stage.until_settled()
    assert taken(stage) == [(first,), *((seq,) for seq in others)]
    assert [event.outcome for event in stage.told(TurnEnded)] == ["replied"] * 3


async def test_collect_answers_together_what_came_during_a_turn() -> None:
    stage, gate = await staged_in_a_tool("collect")
    async with stage.playing():
        first = stage.hear("one", "1")
        await gate.entered.wait()
        others = [stage.hear("two", "2"), stage.hear("three", "3")]
        gate.open.set()
        await stage.until(lambda: len(stage.told(TurnEnded)) == 1)
        others.append(stage.hear("four, while they are collected", "4"))
        await stage.until_settled()
    assert taken(stage) == [(first,), tuple(others)]
    assert [m.text for m in stage.model.requests[-1].context.messages[-3:]] == [
        "two",
        "three",
        "four, while they are collected",
    ]


async def test_steer_enters_the_turn_behind_the_results_of_its_tools() -> None:
    stage, gate = await staged_in_a_tool("steer")
    async with stage.playing():
        first = stage.hear("one", "1")
        await gate.entered.wait()
        second = stage.hear("rather so", "2")
        gate.open.set()
        await stage.until_settled()
    assert taken(stage) == [(first,), (second,)]
    assert len(stage.told(TurnEnded)) == 1
    assert [type(m).__name__ for m in stage.model.requests[-1].context.messages] == [
        "UserMessage",
        "AssistantMessage",
        "ToolMessage",
        "UserMessage",
    ]


async def test_steer_without_another_tool_starts_the_next_turn() -> None:
    stage = Stage(Model(says("first"), says("second")), queue="steer")
    async with stage.playing():
        one = stage.hear("one", "1")
        await stage.until(lambda: stage.streaming.current is not None)
        two = stage.hear("two", "2")
        await stage.until_settled()
    assert taken(stage) == [(one,), (two,)]
    assert len(stage.told(TurnEnded)) == 2


async def test_interrupt_stops_the_turn_and_its_tool_and_takes_all_that_waits() -> None:
    stage, gate = await staged_in_a_tool("interrupt")
    async with stage.playing():
        first = stage.hear("one", "1")
        await gate.entered.wait()
        others = (stage.hear("two", "2"), stage.hear("three", "3"))
        await stage.until_settled()
    assert taken(stage) == [(first,), others]
    assert [event.outcome for event in stage.told(TurnEnded)] == ["cancelled", "replied"]
    assert [event.outcome for event in stage.told(ToolReturned)] == ["unknown"]


async def test_interrupt_waits_until_the_new_message_is_on_the_disk() -> None:
    stage = Stage(Model(hangs_after("some"), says("answer")), queue="interrupt")
    async with stage.playing():
        stage.hear("one", "1")
        await stage.until(lambda: stage.streaming.current is not None and stage.streaming.current.text == "some")
        seq = stage.hear("two", "2")
        await stage.until(lambda: bool(stage.told(TurnEnded)))
        assert stage.recorder.durable >= seq
        await stage.until_settled()


STARTED = TurnStarted(takes=(2,), provider="staged", model="model", window=1000, reserve=0)


@pytest.mark.parametrize(
    ("queue", "outcomes"), [("interrupt", ["cancelled", "replied"]), ("followup", ["replied", "replied"])]
)
async def test_a_message_that_waited_while_the_gateway_was_gone_interrupts_the_turn_that_it_would_have(
    queue: QueueMode, outcomes: list[str]
) -> None:
    call = RequestedCall(id="", tool="tool", arguments="{}")
    asked = ModelReplied(reply=1, model="model", text="", calls=(call,), stop="calls", usage=None)
    lines = lines_of([opened(), received("one", "1"), (STARTED, 1), (asked, 1), received("two", "2")])
    stage = Stage(Model(says("answer")), Instrument("tool"), lines=lines, queue=queue)
    async with stage.playing():
        await stage.until_settled()
    assert taken(stage) == [(2,), (5,)]
    assert [event.outcome for event in stage.told(TurnEnded)] == outcomes
    assert is_paired(tuple(stage.recorder.transcript.messages))


async def test_an_answer_that_was_whole_is_not_interrupted_by_what_came_after_it() -> None:
    whole = ModelReplied(reply=1, model="model", text="All of it.", calls=(), stop="end", usage=None)
    lines = lines_of([opened(), received("one", "1"), (STARTED, 1), (whole, 1), received("two", "2")])
    stage = Stage(Model(says("answer")), lines=lines, queue="interrupt")
    async with stage.playing():
        await stage.until_settled()
    assert [event.outcome for event in stage.told(TurnEnded)] == ["replied", "replied"]


async def test_a_message_interrupts_a_resumed_turn_in_whatever_moment_it_comes() -> None:
    for steps in range(12):
        lines = lines_of([opened(), received("one", "1"), (STARTED, 1)])
        stage = Stage(Model(hangs_after("old")), lines=lines, queue="interrupt")
        async with stage.playing():
            for _ in range(steps):
                await asyncio.sleep(0)
            seq = stage.hear("two", "2")
            if steps == 0:  # it is durable before the conversation's first step
                stage.log._commit()
            async with deadline():
                while not stage.told(TurnEnded):  # the model answers before the next turn asks it
                    await asyncio.sleep(0)
            stage.model.answers = [says("new")]
            await stage.until_settled()
        assert taken(stage)[-1] == (seq,)
        assert stage.told(TurnEnded)[0].outcome == "cancelled"


async def test_no_message_is_taken_before_a_command_that_came_earlier() -> None:
    for mode in MODES:
        stage, gate = await staged_in_a_tool(mode, between=Between())
        async with stage.playing():
            stage.hear("one", "1")
            await gate.entered.wait()
            command = stage.hear("/between", "2")
            stage.hear("three", "3")
            gate.open.set()
            await stage.until_settled()
        order = [e.answers if isinstance(e, CommandAnswered) else e.takes[-1] for e in decided(stage)]
        assert order == sorted(order), mode
        assert command in order


def decided(stage: Stage) -> list[TurnStarted | TurnJoined | CommandAnswered]:
    return [event for event in stage.events if isinstance(event, TurnStarted | TurnJoined | CommandAnswered)]


async def test_a_session_may_have_a_mode_of_its_own() -> None:
    stage, gate = await staged_in_a_tool("followup")
    async with stage.playing():
        stage.hear("one", "1")
        await gate.entered.wait()
        stage.recorder.append(SettingChanged(name="queue", value="collect", by="owner"))
        others = (stage.hear("two", "2"), stage.hear("three", "3"))
        gate.open.set()
        await stage.until_settled()
    assert taken(stage)[-1] == others


def sometimes(chance: random.Random) -> Model:
    """Return a slow model that calls a tool now and then."""

    async def answer(request: ChatRequest) -> AsyncIterator[Delta | Reply]:
        for _ in range(chance.randrange(3)):
            yield Delta("x")
            await asyncio.sleep(chance.choice((0, 0, 0.001)))
        calls = (CallDraft(id="c", tool="tool", arguments="{}"),) * chance.choice((0, 0, 1, 2))
        yield Reply(text="x", model="model", stop="calls" if calls else "end", calls=calls)

    return Model(answer)


@pytest.mark.parametrize("mode", [*MODES, "changing"])
async def test_of_a_thousand_messages_none_is_lost_duplicated_or_reordered(
    mode: QueueMode | Literal["changing"], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.conversations.routing.conversation.COLLECT_SECONDS", 0.002)
    chance = random.Random(mode)

    async def tool() -> str:
        await asyncio.sleep(chance.choice((0, 0, 0.001)))
        return "done"

    commands = {"between": Between(), "now": Now()}
    stage = Stage(
        sometimes(chance),
        Instrument("tool", tool),
        commands=commands,
        queue="followup" if mode == "changing" else mode,
        rounds=1000,
    )
    sent: dict[int, str] = {}
    async with stage.playing():
        for number in range(ARRIVALS):
            text = chance.choices((f"message {number}", "/now", "/between"), (8, 1, 1))[0]
            sent[stage.hear(text, str(number))] = text
            if mode == "changing":
                stage.configure(sessions=SessionsKeys(queue=chance.choice(MODES)))
            if len(stage.recorder.transcript.waiting) > 30:
                await stage.until(lambda: len(stage.recorder.transcript.waiting) < chance.randrange(1, 20))
            elif chance.random() < 0.5:
                await asyncio.sleep(chance.choice((0, 0, 0.001, 0.003)))
        await until(lambda: bool(stage.recorder.transcript.settled and stage.recorder.durable_transcript.settled))

    messages = [seq for seq, text in sent.items() if not text.startswith("/")]
    assert [seq for takes in taken(stage) for seq in takes] == messages
    answered = [event.answers for event in stage.told(CommandAnswered)]
    assert sorted(answered) == [seq for seq, text in sent.items() if text.startswith("/")]
    between = [e.answers if isinstance(e, CommandAnswered) else e.takes[0] for e in decided(stage)]
    between = [seq for seq in between if sent[seq] != "/now"]
    assert between == sorted(between)
    assert [event.id for event in stage.told(MessageReceived)] == [str(number) for number in range(ARRIVALS)]
    assert is_paired(tuple(project(stage.log.written).messages))
    joined = len(stage.told(TurnJoined))
    cancelled = [event for event in stage.told(TurnEnded) if event.outcome == "cancelled"]
    together = [takes for takes in taken(stage) if len(takes) > 1]
    assert bool(joined) == (mode in ("steer", "changing"))
    assert bool(cancelled) == (mode in ("interrupt", "changing"))
    assert bool(together) == (mode != "followup")


class Pattern:
    """A pattern that records the texts it is matched with."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.texts: list[str] = []
        self._pattern = pattern

    def match(self, text: str) -> re.Match[str] | None:
        self.texts.append(text)
        return self._pattern.match(text)


@pytest.fixture
def parsed(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect the texts that were parsed as commands."""
    pattern = Pattern(slash_commands._COMMAND)
    monkeypatch.setattr(slash_commands, "_COMMAND", pattern)
    return pattern.texts


@pytest.mark.parametrize("mode", MODES)
async def test_a_message_is_parsed_once(mode: QueueMode, tmp_path: Path, parsed: list[str]) -> None:
    texts = ["one", "two", "/status", "/compact", "three", "/nothing", "/new", "four"]
    async with gateway(tmp_path, settings={"sessions.queue": mode}) as running:
        client = await running.connect()
        for text in texts:
            await client.send(text)

        def all_answered() -> bool:
            kinds = [[event["kind"] for event in events] for events in running.journals().values()]
            return len(kinds) == 2 and kinds[0][-1] == "session_closed" and kinds[1][-1] == "turn_ended"

        await until(all_answered)
    assert sorted(parsed) == sorted(texts)


def test_a_message_that_waits_is_parsed_once_when_its_session_is_opened_again(parsed: list[str]) -> None:
    texts = ["one", "/now", "two", "/between", "three"]
    messages = [received(text, f"m{number}") for number, text in enumerate(texts)]
    stage = Stage(Model(says("")), lines=lines_of([opened(), *messages]), commands={"now": Now(), "between": Between()})
    inbox = stage.conversation.inbox
    waits = [inbox.count(commands=True), inbox.count(commands=False), inbox.first(), inbox.messages(), inbox.next_batch()]
    first = WaitingMessage(seq=2, message=messages[0])
    assert (waits, parsed) == ([2, 3, first, [2, 4], [2]], texts)
