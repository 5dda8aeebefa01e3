"""Delivery of answers to channels. Each answer is delivered at least once, in the order of its chat, or abandoned; the
session's log records which. A long answer and its files are delivered in parts, one post each, and each part is recorded: a
crash repeats at most the part that was under way.

Pending deliveries continue when the session is opened again. An answer that a channel rejects does not block its chat:
after a few failures the next answer is tried as well. If the channel accepts that one, the first was at fault; otherwise
the channel is, and all of them wait.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, tzinfo
from functools import partial
from typing import NamedTuple

import msgspec
import structlog

from gateway.support.approval_text import options_of, question_text
from gateway.support.errors import error_fields
from plugins.api.channel import (
    Channel,
    Choice,
    DeliveryUnknown,
    OutboundMessage,
    SplitsReplies,
    TryLater,
    Undeliverable,
)
from plugins.api.tool import OutputFile
from plugins.support.untrusted import call_failure, error_text, reraise_cancellation
from sessions.events.codec import decode, replace_surrogates
from sessions.events.errors import SessionsError
from sessions.events.events import (
    ApprovalAsked,
    CommandAnswered,
    DeliveryAttempted,
    Event,
    ModelReplied,
    PluginFailed,
    Recorded,
    ReplyDelivered,
    TurnEnded,
    UnknownEvent,
)
from sessions.state.transcript import Address, PendingDelivery
from sessions.store.catalog import Name
from sessions.store.protocols import Blobs
from sessions.store.recorder import Recorder

ATTEMPT_SECONDS = 60.0
"""Seconds that one attempt may take."""

PAUSES = (1.0, 5.0, 30.0, 120.0)
"""Seconds before the second attempt, the third, and so on; the last one repeats."""

CLOSED_SECONDS = 5.0
"""Seconds between two checks whether a channel is open again."""

BLOCKING_FAILURES = 4
"""Failed attempts of an answer after which the next one of the chat is tried too."""

ABANDON_AFTER = 86_400.0
"""Seconds after which an answer is abandoned."""

MIN_SECONDS = 600.0
"""Minimum seconds of attempts after a start, even if ABANDON_AFTER has passed while the gateway was stopped."""

SHORT_CHARS = 2000
"""Characters of a text that is tried whole at once, on the event loop. Longer ones are split in a thread."""

MOST_EARLY = 20
"""Maximum reactions that are kept for the posts under way in a chat; the last ones count."""

MOST_FILES = 20
"""Maximum files of one answer; the last ones are delivered."""

TEXT_CHARS = 300
"""Maximum recorded characters of a receipt or a reason."""

log = structlog.get_logger("exuvia.channels")


class _Content(msgspec.Struct, frozen=True, kw_only=True):
    """What an answer consists of, and the time of its event."""

    text: str
    choices: tuple[Choice, ...]
    at: datetime


class _Post(NamedTuple):
    """A post of an answer: a piece of its text, or files. After it, `chars` of the text and `sent` files are delivered."""

    text: str
    chars: int
    files: tuple[OutputFile, ...]
    sent: int


class _Part(msgspec.Struct, frozen=True, kw_only=True):
    """A part of an answer. After it, `chars` of the text and so many `files` have been delivered."""

    message: OutboundMessage
    chars: int
    files: int


class _Answer(msgspec.Struct):
    """An answer to be delivered, and its attempts.

    `parts` are those that remain, as the open channel `divided_for` takes them; `first_attempt` is the time of the first
    attempt on the event loop's clock. `again` is True if an attempt to deliver the first of them may have succeeded.
    `refused` says why the last attempt failed. `passed` is True while the channel has it, until the outcome is recorded;
    `dropped` is True if another gateway delivers it.
    """

    session: str
    of: int
    to: Address
    content: _Content | None = None
    parts: deque[_Part] = msgspec.field(default_factory=deque)
    divided_for: Channel | None = None
    first_attempt: float = 0.0
    failures: int = 0
    accepted: bool = False
    again: bool = False
    refused: str = ""
    passed: bool = False
    dropped: bool = False


class _EarlyReaction(NamedTuple):
    """A reaction to a post whose receipt may not be known yet, and how it is received."""

    receipt: str
    receive: Callable[[], Awaitable[None]]


class _Chat(msgspec.Struct):
    """The answers to be delivered to one chat, in order; `added` is set when one is added or dropped, `dropped` when one is
    dropped. `early` are reactions to posts that may be among those under way."""

    answers: deque[_Answer] = msgspec.field(default_factory=deque)
    added: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    dropped: asyncio.Event = msgspec.field(default_factory=asyncio.Event)
    early: deque[_EarlyReaction] = msgspec.field(default_factory=partial(deque, maxlen=MOST_EARLY))


class _Refused(msgspec.Struct, frozen=True, kw_only=True):
    """The reason why a channel did not accept an answer.

    `for_good` is True if it never will, `failed` if it raised an error, perhaps because of this answer, `unknown` if it may
    have accepted it. Otherwise the whole chat waits for `after` seconds.
    """

    why: str
    for_good: bool = False
    failed: bool = False
    unknown: bool = False
    after: float = 0.0


class _Wait(msgspec.Struct, frozen=True, kw_only=True):
    """A pause before the next attempts of a chat. A new answer ends it early, unless `all_wait` is True."""

    seconds: float
    all_wait: bool


class WaitingReplies(msgspec.Struct, frozen=True, kw_only=True):
    """The answers that wait for a channel, and why one of them was not accepted; "" if none was tried in vain."""

    count: int = 0
    reason: str = ""


class ReplyDelivery:
    """Delivers the answers of all sessions.

    `channel` returns an open channel by its name, None while it is closed; `now` returns the time in UTC, `zone` the
    configured time zone, None for the system's. `attachments` holds the files of answers.
    """

    def __init__(
        self,
        channel: Callable[[str], Channel | None],
        now: Callable[[], datetime],
        zone: Callable[[], tzinfo | None],
        attachments: Blobs,
    ) -> None:
        self._channel = channel
        self._attachments = attachments
        self._now = now
        self._zone = zone
        self._recorders: dict[str, Recorder] = {}
        self._under_way: set[tuple[str, int]] = set()
        self._chats: dict[Address, _Chat] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def opened(self, recorder: Recorder) -> None:
        """Deliver the pending answers of a session that was opened, and all later ones."""
        recorder.on_event(lambda recorded: self._on_event(recorder, recorded))
        if recorder.transcript.owed:
            self._queue_pending(recorder)

    def waiting(self) -> Mapping[str, WaitingReplies]:
        """Return the answers that wait, by channel."""
        found: dict[str, WaitingReplies] = {}
        for to, chat in self._chats.items():
            before = found.get(to.channel, WaitingReplies())
            reason = next((answer.refused for answer in chat.answers if answer.refused), before.reason)
            found[to.channel] = WaitingReplies(count=before.count + len(chat.answers), reason=reason)
        return found

    def conversations(self) -> set[tuple[str, Name]]:
        """Return the channel and the conversation of each answer that waits."""
        return {(to.channel, self._name_of(answer)) for to, chat in self._chats.items() for answer in chat.answers}

    def let_go(self, name: Name, *, lost: bool) -> bool:
        """Forget the answers of a conversation, which another gateway delivers from now on, unless a channel has one of them
        in its hands: return False then. If the conversation is `lost`, they are forgotten nevertheless, since no outcome can
        be recorded."""
        found = [(chat, answer) for chat in self._chats.values() for answer in chat.answers if self._name_of(answer) == name]
        if not lost and any(answer.passed for _, answer in found):
            return False
        for chat, answer in found:
            answer.dropped = True
            self._forget(chat, answer)
            chat.added.set()
            chat.dropped.set()
        return True

    def keep_reaction(self, channel: str, chat: str, receipt: str, receive: Callable[[], Awaitable[None]]) -> None:
        """Keep a reaction to a post that is not known.

        People may react before a channel has returned the post's receipt: `receive`, which must not raise, is called once
        it has. A reaction to any other post is dropped when no answers are under way to the chat.
        """
        for to, waiting in self._chats.items():
            if (to.channel, to.chat) == (channel, chat):
                waiting.early.append(_EarlyReaction(receipt, receive))

    async def close(self) -> None:
        """Stop; pending answers are delivered after the next start."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=1.0)

    def _on_event(self, recorder: Recorder, recorded: Recorded) -> None:
        if isinstance(recorded.event, TurnEnded | CommandAnswered | ApprovalAsked) and recorder.transcript.owed:
            self._queue_pending(recorder)

    def _queue_pending(self, recorder: Recorder) -> None:
        session = recorder.transcript.session
        self._recorders[session] = recorder
        for pending in recorder.transcript.owed:
            if (session, pending.of) in self._under_way:
                continue
            self._under_way.add((session, pending.of))
            if (chat := self._chats.get(pending.to)) is None:
                chat = self._chats[pending.to] = _Chat()
                task = asyncio.create_task(self._deliver_to(pending.to))
                self._tasks.add(task)
                task.add_done_callback(self._tasks.discard)
            chat.answers.append(_Answer(session, pending.of, pending.to))
            chat.added.set()

    # --- one chat -----------------------------------------------------------------------------------------------------

    async def _deliver_to(self, to: Address) -> None:
        """Deliver the pending answers of one chat until none is left."""
        chat = self._chats[to]
        while chat.answers:
            chat.added.clear()
            chat.dropped.clear()
            if (wait := await self._round(chat)) is None:
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout(wait.seconds):
                    await (chat.dropped if wait.all_wait else chat.added).wait()
        del self._chats[to]

    async def _round(self, chat: _Chat) -> _Wait | None:
        """Try the answers in order, up to the first that has failed fewer than BLOCKING_FAILURES times.

        Returns None once one of them was delivered or abandoned, else how long to wait. If an answer is accepted, those that
        failed before it get a last attempt.
        """
        passed: list[_Answer] = []
        first: _Wait | None = None
        for answer in tuple(chat.answers):
            wait = await self._try(chat, answer)
            if wait is None:
                for each in passed if answer.accepted else ():
                    if (wait := await self._try(chat, each, last=True)) is not None:
                        return wait
                return None
            first = first or wait
            if wait.all_wait or answer.failures < BLOCKING_FAILURES:
                return msgspec.structs.replace(wait, all_wait=True)
            passed.append(answer)
        return first

    async def _try(self, chat: _Chat, answer: _Answer, *, last: bool = False) -> _Wait | None:
        """Try to deliver one answer. Return None if there is nothing more to do for now, else how long to wait."""
        if answer.dropped:
            return None
        recorder = self._recorders[answer.session]
        if _pending(recorder, answer) is None:  # a question that was answered meanwhile
            self._remove(chat, answer, recorder)
            return None
        try:
            wait = await self._attempt(recorder, answer, last=last)
        except Exception as error:
            if not isinstance(error, SessionsError):
                log.error("reply_not_delivered", session=answer.session, seq=answer.of, **error_fields(error))
            log.warning("reply_not_noted", session=answer.session, seq=answer.of, reason=error_text(error))
            wait = None  # it stays pending until its session is opened again
            if answer.content is None and recorder.failure is None:  # it could not be read, and nobody has been sent it
                answer.failures += 1
                wait = _Wait(seconds=PAUSES[min(answer.failures, len(PAUSES)) - 1], all_wait=False)
        finally:
            answer.passed = False
        if wait is None and not answer.dropped:
            self._remove(chat, answer, recorder)
        return wait

    def _name_of(self, answer: _Answer) -> Name:
        transcript = self._recorders[answer.session].transcript
        return transcript.person, transcript.key

    def _remove(self, chat: _Chat, answer: _Answer, recorder: Recorder) -> None:
        newest = self._recorders[answer.session]
        self._forget(chat, answer)
        if newest is not recorder:
            self._queue_pending(newest)  # the session was reopened meanwhile, with its pending deliveries

    def _forget(self, chat: _Chat, answer: _Answer) -> None:
        chat.answers.remove(answer)
        self._under_way.discard((answer.session, answer.of))
        if not any(session == answer.session for session, _ in self._under_way):
            self._recorders.pop(answer.session, None)

    # --- one answer ---------------------------------------------------------------------------------------------------

    async def _attempt(self, recorder: Recorder, answer: _Answer, *, last: bool) -> _Wait | None:
        """Pass the parts of an answer to its channel. Returns None once the log records that all were delivered, or that the
        answer was abandoned."""
        if answer.content is None:
            answer.content = await self._read(recorder, answer.of)
            answer.first_attempt = asyncio.get_running_loop().time()
        while not answer.dropped and (pending := _pending(recorder, answer)) is not None:
            refused = await self._deliver_part(recorder, answer, pending)
            if refused is not None and refused.for_good and len(answer.parts) > 1 and not answer.parts[0].message.text:
                await self._record(recorder, answer, failed=refused.why)  # a file; the others follow
            elif refused is not None:
                return await self._refused(recorder, answer, refused, last=last)
        return None

    async def _deliver_part(self, recorder: Recorder, answer: _Answer, pending: PendingDelivery) -> _Refused | None:
        """Pass the next part of an answer to its channel, and record that it was accepted, or return why it was not."""
        channel, name = self._channel(answer.to.channel), answer.to.channel
        if channel is None:
            return _Refused(why="It is not open.", after=CLOSED_SECONDS)
        if answer.divided_for is not channel:
            try:
                answer.parts, answer.divided_for = await self._divided(channel, answer, pending), channel
            except BaseException as error:
                reraise_cancellation(error)
                return _Refused(why=str(call_failure(error)), failed=True)
        part, noted = answer.parts[0], getattr(channel, "attempts_noted", False)
        if answer.dropped:
            return None
        answer.passed = True
        answer.again = answer.again or pending.attempted
        if noted and not pending.attempted:
            attempt = DeliveryAttempted(of=answer.of, channel=name, chars=pending.chars, files=pending.delivered_files)
            await recorder.append_durable(attempt)
        outcome = await self._pass_to_channel(channel, msgspec.structs.replace(part.message, again=answer.again))
        if isinstance(outcome, str):
            answer.accepted = True
            await self._record(recorder, answer, receipt=outcome)
            return None
        answer.again = answer.again or outcome.unknown
        if noted and not answer.again:
            recorder.append(DeliveryAttempted(of=answer.of, channel=name, failed=replace_surrogates(outcome.why)))
        return outcome

    async def _record(self, recorder: Recorder, answer: _Answer, *, receipt: str = "", failed: str = "") -> None:
        """Record that the next part of an answer was accepted, or that it never will be."""
        part = answer.parts.popleft()
        whole = part.message.parts == 1
        answer.again, answer.failures = False, 0
        receipt = replace_surrogates(receipt)[:TEXT_CHARS]
        await recorder.append_durable(
            ReplyDelivered(
                of=answer.of,
                channel=answer.to.channel,
                receipt=receipt,
                failed=replace_surrogates(failed),
                chars=0 if whole else part.chars,
                files=0 if whole else part.files,
                more=bool(answer.parts),
            )
        )
        for reaction in tuple(self._chats[answer.to].early) if receipt else ():
            if reaction.receipt == receipt:
                await reaction.receive()

    async def _refused(self, recorder: Recorder, answer: _Answer, refused: _Refused, *, last: bool) -> _Wait | None:
        """Return how long to wait after a failed attempt, or record that the answer is abandoned."""
        of, name = answer.of, answer.to.channel
        answer.failures += refused.failed
        answer.refused = refused.why
        if refused.failed and answer.failures == 1:
            recorder.append(PluginFailed(plugin=name, hook="deliver", sentence=replace_surrogates(refused.why)))
        if reason := self._why_abandoned(answer, refused, last=last):
            log.warning("reply_given_up", session=answer.session, seq=of, channel=name, reason=reason)
            await recorder.append_durable(ReplyDelivered(of=of, channel=name, failed=replace_surrogates(reason)))
            return None
        if refused.failed:
            return _Wait(seconds=PAUSES[min(answer.failures, len(PAUSES)) - 1], all_wait=False)
        return _Wait(seconds=max(PAUSES[0], min(refused.after, self._left(answer))), all_wait=True)

    async def _read(self, recorder: Recorder, of: int) -> _Content:
        """Read an answer from the log once it is durable."""
        await recorder.until_durable(of)
        (line,) = await recorder.log.lines(of, limit=1)
        recorded = decode(line)
        text, choices = text_of(recorded.event, self._zone()), _choices(recorded.event)
        return _Content(text=text, choices=choices, at=datetime.fromisoformat(recorded.at))

    async def _divided(self, channel: Channel, answer: _Answer, pending: PendingDelivery) -> deque[_Part]:
        """Return the remaining parts of an answer as a channel takes them: all in one if it does not split answers."""
        assert answer.content is not None
        text, files = answer.content.text, await self._files_of(answer.session, pending)
        posts = [_Post(text[pending.chars :], len(text), tuple(file for file, _ in files), len(pending.files))]
        choices_at = 0
        if isinstance(channel, SplitsReplies):
            async with asyncio.timeout(ATTEMPT_SECONDS):
                pieces = await pieces_of(channel, text, pending.chars)
            texts = [_Post(piece, end, (), pending.delivered_files) for piece, end in pieces]
            posts = [*texts, *(_Post("", len(text), (file,), count) for file, count in files)] or posts
            choices_at = max(len(texts) - 1, 0)
        first, parts = pending.parts + 1, deque[_Part]()
        for number, post in enumerate(posts, first):
            message = OutboundMessage(
                id=f"{answer.session}/{answer.of}" + (f"/{number}" if number > 1 else ""),
                chat=answer.to.chat,
                thread=answer.to.thread,
                text=post.text,
                choices=answer.content.choices if number - first == choices_at else (),
                attachments=post.files,
                part=number,
                parts=pending.parts + len(posts),
                reply_to=_reply_to(pending),
            )
            parts.append(_Part(message=message, chars=post.chars, files=post.sent))
        return parts

    async def _files_of(self, session: str, pending: PendingDelivery) -> list[tuple[OutputFile, int]]:
        """Read the files of an answer that remain to be delivered, each with the number of those that are delivered after
        it; one that cannot be read is left out."""
        found = []
        left_out = max(len(pending.files) - MOST_FILES, 0)
        for count, file in enumerate(pending.files, 1):
            if count <= max(left_out, pending.delivered_files):
                continue
            try:
                content = await self._attachments.read(file.sha256)
            except OSError as error:
                log.warning("file_not_delivered", session=session, sha256=file.sha256, reason=error_text(error))
            else:
                found.append((OutputFile(content=content, media=file.media, name=file.name), count))
        return found

    async def _pass_to_channel(self, channel: Channel, message: OutboundMessage) -> str | _Refused:
        """Return the receipt of a channel, or why there is none."""
        try:
            async with asyncio.timeout(ATTEMPT_SECONDS):
                return str(await channel.deliver(message) or "")
        except Undeliverable as error:
            return _Refused(why=error_text(error) or "The channel cannot deliver it.", for_good=True)
        except TryLater as error:
            return _Refused(why=error_text(error), after=error.after if isinstance(error.after, int | float) else 0.0)
        except BaseException as error:
            reraise_cancellation(error)
            unknown = isinstance(error, DeliveryUnknown | TimeoutError | asyncio.CancelledError)
            return _Refused(why=str(call_failure(error)), failed=True, unknown=unknown)

    def _why_abandoned(self, answer: _Answer, refused: _Refused, *, last: bool) -> str:
        """Return why an answer is abandoned, as a sentence; empty if it is not."""
        name = answer.to.channel
        if refused.for_good:
            return refused.why
        if last and refused.failed:
            return f"The channel {name!r} did not accept it, but accepted a later one: {refused.why}"
        return f"The channel {name!r} did not accept it for a day: {refused.why}" if self._left(answer) <= 0 else ""

    def _left(self, answer: _Answer) -> float:
        """Return the seconds until an answer is abandoned."""
        assert answer.content is not None
        tried = asyncio.get_running_loop().time() - answer.first_attempt
        return max(ABANDON_AFTER - (self._now() - answer.content.at).total_seconds(), MIN_SECONDS - tried)


