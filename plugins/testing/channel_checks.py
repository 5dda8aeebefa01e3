"""Conformance checks for channels. Inherit the class in a test module, and set the channel and a fake of its service:

class TestMine(ChannelConformance):
    channel = Mine

    def service(self):
        return my_service()          # an async context manager that yields a `RemoteService`

    def settings(self, service):
        return Settings(port=service.port)

    deleted_chat = "demolished"      # a chat for which the fake refuses every reply
    busy_chat = "crowded"            # a chat for which it asks to wait
    silent_chat = "abyss"            # a chat for which it takes a reply and ends the connection without an answer
    edits = True                     # the service has edited messages, and the fake has `edit`
    buttons = True                   # the service has buttons, and the fake has `press`
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Protocol

from plugins.api.channel import (
    Channel,
    ChannelActivity,
    ChecksConnection,
    Choice,
    DeliveryUnknown,
    InboundMessage,
    MessageRejected,
    OutboundMessage,
    ShowsActivity,
    SplitsReplies,
    TryLater,
    Undeliverable,
)
from plugins.channels.formatting.markdown_pieces import split_markdown
from plugins.host import validation
from plugins.testing.checks import assert_not_blocking, check
from plugins.testing.contexts import make_context

PATIENCE = 5.0
"""Seconds within which a message must arrive, and a cancelled channel must end."""

SENTENCE = "There is *tea* in the `kitchen`, and 2 < 3 & 4 > 1. "
POSTS, LONGEST = 3, 100_000
"""The posts of a long reply that are sent, and the characters up to which one is tried."""

ODD = ("😀 \u202eabc", "two\nlines\tand a tab", "\x00\x1b[31m", "word " * 4000)


class RemoteService(Protocol):
    """The service that a channel connects to, as the tests use it."""

    async def say(self, sender: str, chat: str, text: str) -> None:
        """Send a message to a chat on behalf of somebody."""
        ...

    async def edit(self, sender: str, chat: str, text: str) -> None:
        """Replace the text of somebody's last message in a chat. Called only if `edits` is True."""
        ...

    async def press(self, sender: str, chat: str, label: str) -> None:
        """Press a button of the last reply in a chat on behalf of somebody. Called only if `buttons` is True."""
        ...

    async def hear(self) -> tuple[str, str]:
        """Wait for the next reply that the channel sends, and return its chat and text."""
        ...


