"""What a channel shows while a turn runs: it is called at the turn's beginning and at intervals, and holds nothing up."""

from __future__ import annotations

import asyncio
from typing import Any, ClassVar

import msgspec
import pytest

from benchmarks.stage import Model, Stage, says
from gateway.conversations.channels.turn_activity import CALL_SECONDS, TurnActivity
from plugins.api.channel import ChannelActivity
from sessions.events.events import (
    ActionPattern,
    ApprovalAsked,
    ApprovalGiven,
    CallRef,
    TurnEnded,
    TurnParked,
    TurnStarted,
)
from tests.stories import received
from tests.waiting import VirtualTime

MESSAGE = msgspec.structs.replace(received("hi"), channel="lines", reply_to="kitchen", thread="17")
STARTED = TurnStarted(takes=(2,), provider="p", model="m", window=None, reserve=0)
ENDED = TurnEnded(outcome="replied", millis=1, error=None)


class Room:
    """A channel that keeps what it is to show, and when."""

    activity_seconds: ClassVar[float] = 5.0

    def __init__(self) -> None:
        self.shown: list[tuple[float, ChannelActivity]] = []

    async def show_activity(self, activity: ChannelActivity) -> None:
        self.shown.append((asyncio.get_running_loop().time(), activity))


class Running:
    """A session with an open turn, and what its channel shows of it."""

    def __init__(self, room: Any) -> None:
        self.stage = Stage(Model())
        self.room = room
        self.activity = TurnActivity(lambda name: self.room if name == "lines" else None)
        self.activity.opened(self.stage.recorder, self.stage.streaming)
        self.began = asyncio.get_running_loop().time()

    def note(self, *events: Any) -> None:
        for event in events:
            self.stage.recorder.append(event, turn=1)

    def shown(self) -> list[tuple[float, str]]:
        return [(round(at - self.began, 3), activity.text) for at, activity in self.room.shown]


async def test_a_running_turn_is_shown_at_once_and_at_intervals_until_it_ends() -> None:
    with VirtualTime():
        running = Running(room := Room())
        running.note(MESSAGE, STARTED)
        await asyncio.sleep(6)
        running.stage.streaming.begin(1, 1, 0)
        running.stage.streaming.add("It is ")
        running.stage.streaming.add("tea.")
        await asyncio.sleep(6)
        running.stage.streaming.end()
        await asyncio.sleep(6)
        running.note(ENDED)
        await asyncio.sleep(60)
        await running.activity.close()
    assert running.shown() == [(0.0, ""), (5.0, ""), (10.0, "It is tea."), (15.0, "")]
    assert {(activity.chat, activity.thread) for _, activity in room.shown} == {("kitchen", "17")}


async def test_while_a_person_is_asked_nothing_is_shown() -> None:
    call, pattern = CallRef(of=4, index=0), ActionPattern()
    asked = ApprovalAsked(
        approval="k3f9", call=call, tool="launch", what="x", digest="d", choices=("once",), expires="2026-11-22T00:00:00Z",
        pattern=pattern,
    )  # fmt: skip
    with VirtualTime():
        running = Running(Room())
        running.note(MESSAGE, STARTED)
        running.note(asked, TurnParked(approval="k3f9"))
        await asyncio.sleep(60)
        running.note(ApprovalGiven(approval="k3f9", decision="approve", scope="once", by="owner", channel="lines"))
        await asyncio.sleep(1)
        await running.activity.close()
    assert running.shown() == [(60.0, "")]


@pytest.mark.parametrize("room", [None, object()])
async def test_a_channel_that_is_closed_or_shows_nothing_costs_no_task(room: object) -> None:
    running = Running(room)
    before = len(asyncio.all_tasks())
    running.note(MESSAGE, STARTED)
    assert len(asyncio.all_tasks()) == before


async def test_a_turn_of_a_client_that_reads_the_log_costs_no_task() -> None:
    running = Running(Room())
    before = len(asyncio.all_tasks())
    running.note(received("hi"), STARTED)
    assert len(asyncio.all_tasks()) == before


async def test_a_channel_that_fails_or_hangs_is_called_again_and_holds_nothing_up() -> None:
    class Broken(Room):
        async def show_activity(self, activity: ChannelActivity) -> None:
            await super().show_activity(activity)
            if len(self.shown) == 1:
                raise RuntimeError("Not now.")
            await asyncio.Event().wait()

    with VirtualTime():
        running = Running(Broken())
        running.note(MESSAGE, STARTED)
        await asyncio.sleep(5.5 + CALL_SECONDS)
        running.room = Room()
        await asyncio.sleep(10)
        running.note(ENDED)
        await asyncio.sleep(0)
        assert len(asyncio.all_tasks()) == 1
    assert running.shown() == [(20.0, ""), (25.0, "")]


async def test_a_hanging_channel_delays_no_turn_and_is_stopped_with_it() -> None:
    ended = asyncio.Event()

    class Hanging(Room):
        async def show_activity(self, activity: ChannelActivity) -> None:
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()

    stage = Stage(Model(says("hello")))
    activity = TurnActivity(lambda _: Hanging())  # type: ignore[arg-type,return-value]
    activity.opened(stage.recorder, stage.streaming)
    async with stage.playing():
        stage.receive(MESSAGE)
        await stage.until(lambda: bool(stage.told(TurnEnded)))
        await stage.until(ended.is_set)
    await activity.close()
