"""Misbehaving commands, providers and files end only their own turn or answer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar

import pytest

from benchmarks.stage import Instrument, Model, Stage, hangs_after, says
from gateway.conversations.context.loaded_notes import LoadedNotes
from gateway.conversations.turn import tool_calls, typed_commands
from sessions.events.events import CommandAnswered, PluginFailed, ToolReturned, TurnEnded
from tests.waiting import VirtualTime, until


class Misbehaving:
    usage: ClassVar[str] = "/x"
    summary: ClassVar[str] = "x"
    when: ClassVar[Any] = "now"

    def __init__(self, name: str, act: Any) -> None:
        self.name = name
        self._act = act

    async def run(self, argument: str, conversation: Any) -> str:
        return await self._act()  # type: ignore[no-any-return]


async def hanging() -> str:
    await asyncio.Event().wait()
    return "never"


async def fine() -> str:
    return "well"


def typed(**acts: Any) -> dict[str, Any]:
    """Return commands that run at once, by name."""
    return {name: Misbehaving(name, act) for name, act in acts.items()}


async def test_a_provider_whose_choice_raises_fails_the_turn_and_not_the_conversation() -> None:
    model = Model(says("never"))
    stage = Stage(model)

    def broken() -> str | None:
        raise RuntimeError("a bug of a stranger's")

    model.default_model = broken  # type: ignore[method-assign]
    task = asyncio.create_task(stage.conversation.run())
    stage.hear("hi")
    await until(lambda: task.done() or stage.told(TurnEnded))
    try:
        assert not task.done(), task.exception()
        assert [e.outcome for e in stage.told(TurnEnded)] == ["failed"]
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_command_that_is_cancelled_by_itself_does_not_silence_all_later_ones() -> None:
    async def cancelled() -> str:
        task = asyncio.create_task(asyncio.sleep(10))
        task.cancel()
        await task
        return "never"

    stage = Stage(Model(says("x")), commands=typed(bad=cancelled, good=fine))
    async with stage.playing():
        stage.hear("/bad", "1")
        stage.hear("/good", "2")
        await until(lambda: [e.answer for e in stage.told(CommandAnswered)][-1:] == ["well"])


async def test_a_hanging_command_does_not_delay_a_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_commands, "ORDER_SECONDS", 3600)
    stage = Stage(Model(says("x")), commands=typed(hang=hanging, stop=fine))
    async with stage.playing():
        stage.hear("/hang", "1")
        seq = stage.hear("/stop", "2")
        await stage.until(lambda: bool(stage.told(CommandAnswered)))
    assert stage.told(CommandAnswered) == [CommandAnswered(answers=seq, answer="well", failed=False)]


async def test_a_slow_command_delays_others_only_briefly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_commands, "ORDER_SECONDS", 0.01)
    stage = Stage(Model(says("x")), commands=typed(hang=hanging, good=fine))
    async with stage.playing():
        stage.hear("/hang", "1")
        seq = stage.hear("/good", "2")
        await stage.until(lambda: bool(stage.told(CommandAnswered)))
    assert [event.answers for event in stage.told(CommandAnswered)] == [seq]


async def test_commands_that_answer_soon_are_answered_in_their_order() -> None:
    async def after(steps: int) -> str:
        for _ in range(steps):
            await asyncio.sleep(0)
        return "well"

    names = [f"c{steps}" for steps in (30, 0, 20, 1)]
    stage = Stage(Model(says("x")), commands=typed(**{name: partial(after, int(name[1:])) for name in names}))
    async with stage.playing():
        asked = [stage.hear(f"/{name}", name) for name in [*names, "nonsense"]]
        await stage.until_settled()
    assert [event.answers for event in stage.told(CommandAnswered)] == asked


async def test_a_hanging_command_is_stopped_and_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_commands, "NOW_SECONDS", 0.01)
    stage = Stage(Model(says("x")), commands={"hang": Misbehaving("hang", hanging)})  # type: ignore[dict-item]
    with VirtualTime():
        async with stage.playing():
            seq = stage.hear("/hang", "1")
            await stage.until_settled()
    sentence = "/hang failed: it did not answer within 0 seconds and was stopped"
    assert stage.told(CommandAnswered) == [CommandAnswered(answers=seq, answer=sentence, failed=True)]
    assert [event.plugin for event in stage.told(PluginFailed)] == ["hang"]


async def test_commands_of_one_name_are_answered_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typed_commands, "ORDER_SECONDS", 0)
    gate = asyncio.Event()

    class Slow(Misbehaving):
        async def run(self, argument: str, conversation: Any) -> str:
            if argument == "one":
                await gate.wait()
            return argument

    stage = Stage(Model(says("x")), commands={"slow": Slow("slow", None)})  # type: ignore[dict-item]
    async with stage.playing():
        stage.hear("/slow one", "1")
        stage.hear("/slow two", "2")
        for _ in range(20):
            await asyncio.sleep(0)
        gate.set()
        await stage.until_settled()
    assert [event.answer for event in stage.told(CommandAnswered)] == ["one", "two"]


async def test_a_hanging_command_between_turns_can_be_stopped_like_a_turn() -> None:
    command = Misbehaving("hang", hanging)
    command.when = "between_turns"  # type: ignore[misc]
    stage = Stage(Model(says("and on it goes")), commands={"hang": command})  # type: ignore[dict-item]
    async with stage.playing():
        assert not stage.conversation.stop()
        stage.hear("/hang", "1")
        stage.hear("hello", "2")
        await stage.until(stage.conversation.stop)
        assert not stage.conversation.stop()
        await stage.until_settled()
    assert [(e.answer, e.failed) for e in stage.told(CommandAnswered)] == [("/hang was stopped.", True)]
    assert [event.outcome for event in stage.told(TurnEnded)] == ["replied"]


async def test_a_command_interrupted_by_the_gateways_stop_is_answered_at_the_next_start() -> None:
    for when in ("now", "between_turns"):
        command = Misbehaving("x", hanging)
        command.when = when  # type: ignore[misc]
        stage = Stage(Model(says("x")), commands={"x": command})  # type: ignore[dict-item]
        async with stage.playing():
            stage.hear("/x", "1")
            for _ in range(10):
                await asyncio.sleep(0)
        assert stage.told(CommandAnswered) == []
        command._act = fine
        again = Stage(Model(says("x")), commands={"x": command}, lines=stage.log.written)  # type: ignore[dict-item]
        async with again.playing():
            await again.until_settled()
        assert [event.answer for event in again.told(CommandAnswered)] == ["well"]


async def test_a_command_between_turns_that_is_cancelled_by_itself_leaves_the_session_alive() -> None:
    async def cancelled() -> str:
        raise asyncio.CancelledError

    command = Misbehaving("bad", cancelled)
    command.when = "between_turns"  # type: ignore[misc]
    stage = Stage(Model(says("x")), commands={"bad": command})  # type: ignore[dict-item]
    task = asyncio.create_task(stage.conversation.run())
    stage.hear("/bad", "1")
    await asyncio.wait([task], timeout=0.5)
    try:
        assert not task.done()
    finally:
        task.cancel()
        await asyncio.wait([task])


async def test_a_message_that_arrives_while_the_notes_are_read_interrupts_the_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(Model(hangs_after("the old question"), says("both")), queue="interrupt")
    reading, read = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> tuple[()]:
        reading.set()
        await read.wait()
        return ()

    monkeypatch.setattr(LoadedNotes, "load", slow)
    async with stage.playing():
        stage.hear("old", "1")
        await reading.wait()
        await stage.recorder.until_durable(stage.hear("new", "2"))
        read.set()
        await until(lambda: len(stage.told(TurnEnded)) >= 1)


async def test_stop_reaches_a_turn_whose_notes_are_being_read(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage(Model(hangs_after("")))
    reading, read = asyncio.Event(), asyncio.Event()

    async def slow(*_: object) -> tuple[()]:
        reading.set()
        await read.wait()
        return ()

    monkeypatch.setattr(LoadedNotes, "load", slow)
    async with stage.playing():
        stage.hear("old", "1")
        await reading.wait()
        assert stage.turn.cancel()
        read.set()


async def test_a_tool_that_ignores_cancellation_delays_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_calls, "STOP_SECONDS", 0.01)
    entered, end = asyncio.Event(), asyncio.Event()

    async def stubborn() -> str:
        while not end.is_set():
            entered.set()
            with suppress(asyncio.CancelledError):
                await end.wait()
        return "much too late"

    stage = Stage(Model(says("", "tool"), says("well")), Instrument("tool", stubborn))
    async with stage.playing():
        stage.hear("go", "1")
        await entered.wait()
        stage.hear("and now?", "2")
        assert stage.conversation.stop()
        try:
            await stage.until_settled()
        finally:
            end.set()
            await asyncio.sleep(0.01)
    assert [event.outcome for event in stage.told(TurnEnded)] == ["cancelled", "replied"]
    assert [event.outcome for event in stage.told(ToolReturned)] == ["unknown"]


async def test_a_tool_that_does_not_return_is_stopped_and_the_model_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tool_calls, "TOOL_SECONDS", 0.01)
    stage = Stage(Model(says("", "tool"), says("well")), Instrument("tool", hanging))
    with VirtualTime():
        async with stage.playing():
            await stage.say("go")
    assert [(event.outcome, event.output) for event in stage.told(ToolReturned)] == [
        ("failed", "The tool did not return within 0 seconds and was stopped.")
    ]
    assert stage.told(PluginFailed) == []


@pytest.mark.parametrize("error", [SystemExit("a missing library"), TimeoutError("of its own"), asyncio.CancelledError()])
async def test_an_exception_of_a_tool_ends_only_its_call(error: BaseException) -> None:
    async def raises() -> str:
        raise error

    stage = Stage(Model(says("", "tool"), says("well")), Instrument("tool", raises))
    async with stage.playing():
        await stage.say("go", "1")
        await stage.say("again", "2")
    assert [event.outcome for event in stage.told(TurnEnded)] == ["replied", "replied"]
    assert [event.outcome for event in stage.told(ToolReturned)] == ["failed"]
