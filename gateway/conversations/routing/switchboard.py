"""The switchboard: finds the chat of a message, opens it from its journals, and unloads it when it is idle.

After any failure, the state of a conversation in memory is not trusted: it is discarded and opened again from its journal,
as after a crash.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol, TypeVar
from weakref import WeakValueDictionary

import msgspec
import structlog

from gateway.config.routes import RouteAddress, agent_of
from gateway.config.settings import Settings
from gateway.conversations.deletion.deletions import Deletions
from gateway.conversations.routing.chat import AgentChoice, Chat
from gateway.conversations.routing.conversation import Conversation
from gateway.conversations.routing.conversation_runner import ConversationRunner
from gateway.conversations.routing.forks import Forks
from gateway.conversations.routing.live_sessions import LiveSessions
from gateway.conversations.routing.removals import Removals
from gateway.support.errors import Conflict, OwnedElsewhere, error_fields, sentence_of
from gateway.support.resource_limits import is_exhaustion
from plugins.api.context import Clock
from sessions.events.errors import JournalDamaged, SessionsError, StorageFailed, UnknownSession
from sessions.events.events import Succession
from sessions.store.catalog import WEBSOCKET, Catalog, Claim, Claims, Elsewhere, Name, SessionRow
from sessions.store.fork import Fork
from sessions.store.protocols import Store
from sessions.store.recorder import Recorder, add_unknown, open_session

if TYPE_CHECKING:
    from gateway.conversations.erasure.erasures import Erasures

DRAIN_SECONDS = 0.05
"""Seconds between two looks for conversations that a stopping gateway can hand over."""

HAND_OVER_SECONDS = 5.0
"""Seconds for which another gateway that wants a conversation waits until nothing runs in it."""

SWEEP_SECONDS = 60.0
"""Seconds between two checks for idle conversations, and for notes that could not be written."""

IDLE_SECONDS = 900.0
"""Seconds without events or subscribers after which a conversation leaves memory."""

RELAYED_SECONDS = 30.0
"""Seconds without events after which a conversation moves to the gateway of its clients, if this one has none."""

OPENED_AT_ONCE = 4
"""Conversations of a gateway that is gone that are opened at once: most of the time is spent waiting for the database."""

REOPEN_SECONDS = (0.5, 2.0, 10.0, 30.0)
"""Seconds before a failed conversation is opened again: after the first failure, the second, and so on."""

DELIVERY_SECONDS = 1.0
"""Seconds in which an answer has to be delivered before its conversation is handed over with it."""

T = TypeVar("T")

log = structlog.get_logger("exuvia.switchboard")


class LetGo(Protocol):
    """Forgets the answers of a conversation; see `ReplyDelivery.let_go`."""

    def __call__(self, name: Name, *, lost: bool) -> bool: ...


async def _not_obtained(_: Name, __: OwnedElsewhere) -> bool:
    return False


class SwitchboardLoad(msgspec.Struct, frozen=True, kw_only=True):
    """Counts over all conversations in memory: `running` turns, `waiting` messages and commands."""

    conversations: int
    running: int
    waiting: int
    subscriptions: int


def _log_fields(error: Exception) -> dict[str, Any]:
    """Return the fields of the log about an error, with its traceback unless it is one that is to be expected."""
    expected = isinstance(error, SessionsError) or is_exhaustion(error)
    return {"reason": sentence_of(error)} if expected else error_fields(error)


def _are_finished(conversations: Sequence[Conversation]) -> bool:
    """Return True if conversations that were stopped have nothing left to finish: none has received a message at its end."""
    return all(each.recorder.failure is None and each.recorder.transcript.finished for each in conversations)


async def _do_nothing(agent: str) -> None:
    """Open no agent."""


class Switchboard:
    """All chats of the gateway. Use as an async context manager: leaving it stops and closes every conversation."""

    def __init__(
        self,
        *,
        store: Store,
        catalog: Catalog,
        claims: Claims,
        build: Callable[[Chat, Recorder], Conversation],
        prepare: Callable[[str], Awaitable[None]] = _do_nothing,
        clock: Clock,
        settings: Settings,
        deletions: Deletions,
        erasures: Callable[[], Erasures],
    ) -> None:
        self._store = store
        self._catalog = catalog
        self._claims = claims
        self._settings = settings
        self._clock = clock
        self._runner = ConversationRunner(
            store, catalog, clock, build=build, prepare=prepare, check_claim=self._check_claim, ended=self._ended
        )
        self._forks = Forks(catalog, store, clock)
        self._chats: dict[Name, Chat] = {}
        self.sessions = LiveSessions(catalog, store, self._chats)
        self.removals = Removals(self, self.sessions, self._forks, deletions, erasures)
        self._locks = WeakValueDictionary[Name, asyncio.Lock]()
        self._unfinished: set[Name] = set()
        """The names of ended sessions whose notes could not be written."""
        self._stopping = False
        self.obtain: Callable[[Name, OwnedElsewhere], Awaitable[bool]] = _not_obtained
        """Has the owner of a conversation hand it over to this gateway; returns False if it does not."""
        self.let_go: LetGo = lambda name, *, lost: True
        """Ends the delivery of a conversation's answers here; returns False while one is being delivered."""
        self._background: set[asyncio.Task[Any]] = set()
        claims.on_lost(self._on_claim_lost)

    async def __aenter__(self) -> Switchboard:
        self.spawn(self._sweep())
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
        await self._runner.let_finish(seconds)

    async def interrupt(self) -> None:
        """End every conversation. A running turn stays open in its log, which records the interruption."""
        self._stopping = True
        chats = tuple(self._chats.values())
        self._chats.clear()
        open_ = [(chat, chat.settled, chat.conversations) for chat in chats]
        await self._runner.stop_all()
        for chat, settled, conversations in open_:
            chat.dropped = self._claims.shared
            await self._claims.release(chat.claim, settled=settled and _are_finished(conversations))
            chat.notify()

    async def drain(self) -> None:
        """Let other gateways have each conversation as soon as nothing runs or waits in it, until all are gone."""
        while self._chats:
            for name, chat in tuple(self._chats.items()):
                if chat.idle:
                    async with self._lock(name):
                        if chat.idle and self._chats.get(name) is chat:
                            await self._give_up(chat)
            await asyncio.sleep(DRAIN_SECONDS)

    async def hand_over(self, person: str, key: str, to: str) -> bool:
        """Let another gateway have a conversation, once nothing runs in it; return False if that takes too long.

        Answers that wait to be delivered here for long are left to the other gateway, unless a channel has one in its hands.
        """
        chat = self._chats.get((person, key))
        if chat is None:
            return True
        changed, began = asyncio.Event(), self._clock.monotonic()
        chat.watch(changed.set)
        try:
            async with asyncio.timeout(HAND_OVER_SECONDS):
                while True:
                    changed.clear()
                    async with self._lock(chat.name):
                        if self._chats.get(chat.name) is not chat:
                            return True
                        stuck = chat.only_delivers and self._clock.monotonic() - began >= DELIVERY_SECONDS
                        if chat.idle or (stuck and self.let_go(chat.name, lost=False)):
                            await asyncio.shield(self.spawn(self._give_up(chat, to)))
                            return True
                    with suppress(TimeoutError):
                        async with asyncio.timeout(DELIVERY_SECONDS):
                            await changed.wait()
        except TimeoutError:
            return False
        finally:
            chat.unwatch(changed.set)

    def load(self) -> SwitchboardLoad:
        conversations = self._runner.conversations
        return SwitchboardLoad(
            conversations=len(conversations),
            running=sum(c.recorder.transcript.open_turn is not None for c in conversations),
            waiting=sum(len(c.recorder.transcript.waiting) for c in conversations),
            subscriptions=sum(chat.subscribers for chat in self._chats.values()),
        )

    # --- chats --------------------------------------------------------------------------------------------------------

    async def chat_here(self, person: str, key: str, *, channel: str, chat_id: str = "", sender: str = "") -> Chat:
        """Return a person's chat, created if it does not exist; see `chat`. One that another gateway has is handed over,
        for what only this gateway can do. Raises Busy, StorageFailed."""
        for last in (False, True):
            try:
                chat = await self.chat(person, key, create=True, channel=channel, chat_id=chat_id, sender=sender)
            except OwnedElsewhere as owner:
                if last or not await self.obtain((person, key), owner):
                    raise
            else:
                assert chat is not None
                return chat
        raise AssertionError

    async def chat(
        self, person: str, key: str, *, create: bool, channel: str = WEBSOCKET, chat_id: str = "", sender: str = ""
    ) -> Chat | None:
        """Return a person's chat, opened from its journal if it is not in memory. Raises OwnedElsewhere if another gateway
        has it.

        Without `create`, the result is None for an unknown key. Raises StorageFailed.

        Args:
            person: The person.
            key: The person's name for the conversation.
            create: Begin a session if there is none.
            channel: Where the message came from, by which the agent of a new session is chosen.
            chat_id: The channel's own name of the chat.
            sender: The channel's own name of the sender.
        """
        name = (person, key)
        # Looked up again after each wait: the chat may have been unloaded meanwhile.
        while (chat := self._chats.get(name)) is None or not chat.is_open:
            if not create and await self._catalog.current(person, key) is None:
                return None
            # Shielded: if this caller is cancelled, others may still be waiting for the same chat.
            address = RouteAddress(channel=channel, person=person, chat=chat_id, sender=sender)
            choice = AgentChoice(agent=agent_of(self._settings.current, address))
            await asyncio.shield(self.spawn(self._restore(name, choice if create else None)))
        chat.last_activity = self._clock.monotonic()
        return chat

    async def begun_with(self, person: str, key: str, choice: AgentChoice) -> Chat:
        """Return a person's chat, whose session begins with this choice if there is none. Raises StorageFailed."""
        name = (person, key)
        while (chat := self._chats.get(name)) is None or not chat.is_open:
            await asyncio.shield(self.spawn(self._restore(name, choice)))
        chat.last_activity = self._clock.monotonic()
        return chat

    async def adopt(self) -> None:
        """Open the sessions with unfinished work whose gateway is gone, as long as this one serves."""
        while True:
            await self._claims.until_unowned()
            try:
                await self.resume_all()
            except Exception as error:  # the conversations still have no gateway
                log.error("sessions_not_adopted", **_log_fields(error))
                await asyncio.sleep(REOPEN_SECONDS[0])

    async def resume_all(self) -> None:
        """Open every session that a stop left with unfinished work."""
        failure: Exception | None = None
        places = asyncio.Semaphore(OPENED_AT_ONCE if self._claims.shared else 1)
        async with asyncio.TaskGroup() as tasks:
            try:
                async for name in self._claims.unowned():
                    await places.acquire()
                    tasks.create_task(self._resume(name)).add_done_callback(lambda _: places.release())
            except Exception as error:  # what was found is opened nevertheless
                failure = error
        if failure is not None:
            raise failure

    async def _resume(self, name: Name, failures: int = 0) -> None:
        regained = self._claims.regained
        try:
            if (chat := await self.chat(*name, create=False)) is None:
                async with self._lock(name):
                    if name not in self._chats:  # its owner was gone before a session of it began
                        await self._claims.release(await self._claim(name), settled=True)
        except OwnedElsewhere:
            return
        except Exception as error:
            log.error("session_not_opened", key=name[1], **_log_fields(error))
            if isinstance(error, StorageFailed) or not isinstance(error, SessionsError):  # else it would fail again
                self.spawn(self._resume_later(name, failures, regained))
        else:
            # If the catalog was lost, these are all sessions: unload the idle ones.
            try:
                await self._unload_if_idle(name, chat)
            except Exception as error:  # a sweep tries again
                log.error("session_not_closed", key=name[1], **_log_fields(error))

    async def _resume_later(self, name: Name, failures: int, regained: int) -> None:
        await self._pause(failures, regained)
        await self._resume(name, failures + 1)

    async def _pause(self, failures: int, regained: int) -> None:
        """Wait until something may be tried again that has failed so often; contact that was lost ends the pause when it
        comes back. `regained` is how often it had come back before the last attempt."""
        with suppress(TimeoutError):
            async with asyncio.timeout(REOPEN_SECONDS[min(failures, len(REOPEN_SECONDS) - 1)]):
                await self._claims.until_regained(regained)

    async def fork(self, person: str, parent: str, key: str | None, upto: int | None) -> Fork:
        """Begin a session under a new key that continues from an earlier event of another one. Raises the errors of
        `Forks.name` and `Forks.make`."""
        # Shielded: even if the caller is cancelled, the catalog must record the fork.
        return await asyncio.shield(self.spawn(self._fork(person, parent, key, upto)))

    async def _fork(self, person: str, parent: str, key: str | None, upto: int | None) -> Fork:
        while True:
            name = await self._forks.name(person, parent, key)
            async with self._lock(name), self._claimed(name):
                # While this waited for the lock, a message may have begun a session under this key.
                if await self._catalog.current(*name) is None:
                    return await self._forks.make(name, parent, self.sessions.durable(parent) if upto is None else upto)

    @asynccontextmanager
    async def importing(self, person: str, key: str) -> AsyncIterator[None]:
        """Keep a conversation, which need not exist, closed for as long as the block runs; new messages wait.

        Raises Conflict if it is in use, OwnedElsewhere if another gateway has it.
        """
        name = person, key
        async with self._lock(name):
            if (chat := self._chats.get(name)) is not None:
                if chat.subscribers or not chat.idle:
                    raise Conflict("it is open in a client; close it and import again")
                await self._close(chat)
            async with self._claimed(name):
                yield

    async def copy(self, parent: str, session: str, key: str, *, now: datetime, at: int) -> Fork:
        """Copy a session up to an event into a new one, whose conversation is being imported. See `Forks.copy`."""
        return await self._forks.copy(parent, session, key, now=now, at=at)

    @asynccontextmanager
    async def emptied(self, name: Name) -> AsyncIterator[None]:
        """Keep the sessions of a key closed while the block runs; its clients stay subscribed, and new messages wait.

        Another gateway that has it hands it over. Raises Conflict if a turn runs in it, or a message waits for one,
        OwnedElsewhere if another gateway keeps it.
        """
        async with self._stopped(name, obtain=True):
            yield

    @asynccontextmanager
    async def closed(self, person: str, key: str) -> AsyncIterator[list[SessionRow]]:
        """Close a person's conversation for as long as the block runs, and yield all its sessions; new messages wait.

        Unless the block calls `forget`, the conversation is opened again at the end, and its clients stay subscribed.

        Raises:
            UnknownSession: There is no such conversation.
            Conflict: A turn runs, or a message waits for one.
            StorageFailed: The conversation cannot be opened.
        """
        if await self.chat(person, key, create=False) is None:
            raise UnknownSession(f"There is no session {key}.")
        async with self._stopped((person, key)) as chat:
            if chat is not None:
                chat.damaged = None  # else it would still take a `/new`
            yield await self.sessions.of_key(person, key)

    @asynccontextmanager
    async def _stopped(self, name: Name, *, obtain: bool = False) -> AsyncIterator[Chat | None]:
        """Stop the conversations of a chat while the block runs; then open it again, unless it was forgotten meanwhile.

        Yields None if the chat is not in memory; its name is claimed all the same. Errors as for `emptied`.
        """
        chat: Chat | None = None
        try:
            async with self._lock(name), self._claimed(name, obtain=obtain) as claim:
                if (found := self._chats.get(name)) is not None:
                    self._require_idle(found)
                    chat = found
                elif claim.unfinished:  # what its last owner left is finished first, by the gateway that adopts it
                    raise Conflict(f"Another gateway's conversation {name[1]} is being taken over; try again shortly.")
                try:
                    if chat is not None:
                        await self._stop(chat)
                    yield chat
                finally:
                    if chat is not None:
                        chat.release()
                        if self._chats.get(name) is not chat:
                            await self._claims.release(chat.claim, settled=True)
        finally:
            if chat is not None:
                await self._open_again(chat)

    def forget(self, person: str, key: str) -> None:
        """Forget a conversation that is `closed`, because its deletion has begun."""
        self._chats.pop((person, key), None)
        self._unfinished.discard((person, key))

    def require_idle(self, person: str, key: str) -> None:
        """Raise Conflict if a turn runs in a conversation, or a message waits for one."""
        if (chat := self._chats.get((person, key))) is not None:
            self._require_idle(chat)

    def _require_idle(self, chat: Chat) -> None:
        if chat.has_turn or any(each.recorder.transcript.waiting for each in chat.conversations):
            raise Conflict(f"A turn is running in the conversation {chat.key}, or a message waits; stop it first.")

    async def _close(self, chat: Chat) -> None:
        """Stop the conversations of a chat that does nothing, whose lock is held, and forget the chat."""
        self._require_idle(chat)
        self.forget(*chat.name)
        await self._stop(chat)
        chat.release()
        await self._claims.release(chat.claim, settled=True)

    async def _stop(self, chat: Chat) -> None:
        """Stop the conversations of a chat, whose lock is held; new messages wait for its `release`."""
        chat.hold()
        for conversation in chat.conversations:
            await self._runner.stop(conversation.session)

    async def _open_again(self, chat: Chat) -> None:
        """Open a chat whose conversations were stopped, now or after a pause, unless it has left memory."""
        if self._stopping or self._chats.get(chat.name) is not chat:
            return
        try:
            await self._restore(chat.name)
        except Exception:  # what was accepted waits for the next attempt, which reports what fails
            self.spawn(self._reopen(chat))

    @asynccontextmanager
    async def _claimed(self, name: Name, *, obtain: bool = False) -> AsyncIterator[Claim]:
        """Hold the claim on a name, whose lock is held, and yield it. A chat in memory has the claim already and keeps it.
        With `obtain`, another gateway that has it is asked to hand it over."""
        if (chat := self._chats.get(name)) is not None:
            yield chat.claim
            return
        try:
            claim = await self._claim(name)
        except OwnedElsewhere as owner:
            if not obtain or not await self.obtain(name, owner):
                raise
            claim = await self._claim(name)
        try:
            yield claim
        finally:
            await self._claims.release(claim, settled=not claim.unfinished)

    async def _claim(self, name: Name) -> Claim:
        """Claim a person's key. Raises OwnedElsewhere, StorageFailed."""
        granted = await self._claims.claim(name)
        if isinstance(granted, Elsewhere):
            raise OwnedElsewhere(granted.gateway, granted.url)
        return granted

    async def _restore(self, name: Name, choice: AgentChoice | None = None) -> None:
        """Open the parts of a chat that are not in memory: its current session, and earlier ones with unfinished work.

        If there is no session, one begins with `choice`; without it nothing is opened: the conversation was deleted.
        """
        async with self._lock(name):
            chat = self._chats.get(name)
            if chat is None:
                chat = self._chats[name] = await self._new_chat(name)
            row = await self._catalog.current(*name)
            if row is None and choice is None:
                del self._chats[name]
                await self._claims.release(chat.claim, settled=True)
                return
            if row is None:
                assert choice is not None
                chat.current = await self._runner.begin(chat, None, choice)
            elif row.closed and not chat.is_open:
                # The journal of its successor was lost, and the operator has accepted the loss.
                succeeds = Succession(session=row.session, seq=row.head)
                chat.current = await self._runner.begin(chat, succeeds, choice or self._routed(name))
            else:
                if not chat.is_open:
                    await self._open_current(chat, row)
                await self._finish_older(chat, row)
            chat.notify()

    def _routed(self, name: Name) -> AgentChoice:
        address = RouteAddress(channel=WEBSOCKET, person=name[0])
        return AgentChoice(agent=agent_of(self._settings.current, address))

    async def _new_chat(self, name: Name) -> Chat:
        claim = await self._claim(name)
        try:
            receipts = await self._catalog.receipts(*name)
            self._check_claim(claim)
        except BaseException:
            await self._claims.release(claim, settled=False)
            raise
        chat = Chat(
            claim,
            receipts,
            store=self._store,
            catalog=self._catalog,
            settings=self._settings,
            begin=self._runner.begin,
            others=self,
            list_conversations=self.sessions.conversations,
            removals=self.removals,
        )
        chat.last_activity = self._clock.monotonic()
        return chat

    def _check_claim(self, claim: Claim) -> None:
        """Raise StorageFailed if a claim was lost meanwhile."""
        if not self._claims.holds(claim):
            raise StorageFailed("Another gateway has taken this conversation over; try again.")

    async def _open_current(self, chat: Chat, row: SessionRow) -> None:
        try:
            chat.current = await self._open(chat, row.session, successor=None)
        except JournalDamaged as damaged:
            self._report_damage(damaged)
            chat.damaged, chat.damaged_session = damaged, row.session
        else:
            chat.hold_for_successor()

    async def _finish_older(self, chat: Chat, row: SessionRow) -> None:
        """Open earlier sessions that a stop or a failure left with unanswered messages.

        One that cannot be opened is tried again later; it does not block the current one.
        """
        newer = row
        for older in self._catalog.chain(row.session):
            begun = newer.succeeds is not None and newer.succeeds.session == older.session
            if begun and not older.settled and not self._runner.runs(older.session):
                try:
                    chat.earlier[older.session] = await self._open(chat, older.session, successor=newer.succeeds)
                except JournalDamaged as damaged:
                    self._report_damage(damaged)
                except SessionsError as error:
                    log.error("session_not_opened", session=older.session, reason=str(error))
                    self.spawn(self._reopen(chat))
            newer = older

    async def _open(self, chat: Chat, session: str, *, successor: Succession | None) -> Conversation:
        """Open an existing journal and run its conversation. One with a `successor` only answers what it has received."""
        self._check_claim(chat.claim)
        opened = await open_session(self._store, self._catalog, session)
        try:
            await add_unknown(chat.receipts, opened)
            self._check_claim(chat.claim)
        except BaseException:
            await opened.log.close()
            raise
        conversation = await self._runner.resume(chat, opened.log, opened.position, opened.transcript)
        if successor is not None:
            conversation.retire(successor.seq)
        if not opened.verified:
            self.spawn(self._verify_in_background(chat, conversation))
        return conversation

    def _report_damage(self, damaged: JournalDamaged) -> None:
        """Report a damaged journal in the log and in `/status`."""
        log.error("journal_damaged", session=damaged.session, line=damaged.line, reason=damaged.reason)
        self._catalog.unreadable[damaged.session] = damaged.reason

    async def _verify_in_background(self, chat: Chat, conversation: Conversation) -> None:
        """Verify the part of a large journal that a checkpoint skipped. If it is damaged, stop its conversation; if that is
        the current one, the key accepts no messages but `/new`."""
        session = conversation.session
        try:
            await self._store.verify(session)
        except JournalDamaged as damaged:
            self._report_damage(damaged)
            async with self._lock(chat.name):
                if chat.current is conversation:
                    chat.damaged, chat.damaged_session = damaged, session
                if chat.conversation(session) is conversation:
                    await self._runner.stop(session)
        except SessionsError as error:
            log.error("journal_not_verified", session=session, reason=str(error))

    def _ended(self, chat: Chat, conversation: Conversation, error: BaseException | None) -> None:
        """After a failure, open the chat again; after a regular end, remember a chat whose notes are still to be written."""
        if chat.dropped:
            return
        if error is not None and not self._stopping:
            self.spawn(self._reopen(chat))
        elif conversation.retired and conversation.recorder.transcript.cycle.owed:
            self._unfinished.add(chat.name)

    async def _reopen(self, chat: Chat, regained: int | None = None) -> None:
        """Open a failed chat again after a pause, so that accepted messages are answered without waiting for a new one. For
        `regained` see `_pause`."""
        failures, chat.failures = chat.failures, chat.failures + 1
        await self._pause(failures, self._claims.regained if regained is None else regained)
        regained = self._claims.regained
        try:
            await self._restore(chat.name)
        except OwnedElsewhere:
            return
        except Exception as error:  # accepted messages wait for the next attempt, whatever failed
            log.error("session_not_opened", key=chat.key, **_log_fields(error))
            self.spawn(self._reopen(chat, regained))

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            await self._finish_notes()
            now = self._clock.monotonic()
            for name, chat in tuple(self._chats.items()):
                idle = now - chat.last_activity
                try:
                    if idle > IDLE_SECONDS:
                        await self._unload_if_idle(name, chat)
                    elif idle > RELAYED_SECONDS and chat.only_relayed:
                        await self._move_to_its_clients(name, chat)
                except Exception as error:
                    log.error("session_not_closed", key=chat.key, **_log_fields(error))

    async def _finish_notes(self) -> None:
        """Open ended sessions whose notes could not be written. This tries to write the notes again."""
        names, self._unfinished = self._unfinished, set()
        for name in names:
            try:
                await self._restore(name)
            except OwnedElsewhere:
                continue
            except Exception as error:  # the next sweep tries again
                log.error("session_not_opened", key=name[1], **_log_fields(error))
                self._unfinished.add(name)

    async def _unload_if_idle(self, name: Name, chat: Chat | None) -> None:
        async with self._lock(name):
            if chat is None or chat.current is None or not chat.idle or chat.subscribers:
                return
            await self._give_up(chat)

    async def _move_to_its_clients(self, name: Name, chat: Chat) -> None:
        """Let one of the gateways have an idle conversation at which its clients are, for example after a takeover."""
        async with self._lock(name):
            if chat.idle and chat.only_relayed and self._chats.get(name) is chat:
                await self._give_up(chat)

    async def _give_up(self, chat: Chat, to: str = "") -> None:
        """Close the conversations of a chat, whose lock is held, and let another gateway claim it: the one named `to`, or
        any."""
        settled, conversations = chat.settled, chat.conversations
        self._drop(chat)
        for conversation in conversations:
            await self._runner.stop(conversation.session)
        await self._claims.release(chat.claim, settled=settled and _are_finished(conversations), to=to)
        chat.notify()

    def _drop(self, chat: Chat) -> None:
        chat.dropped, chat.unloaded = self._claims.shared, True
        if self._chats.get(chat.name) is chat:
            del self._chats[chat.name]

    def _on_claim_lost(self, claim: Claim) -> None:
        """Drop a chat that another gateway has taken over."""
        if (chat := self._chats.get(claim.name)) is not None and chat.claim == claim:
            self._drop(chat)
            self.let_go(chat.name, lost=True)
            for conversation in chat.conversations:
                self.spawn(self._runner.stop(conversation.session))
            chat.notify()

    def _lock(self, name: Name) -> asyncio.Lock:
        """Return the lock of a name, held while its current session is opened, created or unloaded."""
        return self._locks.setdefault(name, asyncio.Lock())

    def spawn(self, work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a task that is cancelled when the switchboard ends."""
        task = asyncio.create_task(work)
        self._background.add(task)
        task.add_done_callback(self._background.discard)
        return task
