"""What every channel does. Inherit the class in a module of tests, and say which channel is meant, with a fake of the
service that it speaks to:

    class TestMine(ChannelConformance):
        channel = Mine

        def elsewhere(self):
            return my_service()          # an async context manager; what it yields has `say` and `hear`

        def settings(self, elsewhere):
            return Settings(port=elsewhere.port)

        gone = "demolished"          # a chat for which the fake refuses every answer
        busy = "crowded"             # a chat for which it asks to wait

Each test is a method that pytest finds.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from plugins.api.channel import Channel, InboundMessage, MessageRejected, OutboundMessage, TryLater, Undeliverable
from plugins.host import validation
from plugins.testing.checks import assert_not_blocking, check
from plugins.testing.contexts import make_context

PATIENCE = 5.0
"""Seconds within which what is said must have come through, and a channel that is stopped must have ended."""

ODD = ("😀 \u202eabc", "two\nlines\tand a tab", "\x00\x1b[31m", "word " * 4000)


class RemoteService(Protocol):
    """The service that a channel speaks to, as a test has it."""

    async def say(self, sender: str, chat: str, text: str) -> None:
        """Somebody writes something in a chat."""
        ...

    async def hear(self) -> tuple[str, str]:
        """Wait for the next answer that the channel sends: the chat and the text."""
        ...


class RecordingInbox:
    """A `Desk`: what comes in stands in `arrived`, unless it is `refused` for the next message."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[InboundMessage] = asyncio.Queue()
        self.refused: MessageRejected | None = None
        self._ids: set[str] = set()

    async def receive(self, arrival: InboundMessage) -> bool:
        """Take it."""
        await asyncio.sleep(0)
        if (refused := self.refused) is not None:
            self.refused = None
            raise refused
        new = arrival.id not in self._ids
        self._ids.add(arrival.id)
        self.arrived.put_nowait(arrival)
        return new


