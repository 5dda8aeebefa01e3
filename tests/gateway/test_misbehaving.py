"""Commands, providers and files that misbehave end nothing but their own turn or answer."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

from sessions.events import CommandAnswered, TurnEnded
from tests.gateway.stage import Model, Stage, hangs_after, says


class Misbehaving:
    usage: ClassVar[str] = "/x"
    summary: ClassVar[str] = "x"
    when: ClassVar[Any] = "now"

    def __init__(self, name: str, act: Any) -> None:
        self.name = name
        self._act = act

    async def run(self, argument: str, conversation: Any) -> str:
        return await self._act()  # type: ignore[no-any-return]


async def test_a_provider_whose_choice_raises_fails_the_turn_and_not_the_conversation() -> None:
    model = Model(says("never"))
    stage = Stage(model)

    def broken() -> str | None:
        raise RuntimeError("a bug of a stranger's")

    model.default_model = broken  # type: ignore[method-assign]
    task = asyncio.create_task(stage.conversation.run())
    stage.hear("hi")
    await asyncio.wait([task], timeout=1)
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

    async def fine() -> str:
        return "well"

    stage = Stage(Model(says("x")), commands={"bad": Misbehaving("bad", cancelled), "good": Misbehaving("good", fine)})  # type: ignore[dict-item]
    async with stage.playing():
        stage.hear("/bad", "1")
        await asyncio.sleep(0.1)
        stage.hear("/good", "2")
        await asyncio.sleep(0.3)
        assert [e.answer for e in stage.told(CommandAnswered)][-1:] == ["well"]


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


async def test_what_arrives_while_the_notes_are_read_interrupts_the_turn_too() -> None:
    stage = Stage(Model(hangs_after("the old question"), says("both")), queue="interrupt")
    reading, read = asyncio.Event(), asyncio.Event()

    async def slow(_: int | None) -> tuple[()]:
        reading.set()
        await read.wait()
        return ()

    stage.turn._notes = slow
    async with stage.playing():
        stage.hear("old", "1")
        await reading.wait()
        stage.hear("new", "2")
        await asyncio.sleep(0.2)  # durable by now
        read.set()
        async with asyncio.timeout(2):
            while len(stage.told(TurnEnded)) < 1:
                await asyncio.sleep(0.01)


async def test_stop_reaches_a_turn_whose_notes_are_being_read() -> None:
    stage = Stage(Model(hangs_after("")))
    reading, read = asyncio.Event(), asyncio.Event()

    async def slow(_: int | None) -> tuple[()]:
        reading.set()
        await read.wait()
        return ()

    stage.turn._notes = slow
    async with stage.playing():
        stage.hear("old", "1")
        await reading.wait()
        assert stage.turn.cancel()
        read.set()
