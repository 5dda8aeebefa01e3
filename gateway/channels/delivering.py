"""Answers on their way to the channels: each is delivered at least once, in the order of its chat, and that stands in the
session's log then. What a stop or a failure left undelivered goes on when the session is opened again.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from contextlib import suppress

import structlog

from plugins.channel import Channel, Delivery
from plugins.strangers import ANYTHING, words_of
from sessions.deliveries import Address, Owed
from sessions.errors import SessionsError
from sessions.events import CommandAnswered, Event, Foreign, ModelReplied, PluginFailed, Recorded, ReplyDelivered, TurnEnded
from sessions.recorder import Recorder
from sessions.wire import carriable, decode

SECONDS = 60.0
"""How long one attempt may take."""

PAUSES = (1.0, 5.0, 30.0, 120.0)
"""Seconds between the attempts; the last for all later ones."""

GIVEN_UP = 86_400.0
"""Seconds after which an answer that nobody took is given up."""

RECEIPT = 300
"""Characters of a receipt that are kept."""

log = structlog.get_logger("exuvia.channels")


class Delivering:
    """Delivers for all sessions. `channel` has an open channel by its name, None while it is not."""

    def __init__(self, channel: Callable[[str], Channel | None]) -> None:
        self._channel = channel
        self._recorders: dict[str, Recorder] = {}
        self._under_way: set[tuple[str, int]] = set()
        self._waiting: dict[Address, deque[tuple[str, Owed]]] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def opened(self, recorder: Recorder) -> None:
        """A session was opened: deliver what it owes, and later what it comes to owe."""
        recorder.read_along(lambda recorded: self._heard(recorder, recorded))
        if recorder.transcript.owed:
            self._take_up(recorder)

    async def close(self) -> None:
        """Stop; what is on its way is delivered after the next start."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)

    def _heard(self, recorder: Recorder, recorded: Recorded) -> None:
        if isinstance(recorded.event, TurnEnded | CommandAnswered) and recorder.transcript.owed:
            self._take_up(recorder)

    def _take_up(self, recorder: Recorder) -> None:
        session = recorder.transcript.session
        self._recorders[session] = recorder
        for owed in recorder.transcript.owed:
            if (session, owed.of) in self._under_way:
                continue
            self._under_way.add((session, owed.of))
            if owed.to in self._waiting:
                self._waiting[owed.to].append((session, owed))
                continue
            self._waiting[owed.to] = deque([(session, owed)])
            task = asyncio.create_task(self._deliver_to(owed.to))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _deliver_to(self, to: Address) -> None:
        """One chat's answers, one after the other."""
        waiting = self._waiting[to]
        while waiting:
            session, owed = waiting[0]
            recorder = self._recorders[session]
            try:
                await self._deliver(recorder, owed)
            except SessionsError as error:
                log.warning("reply_not_noted", session=session, seq=owed.of, reason=str(error))
            waiting.popleft()
            self._under_way.discard((session, owed.of))
            if (newer := self._recorders[session]) is not recorder:
                self._take_up(newer)  # it was dropped meanwhile, and opened again with what it owes
            elif not recorder.transcript.owed:
                del self._recorders[session]
        del self._waiting[to]

    async def _deliver(self, recorder: Recorder, owed: Owed) -> None:
        """Deliver one answer and note it; SessionsError where that cannot be noted."""
        await recorder.until_durable(owed.of)
        (line,) = await recorder.log.lines(owed.of, limit=1)
        name = owed.to.channel
        delivery = Delivery(
            id=f"{recorder.transcript.session}/{owed.of}", chat=owed.to.chat, text=said_in(decode(line).event)
        )
        began, attempt = asyncio.get_running_loop().time(), 0
        while (receipt := await self._attempt(recorder, name, delivery, first=attempt == 0)) is None:
            if asyncio.get_running_loop().time() - began > GIVEN_UP:
                sentence = f"The channel {name!r} did not take it for a day."
                recorder.note(ReplyDelivered(of=owed.of, channel=name, failed=sentence))
                return
            await asyncio.sleep(PAUSES[min(attempt, len(PAUSES) - 1)])
            attempt += 1
        recorder.note(ReplyDelivered(of=owed.of, channel=name, receipt=carriable(receipt)[:RECEIPT]))

    async def _attempt(self, recorder: Recorder, name: str, delivery: Delivery, *, first: bool) -> str | None:
        """The receipt, or None where it must be tried again."""
        channel = self._channel(name)
        if channel is None:
            return None
        try:
            async with asyncio.timeout(SECONDS):
                return str(await channel.deliver(delivery) or "")
        except ANYTHING as error:
            if first:
                sentence = f"{type(error).__name__}: {words_of(error)}"
                with suppress(SessionsError):
                    recorder.note(PluginFailed(plugin=name, hook="deliver", sentence=sentence))
            return None


def said_in(event: Event | Foreign) -> str:
    """What a person is told by an event that owes a delivery."""
    match event:
        case ModelReplied():
            return event.text
        case CommandAnswered():
            return event.answer
        case TurnEnded():
            return event.error.sentence if event.error else ""
    raise AssertionError(f"{type(event).__name__} owes nothing")