class Opened(NamedTuple):
    """A channel that runs, with the service and the desk on its two sides."""

    channel: Channel
    elsewhere: RemoteService
    desk: RecordingInbox
    running: asyncio.Task[None]

    async def arrival(self) -> InboundMessage:
        """The next message that comes in."""
        waiting = asyncio.create_task(self.desk.arrived.get())
        await asyncio.wait([waiting, self.running], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            ended = f"run ended ({self.running.exception()!r})" if self.running.done() else f"nothing came in {PATIENCE:g} s"
            raise AssertionError(f"What was said did not arrive: {ended}.")
        return waiting.result()

    async def refusal(self) -> None:
        """Wait until the desk has refused what it was to refuse."""
        for _ in range(round(PATIENCE / 0.01)):
            if self.desk.refused is None:
                return
            await asyncio.sleep(0.01)
        raise AssertionError(f"What was said did not arrive in {PATIENCE:g} s.")

    async def answered(self) -> tuple[str, str]:
        """The next answer that the service is sent."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self.elsewhere.hear()
        except TimeoutError as error:
            raise AssertionError(f"The answer did not come to the service within {PATIENCE:g} seconds.") from error


class ChannelConformance:
    """See the module."""

    channel: ClassVar[type[Channel]]

    gone: ClassVar[str] = ""
    """A chat at the fake that takes no answer and never will, such as one that was deleted; empty if there is none."""

    busy: ClassVar[str] = ""
    """A chat at the fake that asks to wait before the next answer; empty if there is none."""

    def elsewhere(self) -> AbstractAsyncContextManager[Any]:
        """A fake of the service; what it yields is an `RemoteService`."""
        raise NotImplementedError("elsewhere() says what the channel speaks to")

    def settings(self, elsewhere: Any) -> Any:
        """What the configuration says when the service is there; None for a channel that has no settings."""
        return None

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[Opened]:
        """The channel, running."""
        async with (
            self.elsewhere() as elsewhere,
            make_context(folder, self.settings(elsewhere)) as context,
            self.channel(context) as channel,
        ):
            desk = RecordingInbox()
            running = asyncio.create_task(channel.run(desk))
            try:
                yield Opened(channel, elsewhere, desk, running)
            finally:
                running.cancel()
                await asyncio.wait([running], timeout=PATIENCE)
                assert running.done(), "run has not ended, although it was cancelled."

    @check
    async def test_its_class_is_valid(self) -> None:
        """Fix what the message names: the class needs a `name` of lower-case letters, digits and _, and `run` and
        `deliver`, which are async."""
        assert validation.channel(self.channel) == self.channel.name

    @check
    async def test_it_is_closed_as_it_was_opened(self, tmp_path: Path) -> None:
        """What `__aenter__` opens, `__aexit__` closes, also where `run` was never called: the gateway opens a channel anew
        after a while whenever it fails."""
        for _ in range(2):
            async with (
                self.elsewhere() as elsewhere,
                make_context(tmp_path, self.settings(elsewhere)) as context,
                self.channel(context),
            ):
                await asyncio.sleep(0)

    @check
    async def test_what_is_said_arrives_with_who_said_it_and_where(self, tmp_path: Path) -> None:
        """Hand each message to `desk.receive` as an `InboundMessage`, with the service's own names for the sender and the
        chat."""
        async with self.opened(tmp_path) as on:
            await on.elsewhere.say("ana", "kitchen", "Is there tea? 😀")
            arrival = await on.arrival()
            assert (arrival.sender, arrival.chat, arrival.text) == ("ana", "kitchen", "Is there tea? 😀")

    @check
    async def test_each_message_has_an_id_of_its_own(self, tmp_path: Path) -> None:
        """`InboundMessage.id` is how a message that comes a second time is known: use the service's own. Two messages with
        the same words are two."""
        async with self.opened(tmp_path) as on:
            for _ in range(3):
                await on.elsewhere.say("ana", "kitchen", "hello")
            ids = [(await on.arrival()).id for _ in range(3)]
            assert all(ids), "An id is empty."
            assert len(set(ids)) == 3, f"Three messages have the ids {ids}."

    @check
    async def test_a_message_that_is_not_taken_ends_nothing(self, tmp_path: Path) -> None:
        """`desk.receive` raises NotTaken for senders that nobody knows, and while the gateway is busy: catch it, tell the
        sender or try later as it says, and go on listening."""
        async with self.opened(tmp_path) as on:
            on.desk.refused = MessageRejected("Nobody knows you.")
            await on.elsewhere.say("eve", "street", "let me in")
            await on.refusal()
            await on.elsewhere.say("ana", "kitchen", "hello")
            while (arrival := await on.arrival()).text != "hello":
                pass
            assert arrival.sender == "ana"

    @check
    async def test_an_answer_goes_to_the_chat_that_it_is_for(self, tmp_path: Path) -> None:
        """Send `delivery.text` to `delivery.chat`, and return what the service calls it, or ""."""
        async with self.opened(tmp_path) as on:
            for chat, text in (("kitchen", "There is tea."), ("garden", "There are crocuses.")):
                receipt = await on.channel.deliver(OutboundMessage(id=f"id-{chat}", chat=chat, text=text))
                assert isinstance(receipt, str), f"deliver returned {receipt!r}, and not text."
                assert await on.answered() == (chat, text)

    @check
    async def test_answers_of_two_chats_at_once_are_not_mixed_up(self, tmp_path: Path) -> None:
        """One instance serves all chats at the same time: keep nothing of an answer on `self`."""
        async with self.opened(tmp_path) as on:
            wanted = {(chat, f"for {chat}") for chat in ("kitchen", "garden", "attic")}
            await asyncio.gather(
                *(on.channel.deliver(OutboundMessage(id=f"id-{chat}", chat=chat, text=text)) for chat, text in wanted)
            )
            assert {await on.answered() for _ in wanted} == wanted

    @check
    async def test_odd_answers_are_sent_or_refused(self, tmp_path: Path) -> None:
        """Models write everything. What the service cannot take, shorten or split, or raise Undeliverable: after any other
        error the gateway tries again. The next answer must go through."""
        async with self.opened(tmp_path) as on:
            for number, text in enumerate(ODD):
                delivering = asyncio.create_task(
                    on.channel.deliver(OutboundMessage(id=f"odd-{number}", chat="kitchen", text=text))
                )
                await asyncio.wait([delivering], timeout=PATIENCE)
                assert delivering.done(), f"deliver was not done with {text[:20]!r} in {PATIENCE:g} seconds."
                if (failed := delivering.exception()) is not None:
                    assert str(failed), f"deliver raised {type(failed).__name__} without a word."
            await on.channel.deliver(OutboundMessage(id="last", chat="kitchen", text="There is tea."))
            while await on.answered() != ("kitchen", "There is tea."):
                pass

    @check
    async def test_an_answer_for_a_chat_that_is_gone_is_undeliverable(self, tmp_path: Path) -> None:
        """Raise Undeliverable, with a sentence for the operator, where the service will never take an answer: after any
        other error it is tried again, and the next answers of its chat wait. `gone` names such a chat at the fake; without
        one nothing is checked."""
        if self.gone:
            error = await self._refusal(tmp_path, self.gone)
            assert isinstance(error, Undeliverable), f"deliver raised {error!r}, and not Undeliverable."
            assert str(error), "Undeliverable says nothing."

    @check
    async def test_a_service_that_asks_to_wait_is_tried_later(self, tmp_path: Path) -> None:
        """Raise TryLater with the seconds that the service asks for: after any other error the gateway tries again by its
        own pauses. `busy` names a chat at the fake for which it does; without one nothing is checked."""
        if self.busy:
            error = await self._refusal(tmp_path, self.busy)
            assert isinstance(error, TryLater), f"deliver raised {error!r}, and not TryLater."
            assert 0 < error.after < float("inf"), f"TryLater has after={error.after!r}, which is no time to wait."

    async def _refusal(self, folder: Path, chat: str) -> BaseException | None:
        """Deliver an answer to a chat that does not take it; returns what that raised."""
        async with self.opened(folder) as on:
            delivering = asyncio.create_task(on.channel.deliver(OutboundMessage(id="one", chat=chat, text="There is tea.")))
            await asyncio.wait([delivering], timeout=PATIENCE)
            assert delivering.done(), f"deliver was not done in {PATIENCE:g} seconds."
            return delivering.exception()

    @check
    async def test_it_does_not_block_the_event_loop(self, tmp_path: Path) -> None:
        """Do not block the event loop: no `time.sleep`, no `requests`, no blocking socket. What knows nothing of asyncio
        runs in `await asyncio.to_thread(...)`."""

        async def both_ways() -> None:
            async with self.opened(tmp_path) as on:
                await on.elsewhere.say("ana", "kitchen", "hello")
                await on.arrival()
                await on.channel.deliver(OutboundMessage(id="one", chat="kitchen", text="There is tea."))

        await assert_not_blocking(both_ways)
