"""The switchboard: routes messages to conversations, and opens, runs, reopens and unloads them.

After any failure of a conversation its memory is not trusted: it is dropped and opened again from its journal, exactly as
after a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import structlog

from gateway.conversations.routing.chat import Chat
from gateway.conversations.routing.conversation import Conversation
from gateway.conversations.routing.session_indexer import TITLE, SessionIndexer
from gateway.conversations.turn.scrubbing import without_secrets
from gateway.support.address_space import is_exhaustion
from gateway.support.errors import sentence_of
from plugins.api.context import Clock
from sessions.catalog.catalog import Catalog
from sessions.catalog.lineage import Name, SessionRow
from sessions.catalog.opening import open_session
from sessions.events.errors import JournalDamaged, SessionsError
from sessions.events.events import FORMAT, SessionOpened, SettingChanged, Succession
from sessions.files.fork import Fork, ForkRefused, fork, fork_key
from sessions.files.header import new_session_id
from sessions.files.journal import Journals
from sessions.state.transcript import Transcript
from sessions.store.log_writer import stamp
from sessions.store.protocols import START
from sessions.store.recorder import Recorder

PENDING_LIMIT = 64 * 1024 * 1024
"""Bytes that may wait for the disk before new messages are refused."""

SWEEP_SECONDS = 60.0
"""Seconds between two looks for idle conversations, and for notes that could not be written."""

IDLE_SECONDS = 900.0
"""Seconds without events or subscribers after which a conversation leaves memory."""

REOPEN_SECONDS = (0.5, 2.0, 10.0, 30.0)
"""Seconds before a failed conversation is opened again, by its consecutive failures."""

T = TypeVar("T")

log = structlog.get_logger("exuvia.switchboard")


class Forks:
    """Creates forks, one at a time, and adds them to the catalog. The caller holds the lock of the fork's key."""

    def __init__(self, catalog: Catalog, journals: Journals, clock: Clock) -> None:
        self._catalog = catalog
        self._journals = journals
        self._clock = clock
        self._one = asyncio.Lock()

    def name(self, person: str, parent: str, wanted: str | None) -> Name:
        """Return the name of a fork: the wanted key, or one derived from the parent's.

        Raises ForkRefused if the person has no session `parent`, or the key is in use.
        """
        row = self._catalog.row(parent)
        if row is None or row.person != person:
            raise ForkRefused(f"There is no session {parent}.")
        used = {each.key for each in self._catalog.sessions(person)}
        if wanted in used:
            raise ForkRefused(f"A session {wanted!r} exists already; choose another key.")
        return person, wanted or fork_key(row.key, used)

    async def make(self, name: Name, parent: str, upto: int | None) -> Fork:
        """Copy a session into a new one, up to the last place between turns at or before the event `upto`, by default its
        end.

        The name must not be in use. Raises ForkRefused, StorageFailed, JournalDamaged.
        """
        async with self._one:
            now = self._clock.now()
            path = self._journals.path(parent)
            made = await asyncio.to_thread(fork, path, new_session_id(now), name[1], now, at=upto, exactly=False)
            self._catalog.put(_row(name, made, now))
            return made


def _row(name: Name, made: Fork, now: datetime) -> SessionRow:
    """Return the row of a fork that was not opened yet. The journal is not read for it."""
    person, key = name
    at = stamp(now)
    return SessionRow(
        session=made.session,
        key=key,
        person=person,
        opened_at=at,
        succeeds=None,
        head=made.parent_seq + 1,
        at=at,
        size=0,
        mtime_ns=0,
        settled=False,
        closed=False,
    )


class SwitchboardLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over all conversations in memory: `running` turns, `waiting` messages and commands."""

    conversations: int
    running: int
    waiting: int
    subscriptions: int


class Switchboard:
    """All chats of the gateway. Use as an async context manager: leaving it stops and closes every conversation."""

    def __init__(
        self,
        *,
        journals: Journals,
        catalog: Catalog,
        build: Callable[[Chat, Recorder], Conversation],
        clock: Clock,
        queue_limit: Callable[[], int],
    ) -> None:
        self._queue_limit = queue_limit
        self._journals = journals
        self._catalog = catalog
        self._build = build
        self._clock = clock
        self._chats: dict[tuple[str, str], Chat] = {}
        self._locks: dict[tuple[str, str], asyncio.Lock] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._owners: dict[str, asyncio.Task[None]] = {}
        self._last_activity: dict[tuple[str, str], float] = {}
        self._failures: dict[tuple[str, str], int] = {}
        self._unfinished: set[tuple[str, str]] = set()
        self._indexer = SessionIndexer(catalog, journals)
        self._forks = Forks(catalog, journals, clock)
        self._pausing = False
        self._stopping = False
        self._background: set[asyncio.Task[Any]] = set()

    async def __aenter__(self) -> Switchboard:
        self._spawn(self._sweep())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._stopping = True
        for task in self._background:
            task.cancel()
        if self._background:
            await asyncio.wait(self._background)
        await self.interrupt()

    async def let_finish(self, seconds: float) -> None:
        """Begin no further turn, and return once the running ones have ended, or after `seconds`."""
        self._pausing = True
        for conversation in self._conversations():
            conversation.pause()
        deadline = self._clock.monotonic() + seconds
        # No single event announces that all conversations rest.
        while self._clock.monotonic() < deadline and not all(c.resting for c in self._conversations()):  # noqa: ASYNC110
            await asyncio.sleep(0.02)

    async def interrupt(self) -> None:
        """End every conversation. A running turn stays open in its log, which records the interruption."""
        self._stopping = True
        await asyncio.gather(*(self._stop(session) for session in tuple(self._owners)))

    def _conversations(self) -> list[Conversation]:
        return [c for chat in self._chats.values() for c in (chat.current, *chat.finishing.values()) if c is not None]

    @property
    def queue_limit(self) -> int:
        """The number of messages that may wait in a session."""
        return self._queue_limit()

    @property
    def loaded(self) -> int:
        """The number of conversations in memory."""
        return len(self._owners)

    def load(self) -> SwitchboardLoad:
        """Return the counts over the conversations in memory."""
        conversations = [c for chat in self._chats.values() for c in (chat.current, *chat.finishing.values()) if c]
        return SwitchboardLoad(
            conversations=self.loaded,
            running=sum(c.recorder.transcript.open_turn is not None for c in conversations),
            waiting=sum(len(c.recorder.transcript.waiting) for c in conversations),
            subscriptions=sum(chat.watched for chat in self._chats.values()),
        )

    # --- chats --------------------------------------------------------------------------------------------------------

    async def chat(self, person: str, key: str, *, create: bool) -> Chat | None:
        """Return a person's chat, opened from its journal if it is not in memory.

        Without `create`, the result is None for an unknown key. Raises StorageFailed.
        """
        name = (person, key)
        # Looked up again after each wait: the chat may have been unloaded meanwhile.
        while (chat := self._chats.get(name)) is None or not chat.is_open:
            if not create and self._catalog.current(person, key) is None:
                return None
            # The caller may be cancelled meanwhile; others may wait for the same.
            await asyncio.shield(self._spawn(self._restore(name)))
        self._last_activity[name] = self._clock.monotonic()
        return chat

    async def resume_all(self) -> None:
        """Open every session that a stop left with unfinished work."""
        for row in sorted(self._catalog.unsettled(), key=lambda row: row.at, reverse=True):
            try:
                chat = await self.chat(row.person, row.key, create=False)
            except SessionsError as error:
                log.error("session_not_opened", session=row.session, reason=str(error))
            else:
                # After a lost catalog these are all sessions: unload the idle ones.
                await self._unload_if_idle((row.person, row.key), chat)

    def sessions(self, person: str) -> list[SessionRow]:
        """Return a person's keys, each with its current session, as far as it is durable."""
        return [self._as_of_now(row) for row in self._catalog.sessions(person)]

    async def fork(self, person: str, parent: str, key: str | None, upto: int | None) -> Fork:
        """Begin a session under a new key that continues from a past moment of another. Raises the errors of
        `Forks.name` and `Forks.make`."""
        # The caller may be cancelled meanwhile; the catalog must record the fork all the same.
        return await asyncio.shield(self._spawn(self._fork(person, parent, key, upto)))

    async def _fork(self, person: str, parent: str, key: str | None, upto: int | None) -> Fork:
        while True:
            name = self._forks.name(person, parent, key)
            async with self._lock(name):
                # A message may have begun a session under this key while the lock was waited for.
                if self._catalog.current(*name) is None:
                    return await self._forks.make(name, parent, self._durable(parent) if upto is None else upto)

    def _durable(self, session: str) -> int | None:
        """Return the last durable seq of a session in memory: later events in the journal may still be lost."""
        row = self._catalog.row(session)
        chat = self._chats.get(row.name) if row else None
        conversation = chat.conversation(session) if chat else None
        return conversation.recorder.durable if conversation else None

    def _as_of_now(self, row: SessionRow) -> SessionRow:
        chat = self._chats.get((row.person, row.key))
        conversation = chat.conversation(row.session) if chat else None
        if conversation is None:
            return row
        recorder = conversation.recorder
        at = recorder.durable_transcript.at
        return msgspec.structs.replace(row, head=recorder.durable, at=at, title=conversation.title)

    async def _restore(self, name: tuple[str, str]) -> Chat:
        """Open the parts of a chat that are not in memory: its current session, and earlier ones with unfinished work."""
        async with self._lock(name):
            chat = self._chats.get(name)
            if chat is None:
                chat = self._chats[name] = Chat(*name, await self._catalog.receipts(*name), self)
            row = self._catalog.current(*name)
            if row is None:
                chat.current = await self.create(chat, None)
            elif row.closed and not chat.is_open:
                # Its successor was lost, and a person accepted that.
                chat.current = await self.create(chat, Succession(session=row.session, seq=row.head))
            else:
                if not chat.is_open:
                    await self._open_current(chat, row)
                await self._finish_older(chat, row)
            chat.notify()
            return chat

    async def _open_current(self, chat: Chat, row: SessionRow) -> None:
        try:
            chat.current = await self.open(chat, row.session, successor=None)
        except JournalDamaged as damaged:
            self._report_damage(damaged)
            chat.damaged, chat.damaged_session = damaged, row.session
        else:
            chat.wait_for_successor()

    async def _finish_older(self, chat: Chat, row: SessionRow) -> None:
        """Open earlier sessions that a stop or a failure left with unanswered messages.

        One that cannot be opened is tried again later; it does not block the current one.
        """
        newer = row
        for older in self._catalog.chain(row.session):
            begun = newer.succeeds is not None and newer.succeeds.session == older.session
            if begun and not older.settled and older.session not in self._owners:
                try:
                    chat.finishing[older.session] = await self.open(chat, older.session, successor=newer.succeeds)
                except JournalDamaged as damaged:
                    self._report_damage(damaged)
                except SessionsError as error:
                    log.error("session_not_opened", session=older.session, reason=str(error))
                    self._spawn(self._reopen(chat))
            newer = older

    # --- what chats need ----------------------------------------------------------------------------------------------

    async def open(self, chat: Chat, session: str, *, successor: Succession | None) -> Conversation:
        """Open an existing journal and run its conversation; with a `successor` it only finishes."""
        opened = await open_session(self._journals, self._catalog, session)
        recorder = Recorder(opened.log, opened.position, opened.transcript, self._clock.now, without_secrets)
        conversation = self._build(chat, recorder)
        if successor is not None:
            conversation.retire(successor.seq)
        self._own(chat, conversation)
        if not opened.verified:
            self._spawn(self._verify_in_background(chat, conversation))
        return conversation

    def _report_damage(self, damaged: JournalDamaged) -> None:
        """Report a damaged journal in the log and in `/status`."""
        log.error("journal_damaged", session=damaged.path.stem, line=damaged.line, reason=damaged.reason)
        self._catalog.unreadable[damaged.path] = damaged.reason

    async def _verify_in_background(self, chat: Chat, conversation: Conversation) -> None:
        """Verify the part of a large journal that a checkpoint skipped. If it is damaged, its conversation is stopped,
        and the key too if it is the current one."""
        session = conversation.session
        try:
            await self._journals.verify(session)
        except JournalDamaged as damaged:
            self._report_damage(damaged)
            async with self._lock((chat.person, chat.key)):
                if chat.current is conversation:
                    chat.damaged, chat.damaged_session = damaged, session
                if chat.conversation(session) is conversation:
                    await self._stop(session)
        except SessionsError as error:
            log.error("journal_not_verified", session=session, reason=str(error))

    async def create(self, chat: Chat, succeeds: Succession | None) -> Conversation:
        """Begin a new journal for a chat, durably, and run its conversation."""
        session = new_session_id(self._clock.now())
        log_ = await self._journals.create(session)
        recorder = Recorder(log_, START, Transcript(), self._clock.now, without_secrets)
        known = chat.current.recorder.transcript.counts.models if chat.current else {}
        opened = SessionOpened(
            format=FORMAT,
            session=session,
            key=chat.key,
            person=chat.person,
            succeeds=succeeds,
            calibrations={name: tuple(round(factor, 4) for factor in each.factors) for name, each in known.items()},
        )
        try:
            await recorder.append_durable(opened)
        except BaseException:
            await recorder.close()
            if recorder.durable:  # the caller was cancelled, but the session exists
                self._indexer.put(recorder)
            else:
                self._remove_empty(session)
            raise
        if chat.current and (title := chat.current.title):
            recorder.append(SettingChanged(name=TITLE, value=title, by=chat.person))
        conversation = self._build(chat, recorder)
        self._indexer.put(recorder)
        self._own(chat, conversation)
        return conversation

    def _remove_empty(self, session: str) -> None:
        """Remove a journal that never got its first line; otherwise each attempt on a full disk would leave one."""
        path = self.path(session)
        if path.exists() and path.stat().st_size == 0:
            path.unlink()

    def storage_is_full(self) -> bool:
        """Return True if too many bytes wait for the disk."""
        return self._journals.pending > PENDING_LIMIT

    def path(self, session: str) -> Path:
        """Return the path of a session's journal."""
        return self._journals.path(session)

    def row(self, session: str) -> SessionRow | None:
        """Return the row of a session; of one in memory, as of its last pause or failure."""
        return self._catalog.row(session)

    def successor(self, session: str) -> str | None:
        """Return the session that followed a session under the same key."""
        row = self._catalog.successor(session)
        return row.session if row else None

    # --- conversations ------------------------------------------------------------------------------------------------

    def _own(self, chat: Chat, conversation: Conversation) -> None:
        """Start a conversation: its `life` task may be cancelled at any time, even before its first step; its owner task
        never is, and always cleans up."""
        recorder = conversation.recorder
        recorder.on_durable(lambda: self._progressed(chat, recorder))
        self._indexer.begin(recorder)
        if self._pausing:
            conversation.pause()
        life = asyncio.create_task(conversation.run())
        self._lives[conversation.session] = life
        self._owners[conversation.session] = asyncio.create_task(self._end_of(chat, conversation, life))

    async def _end_of(self, chat: Chat, conversation: Conversation, life: asyncio.Task[None]) -> None:
        """Wait until a conversation has ended, close it and, if it failed, open it again."""
        await asyncio.wait([life])
        error = None if life.cancelled() else life.exception()
        if isinstance(error, SessionsError) or (error is not None and is_exhaustion(error)):
            log.error("conversation_dropped", session=conversation.session, reason=sentence_of(error))
        elif error is not None:
            log.error("conversation_failed", session=conversation.session, exc_info=error)
        # Unsettled until its state is recorded again below.
        self._indexer.put(conversation.recorder, settled=False)
        self._drop(chat, conversation)
        await self._close(chat, conversation)
        # Messages that never became durable must be accepted when they are sent again.
        chat.receipts.forget(conversation.session, after=conversation.recorder.durable)
        del self._lives[conversation.session], self._owners[conversation.session]
        if error is not None and not self._stopping:
            self._spawn(self._reopen(chat))
        elif conversation.retired and conversation.recorder.transcript.cycle.owed:
            self._unfinished.add((chat.person, chat.key))

    async def _stop(self, session: str) -> None:
        """End a conversation and return once it is closed; a running turn stays open in its log."""
        if life := self._lives.get(session):
            life.cancel()
            await asyncio.wait([self._owners[session]])

    def _drop(self, chat: Chat, conversation: Conversation) -> None:
        chat.finishing.pop(conversation.session, None)
        if chat.current is conversation:
            chat.current = None
            chat.switched()

    async def _close(self, chat: Chat, conversation: Conversation) -> None:
        await conversation.recorder.close()
        self._indexer.end(conversation.recorder, chat.receipts)
        chat.notify()

    async def _reopen(self, chat: Chat) -> None:
        """Open a failed chat again after a pause, so that accepted messages are answered without a new one."""
        name = (chat.person, chat.key)
        failures = self._failures.get(name, 0)
        self._failures[name] = failures + 1
        await asyncio.sleep(REOPEN_SECONDS[min(failures, len(REOPEN_SECONDS) - 1)])
        try:
            await self._restore(name)
        except SessionsError as error:
            log.error("session_not_opened", key=chat.key, reason=str(error))
            self._spawn(self._reopen(chat))

    def _progressed(self, chat: Chat, recorder: Recorder) -> None:
        """Handle newly durable events."""
        name = (chat.person, chat.key)
        self._last_activity[name] = self._clock.monotonic()
        if recorder.failure is None and recorder.durable_transcript.settled:
            self._failures.pop(name, None)
            self._indexer.progressed(recorder, chat.receipts)
        chat.notify()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self._finish_notes()
            now = self._clock.monotonic()
            for name, chat in tuple(self._chats.items()):
                if now - self._last_activity.get(name, now) > IDLE_SECONDS:
                    await self._unload_if_idle(name, chat)

    async def _finish_notes(self) -> None:
        """Open the ended sessions again whose notes could not be written, which tries to write them."""
        names, self._unfinished = self._unfinished, set()
        for name in names:
            try:
                await self._restore(name)
                self._last_activity.setdefault(name, self._clock.monotonic())
            except SessionsError as error:
                log.error("session_not_opened", key=name[1], reason=str(error))
                self._unfinished.add(name)

    async def _unload_if_idle(self, name: tuple[str, str], chat: Chat | None) -> None:
        async with self._lock(name):
            if chat is None or chat.current is None or not chat.idle or chat.watched:
                return
            self._chats.pop(name, None)
            self._last_activity.pop(name, None)
            self._failures.pop(name, None)
            await self._stop(chat.current.session)

    def _lock(self, name: tuple[str, str]) -> asyncio.Lock:
        """Return the lock of a name, held while its current session is opened, created or unloaded."""
        return self._locks.setdefault(name, asyncio.Lock())

    def _spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task
