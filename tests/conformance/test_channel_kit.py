"""The kit for channels: a sound one passes, and a channel that is broken in one way fails the check for it."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, Self

import msgspec
import pytest

from exuvia import (
    ChannelActivity,
    ChannelConformance,
    ChannelInbox,
    DeliveryUnknown,
    InboundMessage,
    MessageRejected,
    OutboundMessage,
    PluginContext,
    TryLater,
    Undeliverable,
)
from plugins.testing import channel_checks as kit
from tests.conformance.biting import bites, checks_of


class Settings(msgspec.Struct, frozen=True):
    """The port of the service."""

    port: int = 0


class Lines:
    """A channel in which nothing is wrong: lines of JSON over a socket."""

    name: ClassVar[str] = "lines"

    def __init__(self, context: PluginContext) -> None:
        self._port = context.settings.port

    async def __aenter__(self) -> Self:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def run(self, desk: ChannelInbox) -> None:
        while line := await self._reader.readline():
            try:
                await desk.receive(self.arrival(json.loads(line)))
            except MessageRejected as error:
                self.tell({"why": str(error)})

    def arrival(self, said: Any) -> InboundMessage:
        return InboundMessage(
            id=said["id"], sender=said["from"], chat=said["room"], text=said["text"], choice=said["pressed"]
        )

    def fits(self, text: str) -> bool:
        return len(text) <= 500

    async def show_activity(self, activity: ChannelActivity) -> None:
        self.tell({"typing": activity.chat})

    async def check(self) -> str:
        return "Logged in as lines."

    async def deliver(self, delivery: OutboundMessage) -> str:
        if delivery.chat == "demolished":
            raise Undeliverable("There is no such room.")
        if delivery.chat == "crowded":
            raise TryLater(after=30)
        if delivery.chat == "abyss":
            raise DeliveryUnknown("Nobody answered.")
        if len(delivery.text) > 500 and delivery.parts > 1:
            raise Undeliverable("It is too long.")
        buttons = {choice.label: choice.id for choice in delivery.choices}
        self.tell({"room": delivery.chat, "text": delivery.text, "buttons": buttons})
        await self._writer.drain()
        return f"seen {delivery.id}"

    def tell(self, value: Any) -> None:
        self._writer.write(json.dumps(value).encode() + b"\n")


class Service:
    """A service that exchanges lines over one connection at a time."""

    def __init__(self) -> None:
        self.port = 0
        self.heard: asyncio.Queue[tuple[str, str]] = asyncio.Queue()
        self._number = self._edits = 0
        self._buttons: dict[str, str] = {}
        self._connected: asyncio.Future[asyncio.StreamWriter] = asyncio.get_running_loop().create_future()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Service]:
        server = await asyncio.start_server(self._listen, "127.0.0.1", 0, limit=1024 * 1024)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            if self._connected.done():
                self._connected.result().close()
            await asyncio.sleep(0.02)  # the stream's own task ends

    async def say(self, sender: str, chat: str, text: str, pressed: str = "") -> None:
        self._number += 1
        await self._send(id=str(self._number), sender=sender, room=chat, text=text, pressed=pressed)

    async def edit(self, sender: str, chat: str, text: str) -> None:
        self._edits += 1
        await self._send(id=f"{self._number}.{self._edits}", sender=sender, room=chat, text=text, pressed="")

    async def press(self, sender: str, chat: str, label: str) -> None:
        if not self._buttons:
            await self.hear()
        await self.say(sender, chat, "", self._buttons[label])

    async def _send(self, *, sender: str, **fields: str) -> None:
        writer = await self._connected
        writer.write(json.dumps({"from": sender, **fields}).encode() + b"\n")

    async def hear(self) -> tuple[str, str]:
        return await self.heard.get()

    async def _listen(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connected.set_result(writer)
        while line := await reader.readline():
            told = json.loads(line)
            if "room" in told:
                self._buttons = told["buttons"]
                self.heard.put_nowait((told["room"], told["text"]))
        writer.close()


class Case(ChannelConformance):
    """Not collected: its name does not begin with Test."""

    deleted_chat = "demolished"
    busy_chat = "crowded"
    silent_chat = "abyss"
    edits = buttons = True

    def service(self) -> Any:
        return Service().serving()

    def settings(self, service: Any) -> Settings:
        return Settings(port=service.port)


class TestLines(Case):
    channel = Lines


class TestLinesWithoutMore(TestLines):
    deleted_chat = ""
    busy_chat = ""
    silent_chat = ""
    edits = buttons = False


class Misnamed(Lines):
    name: ClassVar[str] = "Lines of JSON"


class Leaking(Lines):
    async def __aenter__(self) -> Self:
        self.beating = asyncio.create_task(asyncio.sleep(60), name="heartbeat")
        return await super().__aenter__()


class Anonymous(Lines):
    def arrival(self, said: Any) -> InboundMessage:
        return msgspec.structs.replace(super().arrival(said), sender="somebody")


class Numberless(Lines):
    def arrival(self, said: Any) -> InboundMessage:
        return msgspec.structs.replace(super().arrival(said), id=f"{said['from']}-{said['text']}")


class Editing(Lines):
    def arrival(self, said: Any) -> InboundMessage:
        return msgspec.structs.replace(super().arrival(said), id=said["id"].partition(".")[0])


class Unpressed(Lines):
    def arrival(self, said: Any) -> InboundMessage:
        return msgspec.structs.replace(super().arrival(said), text=said["pressed"] or said["text"], choice="")


class Offended(Lines):
    async def run(self, desk: ChannelInbox) -> None:
        while line := await self._reader.readline():
            await desk.receive(self.arrival(json.loads(line)))


class Shouting(Lines):
    async def deliver(self, delivery: OutboundMessage) -> str:
        return await super().deliver(msgspec.structs.replace(delivery, chat="everybody"))


class Mixing(Lines):
    async def deliver(self, delivery: OutboundMessage) -> str:
        self.now = delivery
        await asyncio.sleep(0.01)
        return await super().deliver(self.now)


class Fragile(Lines):
    async def deliver(self, delivery: OutboundMessage) -> str:
        if not delivery.text.isprintable():
            self._writer.close()
        return await super().deliver(delivery)


class Sleepy(Lines):
    async def deliver(self, delivery: OutboundMessage) -> str:
        time.sleep(0.6)  # noqa: ASYNC251 - what is wrong with it
        return await super().deliver(delivery)


class Hopeful(Lines):
    async def deliver(self, delivery: OutboundMessage) -> str:
        if delivery.chat == "demolished":
            raise ConnectionError("404")
        return await super().deliver(delivery)


class Hasty(Lines):
    async def deliver(self, delivery: OutboundMessage) -> str:
        if delivery.chat == "crowded":
            raise TryLater(after=0)
        return await super().deliver(delivery)


class Certain(Lines):
    async def deliver(self, delivery: OutboundMessage) -> str:
        if delivery.chat == "abyss":
            raise ConnectionResetError
        return await super().deliver(delivery)


class Ample(Lines):
    def fits(self, text: str) -> bool:
        return len(text) <= 1000


class Drafting(Lines):
    async def show_activity(self, activity: ChannelActivity) -> None:
        self.tell({"room": activity.chat, "text": activity.text, "buttons": {}})


class Curt(Lines):
    async def check(self) -> str:
        return "ok"


BROKEN: dict[str, type[Lines]] = {
    "test_its_class_is_valid": Misnamed,
    "test_it_can_be_reopened": Leaking,
    "test_messages_arrive_with_sender_and_chat": Anonymous,
    "test_each_message_has_its_own_id": Numberless,
    "test_an_edited_message_has_its_own_id": Editing,
    "test_a_selected_choice_comes_back": Unpressed,
    "test_a_rejected_message_does_not_stop_it": Offended,
    "test_replies_go_to_their_chat": Shouting,
    "test_concurrent_replies_are_not_mixed_up": Mixing,
    "test_unusual_replies_are_sent_or_refused": Fragile,
    "test_a_deleted_chat_is_undeliverable": Hopeful,
    "test_a_busy_service_is_retried_later": Hasty,
    "test_a_reply_without_an_answer_is_unknown": Certain,
    "test_what_fits_is_one_post": Ample,
    "test_activity_is_shown_and_is_no_post": Drafting,
    "test_its_connection_is_described_in_a_sentence": Curt,
    "test_it_does_not_block_the_event_loop": Sleepy,
}


def test_every_check_has_a_channel_that_fails_it() -> None:
    assert set(BROKEN) == checks_of(ChannelConformance)


@pytest.mark.parametrize("check", BROKEN)
def test_a_broken_channel_fails_the_check_for_it_and_a_correct_one_does_not(
    check: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hurry = partial(monkeypatch.setattr, kit, "PATIENCE", 1.0)
    bites(Case, check, {"channel": Lines}, {"channel": BROKEN[check]}, tmp_path, hurry=hurry)