class RecordingInbox:
    """A `ChannelInbox` that puts messages into `arrived`, and what is reported into `reported`. If `refused` is set, it
    rejects the next message with it, and keeps that in `rejected`."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[InboundMessage] = asyncio.Queue()
        self.reported: asyncio.Queue[str] = asyncio.Queue()
        self.refused: MessageRejected | None = None
        self.rejected: list[InboundMessage] = []
        self.unknown: set[str] = set()
        self._ids: set[str] = set()

    async def receive(self, arrival: InboundMessage) -> bool:
        """Record the message."""
        await asyncio.sleep(0)
        if (refused := self.refused) is not None:
            self.refused = None
            self.rejected.append(arrival)
            raise refused
        new = arrival.id not in self._ids
        self._ids.add(arrival.id)
        self.arrived.put_nowait(arrival)
        return new

    async def knows(self, sender: str, *, mentioned: bool = True) -> bool:
        """Return True unless the sender is one of `unknown`, or the message addresses somebody else."""
        return mentioned and sender not in self.unknown

    def report(self, problem: str = "") -> None:
        """Record the report."""
        self.reported.put_nowait(problem)

    def bounced(self, chat: str, reason: str) -> None:
        """Record the report as a sentence."""
        self.reported.put_nowait(f"{chat}: {reason}")


class Opened(NamedTuple):
    """A running channel, between the service and the inbox."""

    channel: Channel
    service: RemoteService
    inbox: RecordingInbox
    running: asyncio.Task[None]

    async def arrival(self) -> InboundMessage:
        """Return the next message that arrives."""
        waiting = asyncio.create_task(self.inbox.arrived.get())
        await asyncio.wait([waiting, self.running], timeout=PATIENCE, return_when=asyncio.FIRST_COMPLETED)
        if not waiting.done():
            waiting.cancel()
            ended = f"run ended ({self.running.exception()!r})" if self.running.done() else f"nothing came in {PATIENCE:g} s"
            raise AssertionError(f"The message did not arrive: {ended}.")
        return waiting.result()

    async def refusal(self) -> InboundMessage:
        """Return the last message that the inbox has rejected, once it has."""
        for _ in range(round(PATIENCE / 0.01)):
            if self.inbox.refused is None:
                return self.inbox.rejected[-1]
            await asyncio.sleep(0.01)
        raise AssertionError(f"The message did not arrive in {PATIENCE:g} s.")

    async def answered(self) -> tuple[str, str]:
        """Return the next reply that reaches the service."""
        try:
            async with asyncio.timeout(PATIENCE):
                return await self.service.hear()
        except TimeoutError as error:
            raise AssertionError(f"The reply did not reach the service within {PATIENCE:g} seconds.") from error


class ChannelConformance:
    """Checks for a channel."""

    channel: ClassVar[type[Channel]]

    deleted_chat: ClassVar[str] = ""
    """A chat of the fake that rejects every reply for good, such as a deleted one; "" if there is none."""

    busy_chat: ClassVar[str] = ""
    """A chat of the fake that asks to wait before the next reply; "" if there is none."""

    silent_chat: ClassVar[str] = ""
    """A chat of the fake for which it takes a reply and ends the connection without an answer; "" if there is none."""

    edits: ClassVar[bool] = False
    """Messages can be edited on the service, and the fake has `edit`."""

    buttons: ClassVar[bool] = False
    """The service has buttons, and the fake has `press`."""

    def known_as(self, name: str) -> str:
        """Return the service's own id of the person or chat that the checks call `name`; by default the name itself.

        `say`, `edit` and `press` are called with the names; messages, and what `hear` returns, have the ids.
        """
        return name

    def service(self) -> AbstractAsyncContextManager[Any]:
        """Return a context manager that runs a fake of the service and yields a `RemoteService`."""
        raise NotImplementedError("Define service(), a fake of the service.")

    def settings(self, service: Any) -> Any:
        """Return the channel's settings for the fake; None if it has none."""
        return None

    @asynccontextmanager
    async def opened(self, folder: Path) -> AsyncIterator[Opened]:
        """Run the channel."""
        async with (
            self.service() as service,
            make_context(folder, self.settings(service)) as context,
            self.channel(context) as channel,
        ):
            inbox = RecordingInbox()
            running = asyncio.create_task(channel.run(inbox))
            try:
                yield Opened(channel, service, inbox, running)
            finally:
                running.cancel()
                await asyncio.wait([running], timeout=PATIENCE)
                assert running.done(), "run did not end after it was cancelled."

    @check
    async def test_its_class_is_valid(self) -> None:
        """Fix what the message names: the class needs a `name` of lower-case letters, digits and _, and the async
        methods `run` and `deliver`."""
        assert validation.channel(self.channel) == self.channel.name

    @check
    async def test_it_can_be_reopened(self, tmp_path: Path) -> None:
        """Close in `__aexit__` what `__aenter__` opens, even if `run` was never called: the gateway reopens a channel
        after a failure."""
        for _ in range(2):
            async with (
                self.service() as service,
                make_context(tmp_path, self.settings(service)) as context,
                self.channel(context),
            ):
                await asyncio.sleep(0)

    @check
    async def test_messages_arrive_with_sender_and_chat(self, tmp_path: Path) -> None:
        """Pass each message to `inbox.receive` as an `InboundMessage`, with the service's own names for the sender and
        the chat."""
        async with self.opened(tmp_path) as on:
            await on.service.say("ana", "kitchen", "Is there tea? 😀")
            arrival = await on.arrival()
            assert (arrival.sender, arrival.chat) == (self.known_as("ana"), self.known_as("kitchen"))
            assert arrival.text == "Is there tea? 😀"

    @check
    async def test_each_message_has_its_own_id(self, tmp_path: Path) -> None:
        """`InboundMessage.id` identifies duplicates: use the service's id. Two messages with the same text are two
        messages."""
        async with self.opened(tmp_path) as on:
            for _ in range(3):
                await on.service.say("ana", "kitchen", "hello")
            ids = [(await on.arrival()).id for _ in range(3)]
            assert all(ids), "An id is empty."
            assert len(set(ids)) == 3, f"Three messages have the ids {ids}."

    @check
    async def test_an_edited_message_has_its_own_id(self, tmp_path: Path) -> None:
        """Pass an edited message on with an id of its own, such as the message's id and the time of the edit: with the first
        id the gateway would reject it. Unless `edits` is True nothing is checked."""
        if self.edits:
            async with self.opened(tmp_path) as on:
                await on.service.say("ana", "kitchen", "Is there tee?")
                first = await on.arrival()
                for text in ("Is there tea?", "Is there tea or coffee?"):
                    await on.service.edit("ana", "kitchen", text)
                    edited = await on.arrival()
                    assert (edited.sender, edited.chat) == (self.known_as("ana"), self.known_as("kitchen"))
                    assert edited.text == text
                    assert edited.id != first.id, f"The edited message has the id {first.id!r} of the version before."
                    first = edited

    @check
    async def test_a_selected_choice_comes_back(self, tmp_path: Path) -> None:
        """Offer `message.choices` as buttons, and pass a press to `inbox.receive` as a message with the choice's id as
        `choice`, an id of its own, and the sender and chat of the press. Unless `buttons` is True nothing is checked."""
        if self.buttons:
            choices = (Choice(id="/approve k3f9 once", label="Approve once"), Choice(id="/deny k3f9", label="Deny"))
            kitchen = self.known_as("kitchen")
            async with self.opened(tmp_path) as on:
                await on.channel.deliver(OutboundMessage(id="one", chat=kitchen, text="Tea?", choices=choices))
                ids = set()
                for sender, choice in (("ana", choices[1]), ("ben", choices[0])):
                    await on.service.press(sender, "kitchen", choice.label)
                    pressed = await on.arrival()
                    assert (pressed.sender, pressed.chat, pressed.choice) == (self.known_as(sender), kitchen, choice.id)
                    ids.add(pressed.id)
                assert len(ids) == 2, f"Two presses have the same id {ids}."

    @check
    async def test_a_rejected_message_does_not_stop_it(self, tmp_path: Path) -> None:
        """`inbox.receive` raises MessageRejected for unknown senders, and while the gateway is busy: catch it, tell the
        sender or try later as it says, and continue to listen."""
        async with self.opened(tmp_path) as on:
            on.inbox.refused = MessageRejected("Nobody knows you.")
            await on.service.say("eve", "street", "let me in")
            await on.refusal()
            await on.service.say("ana", "kitchen", "hello")
            while (arrival := await on.arrival()).text != "hello":
                pass
            assert arrival.sender == self.known_as("ana")

    @check
    async def test_replies_go_to_their_chat(self, tmp_path: Path) -> None:
        """Send `message.text` to `message.chat`, and return the service's id for it, or ""."""
        async with self.opened(tmp_path) as on:
            for name, text in (("kitchen", "There is tea."), ("garden", "There are crocuses.")):
                chat = self.known_as(name)
                receipt = await on.channel.deliver(OutboundMessage(id=f"id-{chat}", chat=chat, text=text))
                assert isinstance(receipt, str), f"deliver returned {receipt!r}, and not text."
                assert await on.answered() == (chat, text)

    @check
    async def test_concurrent_replies_are_not_mixed_up(self, tmp_path: Path) -> None:
        """One instance serves all chats at the same time: keep nothing about a reply on `self`."""
        async with self.opened(tmp_path) as on:
            wanted = {(self.known_as(chat), f"for {chat}") for chat in ("kitchen", "garden", "attic")}
            await asyncio.gather(
                *(on.channel.deliver(OutboundMessage(id=f"id-{chat}", chat=chat, text=text)) for chat, text in wanted)
            )
            assert {await on.answered() for _ in wanted} == wanted

    @check
    async def test_unusual_replies_are_sent_or_refused(self, tmp_path: Path) -> None:
        """Models write anything. Shorten or split what the service does not accept, or raise Undeliverable: after any
        other error the gateway retries. The next reply must be delivered."""
        kitchen = self.known_as("kitchen")
        async with self.opened(tmp_path) as on:
            for number, text in enumerate(ODD):
                delivering = asyncio.create_task(
                    on.channel.deliver(OutboundMessage(id=f"odd-{number}", chat=kitchen, text=text))
                )
                await asyncio.wait([delivering], timeout=PATIENCE)
                assert delivering.done(), f"deliver was not done with {text[:20]!r} in {PATIENCE:g} seconds."
                if (failed := delivering.exception()) is not None:
                    assert str(failed), f"deliver raised {type(failed).__name__} without a message."
            await on.channel.deliver(OutboundMessage(id="last", chat=kitchen, text="There is tea."))
            while await on.answered() != (kitchen, "There is tea."):
                pass

    @check
    async def test_a_deleted_chat_is_undeliverable(self, tmp_path: Path) -> None:
        """Raise Undeliverable, with a sentence for the operator, if the service will never accept a reply: after any
        other error it is retried, and the next replies of its chat wait. `deleted_chat` names such a chat of the
        fake; without one nothing is checked."""
        if self.deleted_chat:
            error = await self._refusal(tmp_path, self.deleted_chat)
            assert isinstance(error, Undeliverable), f"deliver raised {error!r}, and not Undeliverable."
            assert str(error), "Undeliverable has no message."

    @check
    async def test_a_busy_service_is_retried_later(self, tmp_path: Path) -> None:
        """Raise TryLater with the seconds that the service asks for: after any other error the gateway chooses the
        delay. `busy_chat` names such a chat of the fake; without one nothing is checked."""
        if self.busy_chat:
            error = await self._refusal(tmp_path, self.busy_chat)
            assert isinstance(error, TryLater), f"deliver raised {error!r}, and not TryLater."
            assert 0 < error.after < float("inf"), (
                f"TryLater has after={error.after!r}, which is not a positive number of seconds."
            )

    @check
    async def test_a_reply_without_an_answer_is_unknown(self, tmp_path: Path) -> None:
        """Raise DeliveryUnknown if a reply was sent and no answer came: the service may have accepted it. `silent_chat`
        names such a chat of the fake; without one nothing is checked."""
        if self.silent_chat:
            error = await self._refusal(tmp_path, self.silent_chat)
            assert isinstance(error, DeliveryUnknown), f"deliver raised {error!r}, and not DeliveryUnknown."

    @check
    async def test_what_fits_is_one_post(self, tmp_path: Path) -> None:
        """`fits` must return True only for texts that `deliver` can send as one post, and the same for the same text.
        Without it nothing is checked."""
        async with self.opened(tmp_path) as on:
            if not isinstance(on.channel, SplitsReplies):
                return
            assert on.channel.fits("There is tea."), "Not even a short text fits."
            text, pieces = SENTENCE, await asyncio.to_thread(split_markdown, SENTENCE, on.channel.fits)
            while len(pieces) < POSTS and len(text) < LONGEST:
                text += text
                pieces = await asyncio.to_thread(split_markdown, text, on.channel.fits)
            again = await asyncio.to_thread(split_markdown, text, on.channel.fits)
            assert again == pieces, "fits answers differently for the same text."
            for part, piece in enumerate(pieces[:POSTS], 1):
                message = OutboundMessage(
                    id=f"long/{part}", chat=self.known_as("kitchen"), text=piece.text, part=part, parts=POSTS
                )
                delivering = asyncio.create_task(on.channel.deliver(message))
                await asyncio.wait([delivering], timeout=PATIENCE)
                assert delivering.done(), f"deliver was not done with part {part} in {PATIENCE:g} seconds."
                assert delivering.exception() is None, (
                    f"{len(piece.text)} characters fit, and deliver raised {delivering.exception()!r}."
                )

    @check
    async def test_activity_is_shown_and_is_no_post(self, tmp_path: Path) -> None:
        """`show_activity` must return within its interval, and leave nothing behind that looks like a reply. Without it
        nothing is checked."""
        async with self.opened(tmp_path) as on:
            if isinstance(on.channel, ShowsActivity):
                for text in ("", "There is", "There is **tea**."):
                    async with asyncio.timeout(PATIENCE):
                        await on.channel.show_activity(ChannelActivity(chat=self.known_as("kitchen"), text=text))
                await on.channel.deliver(OutboundMessage(id="one", chat=self.known_as("kitchen"), text="There is tea."))
                assert await on.answered() == (self.known_as("kitchen"), "There is tea.")

    @check
    async def test_its_connection_is_described_in_a_sentence(self, tmp_path: Path) -> None:
        """`check` must return a sentence, and leave the messages that arrive to `run`. Without it nothing is checked."""
        async with self.opened(tmp_path) as on:
            if isinstance(on.channel, ChecksConnection):
                await on.service.say("ana", "kitchen", "hello")
                async with asyncio.timeout(PATIENCE):
                    told = await on.channel.check()
                assert told.endswith("."), f"check returned {told!r}, which is no sentence."
                assert (await on.arrival()).text == "hello"

    async def _refusal(self, folder: Path, chat: str) -> BaseException | None:
        """Deliver a reply to a chat that rejects it, and return the exception."""
        async with self.opened(folder) as on:
            delivering = asyncio.create_task(
                on.channel.deliver(OutboundMessage(id="one", chat=self.known_as(chat), text="There is tea."))
            )
            await asyncio.wait([delivering], timeout=PATIENCE)
            assert delivering.done(), f"deliver was not done in {PATIENCE:g} seconds."
            return delivering.exception()

    @check
    async def test_it_does_not_block_the_event_loop(self, tmp_path: Path) -> None:
        """Do not block the event loop: no `time.sleep`, no `requests`, no blocking socket. Run blocking libraries in
        `await asyncio.to_thread(...)`."""

        async def both_ways() -> None:
            async with self.opened(tmp_path) as on:
                await on.service.say("ana", "kitchen", "hello")
                await on.arrival()
                await on.channel.deliver(OutboundMessage(id="one", chat=self.known_as("kitchen"), text="There is tea."))

        await assert_not_blocking(both_ways)
