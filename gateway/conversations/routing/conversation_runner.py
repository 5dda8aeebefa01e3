"""Runs conversations: begins and builds them, records their state in the catalog, and closes them when they end."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator

import msgspec
import structlog

from gateway.conversations.routing.chat import AgentChoice, Chat
from gateway.conversations.routing.conversation import Conversation
from gateway.conversations.turn.scrubbing import without_secrets
from gateway.conversations.turn.typed_commands import OutcomeUnknown
from gateway.support.errors import error_fields, sentence_of
from gateway.support.resource_limits import is_exhaustion
from plugins.api.context import Clock
from sessions.events.errors import SessionsError, StorageFailed
from sessions.events.events import FORMAT, Event, SessionArchived, SessionOpened, SessionTitled, SettingChanged, Succession
from sessions.state.transcript import PINNED, Transcript
from sessions.store.catalog import Catalog, Claim, SessionRow, listed_fields
from sessions.store.header import new_session_id
from sessions.store.protocols import START, Log, Position, Stamp, Store
from sessions.store.receipts import Receipts
from sessions.store.recorder import Recorder

log = structlog.get_logger("exuvia.switchboard")

CHECKPOINT_EVERY = 256
"""Events between two checkpoints."""


class _Running(msgspec.Struct):
    """A conversation and its tasks: `task` runs it and may be cancelled at any time; `closing` cleans up afterwards and is
    never cancelled. `failure` is set if the conversation was cancelled because of it."""

    conversation: Conversation
    task: asyncio.Task[None]
    closing: asyncio.Task[None]
    failure: StorageFailed | None = None


class ConversationRunner:
    """Runs the conversations of all chats.

    Args:
        store: The logs of all sessions.
        catalog: The catalog of all sessions.
        clock: The clock.
        build: Returns a new conversation of a chat that writes with a recorder.
        prepare: Opens an agent before a conversation of it is built. May raise StorageFailed.
        check_claim: Raises StorageFailed if another gateway has taken a conversation over.
        ended: Called after a conversation has ended and is closed, with the error that ended it, if any.
    """

    def __init__(
        self,
        store: Store,
        catalog: Catalog,
        clock: Clock,
        *,
        build: Callable[[Chat, Recorder], Conversation],
        prepare: Callable[[str], Awaitable[None]],
        check_claim: Callable[[Claim], None],
        ended: Callable[[Chat, Conversation, BaseException | None], None],
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._clock = clock
        self._build = build
        self._prepare = prepare
        self._check_claim = check_claim
        self._ended = ended
        self._catalog_writer = CatalogWriter(catalog)
        self._running: dict[str, _Running] = {}
        self._paused = False

    @property
    def conversations(self) -> list[Conversation]:
        return [running.conversation for running in self._running.values()]

    def runs(self, session: str) -> bool:
        """Return True if the conversation of a session runs or is being closed."""
        return session in self._running

    async def begin(self, chat: Chat, succeeds: Succession | None, choice: AgentChoice) -> Conversation:
        """Create a durable journal for a new session of a chat, and run its conversation.

        Raises:
            OutcomeUnknown: A session that succeeds another one may have begun, so the conversation of the other one ends as
                after a failure. The catalog has the session once it has begun.
            StorageFailed: No session has begun.
        """
        await self._prepare(choice.agent)
        if succeeds is not None and await self._has_successor(chat, succeeds.session):  # of an attempt with unknown outcome
            raise self._end_in_doubt(succeeds.session, "The next session has begun already; try again.")
        session = new_session_id(self._clock.now())
        recorder = self._recorder(await self._store.create(session), START, Transcript())
        known = chat.current.recorder.transcript.counts.models if chat.current else {}
        opened = SessionOpened(
            format=FORMAT,
            session=session,
            key=chat.key,
            person=chat.person,
            succeeds=succeeds,
            agent=choice.agent,
            parent=choice.parent,
            calibrations={name: tuple(round(factor, 4) for factor in each.factors) for name, each in known.items()},
        )
        former = chat.current.recorder.transcript if chat.current else Transcript()
        events = (opened, *_carried_over(former, chat.person), *choice.events(chat.person))
        try:
            self._check_claim(chat.claim)  # the journal is of the present incarnation, and so must be the claim
            for event in events:
                recorder.append(event, urgent=event is events[-1])
            await recorder.until_durable(len(events))
        except BaseException as error:
            await recorder.close()
            is_known = await self._record_failed(chat, session, recorder, succeeds)
            if succeeds is None or is_known or not isinstance(error, Exception):
                raise
            raise self._end_in_doubt(succeeds.session, f"The next session may have begun: {sentence_of(error)}") from error
        self._catalog_writer.put(recorder)
        return self._run(chat, recorder)

    async def _record_failed(self, chat: Chat, session: str, recorder: Recorder, succeeds: Succession | None) -> bool:
        """Discard a session that could not be begun, or record it if it exists nevertheless. Return True if it is certain
        that it neither exists nor will: its first commit may have been stored without an answer."""
        if recorder.durable:  # the caller was cancelled, but the session exists
            self._catalog_writer.put(recorder)
            return False
        try:  # otherwise each attempt on a full disk would leave an empty log
            await self._store.discard_empty(session)
            return succeeds is None or not await self._has_successor(chat, succeeds.session)
        except Exception:  # whatever failed, it may exist
            return False

    async def _has_successor(self, chat: Chat, session: str) -> bool:
        """Return True if the current session of a chat, as it is stored, succeeds another one. Raises StorageFailed."""
        row = await self._catalog.current(*chat.name)
        return row is not None and row.succeeds is not None and row.succeeds.session == session

    def _end_in_doubt(self, session: str, sentence: str) -> OutcomeUnknown:
        """End a conversation that may have a successor, as after a failure. Return the failure."""
        failure = OutcomeUnknown(sentence)
        if (running := self._running.get(session)) is not None:
            running.failure = failure
            running.task.cancel()
        return failure

    async def resume(self, chat: Chat, log: Log, position: Position, transcript: Transcript) -> Conversation:
        """Run the conversation of an existing journal."""
        try:
            await self._prepare(transcript.agent)
        except BaseException:
            await log.close()
            raise
        return self._run(chat, self._recorder(log, position, transcript))

    async def stop(self, session: str) -> None:
        """End a conversation and return once it is closed; a running turn stays open in its log."""
        if (running := self._running.get(session)) is not None:
            running.task.cancel()
            await asyncio.wait([running.closing])

    async def stop_all(self) -> None:
        """End every conversation. A running turn stays open in its log, which records the interruption."""
        await asyncio.gather(*(self.stop(session) for session in tuple(self._running)))

    async def let_finish(self, seconds: float) -> None:
        """Begin no further turn, and return once the running ones have ended, or after `seconds`."""
        self._paused = True
        for conversation in self.conversations:
            conversation.pause()
        deadline = self._clock.monotonic() + seconds
        # No single event announces that no conversation is busy.
        while self._clock.monotonic() < deadline and any(c.busy for c in self.conversations):  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    def _recorder(self, log: Log, position: Position, transcript: Transcript) -> Recorder:
        return Recorder(log, position, transcript, self._clock.now, without_secrets)

    def _run(self, chat: Chat, recorder: Recorder) -> Conversation:
        conversation = self._build(chat, recorder)
        recorder.on_durable(lambda: self._progressed(chat, recorder))
        self._catalog_writer.begin(recorder)
        if self._paused:
            conversation.pause()
        task = asyncio.create_task(conversation.run())
        closing = asyncio.create_task(self._close_at_end(chat, conversation, task))
        self._running[conversation.session] = _Running(conversation, task, closing)
        return conversation

    async def _close_at_end(self, chat: Chat, conversation: Conversation, task: asyncio.Task[None]) -> None:
        """Wait until a conversation has ended, then close it."""
        await asyncio.wait([task])
        error = self._running[conversation.session].failure or (None if task.cancelled() else task.exception())
        if isinstance(error, SessionsError) or (error is not None and is_exhaustion(error)):
            log.error("conversation_dropped", session=conversation.session, reason=sentence_of(error))
        elif error is not None:
            log.error("conversation_failed", session=conversation.session, **error_fields(error))
        recorder = conversation.recorder
        # If the gateway crashes before `end` below, the next start opens the session again.
        self._catalog_writer.put(recorder, settled=False)
        chat.remove(conversation)
        await recorder.close()
        self._catalog_writer.end(recorder, chat.receipts)
        chat.notify()
        # Messages that never became durable must be accepted when they are sent again.
        chat.receipts.forget(conversation.session, after=recorder.durable)
        del self._running[conversation.session]
        self._ended(chat, conversation, error)

    def _progressed(self, chat: Chat, recorder: Recorder) -> None:
        chat.last_activity = self._clock.monotonic()
        if recorder.failure is None and recorder.durable_transcript.settled:
            chat.failures = 0
            self._catalog_writer.progressed(recorder, chat.receipts)
        chat.notify()


def _carried_over(former: Transcript, person: str) -> Iterator[Event]:
    """Yield the events that give the next session of a key what belongs to the conversation as a whole."""
    if former.title is not None:
        yield SessionTitled(title=former.title.text, by=former.title.by)
    if PINNED in former.settings:
        yield SettingChanged(name=PINNED, value=former.settings[PINNED], by=person)
    if former.archived:
        yield SessionArchived(archived=True, by=person)


class CatalogWriter:
    """Writes the rows of conversations to the catalog, and checkpoints, so that a start need not read whole journals."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._checkpoints: dict[str, int] = {}

    def begin(self, recorder: Recorder) -> None:
        """Start to follow a session; everything before its position counts as checkpointed."""
        self._checkpoints[recorder.durable_transcript.session] = recorder.position.seq

    def progressed(self, recorder: Recorder, receipts: Receipts) -> None:
        """Record the progress of an idle session, with a checkpoint if one is due."""
        self.put(recorder)
        if self._is_due(recorder):
            self._checkpoint(recorder, receipts)

    def end(self, recorder: Recorder, receipts: Receipts) -> None:
        """Record a closed session. After a failure its state in memory is not trusted, and the session stays unsettled."""
        if recorder.failure is None:
            self._checkpoint(recorder, receipts)
        self.put(recorder, settled=recorder.failure is None)
        self._checkpoints.pop(recorder.durable_transcript.session, None)

    def put(self, recorder: Recorder, *, settled: bool = True) -> None:
        """Record a session's row. If `settled` is False, the next start opens the session again."""
        transcript = recorder.durable_transcript
        # Zeros if the stamp is unknown: without a row in the catalog, the key would begin another session.
        stamp = recorder.log.stamp() or Stamp(size=0, changed=0)
        self._catalog.put(
            SessionRow(
                session=transcript.session,
                key=transcript.key,
                person=transcript.person,
                opened_at=transcript.opened_at,
                succeeds=transcript.succeeds,
                head=recorder.durable,
                at=transcript.at,
                size=stamp.size,
                mtime_ns=stamp.changed,
                settled=settled and transcript.finished and stamp.size == recorder.position.offset,
                closed=transcript.closed is not None,
                **listed_fields(transcript),
            )
        )

    def _is_due(self, recorder: Recorder) -> bool:
        since = recorder.position.seq - self._checkpoints.get(recorder.durable_transcript.session, 0)
        # The cost of a checkpoint grows with the view, so a longer view is saved less often: the cost per event is constant.
        return since >= max(CHECKPOINT_EVERY, len(recorder.durable_transcript.messages))

    def _checkpoint(self, recorder: Recorder, receipts: Receipts) -> None:
        transcript = recorder.durable_transcript
        self._checkpoints[transcript.session] = recorder.position.seq
        self._catalog.save_checkpoint(transcript.session, recorder.position, transcript, receipts)
