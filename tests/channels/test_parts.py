"""Answers in parts: one post each, in order, each recorded, and what is not known to have arrived is marked."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from types import EllipsisType
from typing import Any, Literal, cast

import msgspec
import pytest

from benchmarks.stage import Model, Stage
from gateway.conversations.channels import reply_delivery
from gateway.conversations.channels.reply_delivery import MOST_EARLY, ReplyDelivery
from plugins.api.channel import DeliveryUnknown, OutboundMessage, TryLater, Undeliverable
from sessions.events.errors import StorageFailed
from sessions.events.events import (
    CallRef,
    DeliveryAttempted,
    ModelReplied,
    PluginFailed,
    ReplyDelivered,
    ToolReturned,
    TurnEnded,
    TurnStarted,
)
from sessions.events.messages import Attachment
from sessions.store.protocols import Blobs
from tests.stories import received

WORDS = "First sentence. Second sentence. Third sentence."


class Room:
    """A channel whose posts have at most `limit` characters. `outcomes` are raised one after the other; None is none, and
    with `...` an attempt never ends."""

    name = "lines"

    def __init__(self, limit: int = 20, *outcomes: BaseException | EllipsisType | None) -> None:
        self.limit = limit
        self.outcomes = list(outcomes)
        self.tried: list[OutboundMessage] = []
        self.threads: set[str] = set()

    def fits(self, text: str) -> bool:
        self.threads.add(threading.current_thread().name)
        return len(text) <= self.limit

    async def deliver(self, message: OutboundMessage) -> str:
        self.tried.append(message)
        await asyncio.sleep(0)
        if self.outcomes and (outcome := self.outcomes.pop(0)) is not None:
            if not isinstance(outcome, BaseException):
                await asyncio.Event().wait()
            raise cast(BaseException, outcome)
        return f"post {len(self.tried)}"


class NotedRoom(Room):
    """A channel to a service that does not recognise a repeated message."""

    attempts_noted = True


class WholeRoom:
    """A channel that takes each answer whole."""

    name = "lines"

    def __init__(self) -> None:
        self.tried: list[OutboundMessage] = []

    async def deliver(self, message: OutboundMessage) -> str:
        self.tried.append(message)
        return ""


class Files:
    """Blobs whose content is their name; the one called "gone" cannot be read."""

    async def read(self, sha256: str) -> bytes:
        if sha256 == "gone":
            raise FileNotFoundError(sha256)
        return sha256.encode()


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reply_delivery, "PAUSES", (0.01,))
    monkeypatch.setattr(reply_delivery, "CLOSED_SECONDS", 0.01)


class Owing:
    """A session that owes one answer."""

    def __init__(
        self, text: str = WORDS, files: tuple[str, ...] = (), chat: Literal["private", "group"] = "private"
    ) -> None:
        self.stage = Stage(Model())
        message = msgspec.structs.replace(received("hi", "lines:m1"), channel="lines", reply_to="kitchen", chat=chat)
        attachments = tuple(Attachment(sha256=name, media="text/plain", bytes=1, name=name) for name in files)
        for event in (
            message,
            TurnStarted(takes=(2,), provider="p", model="m", window=None, reserve=0),
            ToolReturned(call=CallRef(of=1, index=0), outcome="returned", output="", attachments=attachments),
            ModelReplied(reply=1, model="m", text=text, calls=(), stop="end", usage=None),
            TurnEnded(outcome="replied", millis=1, error=None),
        ):
            self.stage.recorder.append(event, turn=1)
        self.room: Any = None
        self.delivery: Any = None

    def answer_again(self, turn: int) -> int:
        """Append another turn whose answer is owed, and return the seq of the answer."""
        recorder = self.stage.recorder
        message = msgspec.structs.replace(received("hi", f"lines:m{turn}"), channel="lines", reply_to="kitchen")
        of = recorder.append(message, turn=turn)
        recorder.append(TurnStarted(takes=(of,), provider="p", model="m", window=None, reserve=0), turn=turn)
        answer = recorder.append(ModelReplied(reply=1, model="m", text="More.", calls=(), stop="end", usage=None), turn=turn)
        recorder.append(TurnEnded(outcome="replied", millis=1, error=None), turn=turn)
        return answer

    async def deliver_to(self, room: Any) -> None:
        """Begin to deliver, as after a start."""
        await self.stop()
        self.room = room
        self.delivery = ReplyDelivery(lambda _: self.room, self.stage.clock.now, lambda: None, cast(Blobs, Files()))
        self.delivery.opened(self.stage.recorder)

    async def stop(self) -> None:
        if self.delivery is not None:
            await self.delivery.close()

    async def delivered(self, room: Any) -> list[OutboundMessage]:
        """Deliver the answer, and return what the room was passed."""
        await self.deliver_to(room)
        await self.stage.until(lambda: not self.stage.recorder.transcript.owed)
        await self.stop()
        return cast(list[OutboundMessage], room.tried)

    def noted(self) -> list[tuple[str, str, int, int, bool]]:
        return [(each.receipt, each.failed, each.chars, each.files, each.more) for each in self.stage.told(ReplyDelivered)]


async def test_an_answer_that_is_owed_no_more_does_not_end_the_deliveries_to_its_chat() -> None:
    """As a question in a turn that was stopped from another client."""
    owing, room = Owing("One."), WholeRoom()
    await owing.deliver_to(None)
    owed_no_more = owing.answer_again(2)
    recorder = owing.stage.recorder
    recorder.append(ReplyDelivered(of=owed_no_more, channel="lines", receipt=""))
    owing.room = room
    await owing.stage.until(lambda: not recorder.transcript.owed)
    owing.answer_again(3)
    await owing.stage.until(lambda: not recorder.transcript.owed)
    await owing.stage.until(lambda: not owing.delivery._tasks)
    assert [post.text for post in room.tried] == ["One.", "More."]


@pytest.mark.parametrize("error", [StorageFailed("The database does not answer."), RuntimeError("can't start new thread")])
async def test_an_answer_that_cannot_be_read_is_tried_again(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    owing, failures = Owing("One."), [error] * 2
    lines = owing.stage.recorder.log.lines

    async def fail(*arguments: Any, **named: Any) -> Any:
        if failures:
            raise failures.pop()
        return await lines(*arguments, **named)

    monkeypatch.setattr(owing.stage.recorder.log, "lines", fail)
    posts = await owing.delivered(WholeRoom())
    assert ([post.text for post in posts], failures) == (["One."], [])


async def test_a_long_answer_and_its_files_are_posts_that_are_each_recorded() -> None:
    owing = Owing(files=("one", "gone", "two"))
    posts = await owing.delivered(Room())
    assert [(post.text, [file.name for file in post.attachments]) for post in posts] == [
        ("First sentence.", []),
        ("Second sentence.", []),
        ("Third sentence.", []),
        ("", ["one"]),
        ("", ["two"]),
    ]
    assert [(post.part, post.parts, post.again) for post in posts] == [(number, 5, False) for number in range(1, 6)]
    answer = f"{owing.stage.recorder.transcript.session}/5"
    assert [post.id for post in posts] == [answer, f"{answer}/2", f"{answer}/3", f"{answer}/4", f"{answer}/5"]
    assert owing.noted() == [
        ("post 1", "", 16, 0, True),
        ("post 2", "", 33, 0, True),
        ("post 3", "", 48, 0, True),
        ("post 4", "", 48, 1, True),
        ("post 5", "", 48, 3, False),
    ]


async def test_an_answer_that_fits_is_one_post_and_recorded_as_ever() -> None:
    owing = Owing()
    (post,) = await owing.delivered(room := Room(100))
    assert (post.text, post.part, post.parts, owing.noted()) == (WORDS, 1, 1, [("post 1", "", 0, 0, False)])
    assert room.threads == {threading.current_thread().name}


async def test_a_channel_that_does_not_split_gets_each_answer_whole() -> None:
    owing = Owing("word " * 9000, files=("one", "two"))
    (post,) = await owing.delivered(WholeRoom())
    assert (post.text, [file.name for file in post.attachments]) == ("word " * 9000, ["one", "two"])
    assert owing.noted() == [("", "", 0, 0, False)]


async def test_a_long_text_is_split_in_a_thread() -> None:
    posts = await Owing("word. " * 5000).delivered(room := Room(2000))
    assert (len(posts), "".join(post.text for post in posts).count("word.")) == (16, 5000)
    assert threading.current_thread().name not in room.threads


async def test_after_a_restart_delivery_continues_after_the_last_part_that_was_recorded() -> None:
    whole = [(post.id, post.text) for post in await Owing().delivered(Room())]
    owing = Owing()
    stuck = Room(20, None, ...)
    await owing.deliver_to(stuck)
    await owing.stage.until(lambda: len(stuck.tried) >= 2)
    rest = await owing.delivered(Room())
    assert [(post.id, post.text) for post in stuck.tried[:2]] == whole[:2]
    assert [(post.id, post.text) for post in rest] == whole[1:]
    assert [(post.part, post.parts) for post in rest] == [(2, 3), (3, 3)]


async def test_a_channel_that_is_reopened_with_another_limit_gets_what_remains_in_other_parts() -> None:
    owing = Owing()
    await owing.deliver_to(small := Room(20, None, *[TryLater(0.01)] * 99))
    await owing.stage.until(lambda: len(small.tried) == 2)
    owing.room = large = Room(100)
    await owing.stage.until(lambda: bool(large.tried))
    await owing.stop()
    assert [post.text for post in large.tried] == ["Second sentence. Third sentence."]


@pytest.mark.parametrize("error", [DeliveryUnknown("No answer."), TimeoutError(), asyncio.CancelledError()])
async def test_a_part_that_may_have_arrived_is_marked_at_the_next_attempt(error: BaseException) -> None:
    posts = await Owing().delivered(Room(20, error, RuntimeError("No."), None))
    assert [(post.part, post.again) for post in posts] == [(1, False), (1, True), (1, True), (2, False), (3, False)]


async def test_a_part_that_certainly_did_not_arrive_is_not_marked() -> None:
    posts = await Owing().delivered(Room(20, RuntimeError("No."), TryLater(0.01), None))
    assert [(post.part, post.again) for post in posts] == [(1, False)] * 3 + [(2, False), (3, False)]


async def test_an_attempt_is_durable_before_it_begins_and_marks_the_part_after_a_crash() -> None:
    owing = Owing()
    durable = list[bool]()
    owing.stage.log.steps = 50

    class Watched(NotedRoom):
        async def deliver(self, message: OutboundMessage) -> str:
            durable.append(owing.stage.recorder.durable == owing.stage.recorder.head)
            return await super().deliver(message)

    stuck = Watched(20, None, ...)
    await owing.deliver_to(stuck)
    await owing.stage.until(lambda: len(stuck.tried) >= 2)
    await owing.stop()
    rest = await owing.delivered(Watched())
    assert [(post.part, post.again) for post in rest] == [(2, True), (3, False)]
    assert set(durable) == {True}
    attempts = owing.stage.told(DeliveryAttempted)
    assert [(each.chars, each.failed) for each in attempts] == [(0, ""), (16, ""), (33, "")]


async def test_after_a_crash_a_part_that_was_refused_before_is_not_marked() -> None:
    owing = Owing()
    await owing.deliver_to(refusing := NotedRoom(20, TryLater(60, "Wait.")))
    await owing.stage.until(lambda: len(owing.stage.told(DeliveryAttempted)) == 2)
    rest = await owing.delivered(NotedRoom(100))
    assert [post.again for post in (*refusing.tried, *rest)] == [False, False]
    assert [each.failed for each in owing.stage.told(DeliveryAttempted)] == ["", "Wait.", ""]


async def test_a_file_that_cannot_be_delivered_does_not_hold_back_the_others() -> None:
    owing = Owing("Here.", files=("one", "two"))
    posts = await owing.delivered(Room(20, None, Undeliverable("It is too large.")))
    assert [[file.name for file in post.attachments] for post in posts] == [[], ["one"], ["two"]]
    assert owing.noted() == [("post 1", "", 5, 0, True), ("", "It is too large.", 5, 1, True), ("post 3", "", 5, 2, False)]


async def test_a_text_that_cannot_be_delivered_is_dropped_with_what_follows() -> None:
    owing = Owing(files=("one",))
    assert len(await owing.delivered(Room(20, None, Undeliverable("The room is gone.")))) == 2
    assert owing.noted() == [("post 1", "", 16, 0, True), ("", "The room is gone.", 0, 0, False)]


async def test_an_error_of_fits_is_a_failure_of_the_channel() -> None:
    class Broken(Room):
        def fits(self, text: str) -> bool:
            raise RuntimeError("Not like this.")

    owing = Owing()
    await owing.deliver_to(Broken())
    await owing.stage.until(lambda: bool(owing.stage.told(PluginFailed)))
    owing.room = Room(100)
    await owing.stage.until(lambda: not owing.stage.recorder.transcript.owed)
    await owing.stop()
    assert owing.stage.told(PluginFailed)[0].sentence == "RuntimeError: Not like this."


async def test_in_a_group_the_answer_names_the_message_that_it_answers() -> None:
    assert {post.reply_to for post in await Owing(chat="group").delivered(Room())} == {"m1"}
    assert {post.reply_to for post in await Owing().delivered(Room())} == {""}


async def test_early_reactions_to_a_post_are_received_once_it_is_recorded_and_few_are_kept() -> None:
    owing, received_at = Owing(), list[tuple[int, int]]()

    def reaction(number: int) -> Callable[[], Awaitable[None]]:
        async def receive() -> None:
            received_at.append((number, len(owing.noted())))

        return receive

    class Reacted(Room):
        async def deliver(self, message: OutboundMessage) -> str:
            for number in range(MOST_EARLY + 5 if message.part == 2 else 0):
                delivery.keep_reaction("lines", "kitchen", "post 2", reaction(number))
            delivery.keep_reaction("lines", "kitchen", "another", reaction(-1))
            delivery.keep_reaction("lines", "bathroom", "post 3", reaction(-2))
            return await super().deliver(message)

    await owing.deliver_to(Reacted())
    delivery = owing.delivery
    await owing.stage.until(lambda: not owing.stage.recorder.transcript.owed)
    await owing.stage.until(lambda: not delivery.waiting())
    delivery.keep_reaction("lines", "kitchen", "post 3", reaction(-3))  # nothing is under way any more
    await owing.stop()
    assert received_at == [(number, 2) for number in range(6, MOST_EARLY + 5)]