def _pending(recorder: Recorder, answer: _Answer) -> PendingDelivery | None:
    """Return how far an answer has been delivered; None if nothing of it is pending."""
    return next((pending for pending in recorder.transcript.owed if pending.of == answer.of), None)


async def pieces_of(channel: SplitsReplies, text: str, start: int = 0) -> list[tuple[str, int]]:
    """Return the pieces of a text from an offset on that fit into posts of a channel, each with its end."""
    if start == 0 and len(text) <= SHORT_CHARS and (not text or channel.fits(text)):
        return [(text, len(text))] if text else []
    return await asyncio.to_thread(_split, channel, text, start)


def _split(channel: SplitsReplies, text: str, start: int) -> list[tuple[str, int]]:
    from plugins.channels.formatting.markdown_pieces import split_markdown  # noqa: PLC0415 - for long answers only

    return [(piece.text, piece.end) for piece in split_markdown(text, channel.fits, start)]


def _reply_to(pending: PendingDelivery) -> str:
    """Return the id that the channel gave the message that is answered; "" if it is not known."""
    prefix = f"{pending.to.channel}:"
    return pending.answers.removeprefix(prefix) if pending.answers.startswith(prefix) else ""


def text_of(event: Event | UnknownEvent, zone: tzinfo | None) -> str:
    """Return the text of an event that is delivered to a person, with times in this time zone."""
    match event:
        case ApprovalAsked():
            return question_text(event, zone)
        case ModelReplied():
            return f"{event.text}\n\n{event.notice}" if event.notice else event.text
        case CommandAnswered():
            return event.answer
        case TurnEnded():
            return event.error.sentence if event.error else ""
    raise AssertionError(f"{type(event).__name__} is not delivered")


def _choices(event: Event | UnknownEvent) -> tuple[Choice, ...]:
    """Return the answers to a question, each with the command that gives it as its id: a selected one is run like a typed
    command."""
    options = options_of(event) if isinstance(event, ApprovalAsked) else []
    return tuple(Choice(id=option.command, label=option.label) for option in options)
