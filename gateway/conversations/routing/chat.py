"""A chat: one person's key with its current session, and earlier sessions that still answer what they received.

A key is the name that a client uses (`main`); `/new` begins the next session under it. The chat knows the ids of received
messages, the journal that a message belongs to, and the subscribers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Protocol

import msgspec

from gateway.config.routes import RouteAddress, agent_of
from gateway.config.settings import Settings
from gateway.conversations.routing.conversation import Conversation
from gateway.conversations.routing.conversation_list import ListedConversation
from gateway.conversations.turn.typed_commands import OutcomeUnknown
from gateway.protocol.slash_commands import TypedCommand
from gateway.support.errors import Busy, Conflict, DamagedSession, OwnedElsewhere, QueueFull
from gateway.support.session_status import count_of
from sessions.events.errors import JournalDamaged, StorageFailed
from sessions.events.events import MAIN_AGENT, ChildOf, MessageReceived, MessageWithdrawn, SettingChanged, Succession
from sessions.store.catalog import Catalog, Claim, Name
from sessions.store.protocols import Store
from sessions.store.reading import StoredLog
from sessions.store.receipts import Receipt, Receipts, digest_of

PAGE_BYTES = 512 * 1024
"""Bytes of lines that are read from a journal at a time."""

PENDING_BYTES = 4 * 1024 * 1024
"""Maximum bytes of one session that wait to be written before new messages are refused."""

PENDING_LIMIT = 64 * 1024 * 1024
"""The same for all sessions together."""

CORRECTION = "This replaces an earlier message of mine, which I have edited:"
"""The beginning of an edited message whose first version a turn has taken."""

COMMANDS_WAITING = 100
"""Maximum commands that wait for an answer at once."""


AGENT = "agent"
"""The setting of a conversation whose person has chosen the agent of its next sessions."""


class AcceptedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a message in its journal. Acknowledge the message only after `Chat.until_durable` has returned."""

    session: str
    seq: int
    duplicate: bool


class AgentChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The agent of a new session. If a person has chosen it, it answers in the following sessions of the key, too."""

    agent: str
    by_person: bool = False
    parent: ChildOf | None = None
    """Set for a subagent."""

    def events(self, person: str) -> tuple[SettingChanged, ...]:
        """Return the events that record the choice in the new session."""
        return (SettingChanged(name=AGENT, value=self.agent, by=person),) if self.by_person else ()


class Conversations(Protocol):
    """What a chat can do with all conversations of the gateway."""

    @property
    def obtain(self) -> Callable[[Name, OwnedElsewhere], Awaitable[bool]]:
        """Has the owner of a conversation hand it over to this gateway; returns False if it does not."""
        ...

    async def chat(self, person: str, key: str, *, create: bool) -> Chat | None:
        """Return a person's chat; see `Switchboard.chat`."""
        ...

    async def begun_with(self, person: str, key: str, choice: AgentChoice) -> Chat:
        """Return a person's chat, whose session begins with this choice if there is none. Raises OwnedElsewhere,
        StorageFailed."""
        ...


class ChatRemovals(Protocol):
    """Removes a conversation, or one message of it, once it is idle."""

    async def delete_when_idle(self, chat: Chat, session: str, *, facts: bool) -> None:
        """Record durably that the conversation of a session is to be deleted, and delete it in the background, once nothing
        runs or waits in it. Raises StorageFailed."""
        ...

    async def erase_when_idle(self, chat: Chat, session: str, message: int | None) -> None:
        """Record durably that the message with this seq of a session, or the whole conversation, is to be erased, and erase
        it in the background, once nothing runs or waits in it. Raises StorageFailed."""
        ...


class Chat:
    """One person's key while it is open, with its current session and earlier ones.

    Args:
        claim: The right to write its sessions.
        receipts: The ids of received messages.
        store: The logs of all sessions.
        catalog: The catalog of all sessions.
        settings: The configuration in force.
        others: All conversations, for commands about them.
        list_conversations: Returns a person's conversations, in the order of their keys.
        removals: Deletes and erases, for commands.
        begin: Begins a session of this key with an agent, optionally as the successor of another, and returns its running
            conversation.
    """

    def __init__(
        self,
        claim: Claim,
        receipts: Receipts,
        *,
        store: Store,
        catalog: Catalog,
        settings: Settings,
        begin: Callable[[Chat, Succession | None, AgentChoice], Awaitable[Conversation]],
        others: Conversations,
        list_conversations: Callable[[str], Awaitable[list[ListedConversation]]],
        removals: ChatRemovals,
    ) -> None:
        self.claim = claim
        self.name = claim.name
        self.person, self.key = claim.name
        self.receipts = receipts
        self.others = others
        self.list_conversations = list_conversations
        self.removals = removals
        self.current: Conversation | None = None
        self.earlier: dict[str, Conversation] = {}
        """The earlier sessions that still answer what they received, by id."""
        self.damaged: JournalDamaged | None = None
        self.damaged_session = ""
        self.last_activity = 0.0
        """The time of the last use or durable event, on the monotonic clock."""
        self.stop_children: Callable[[], bool] = lambda: False
        """Stops the running turns of subagents; returns False if none runs."""
        self.failures = 0
        """Consecutive failures of conversations."""
        self._store = store
        self._catalog = catalog
        self._settings = settings
        self._begin = begin
        self.dropped = False
        """True once the chat has left memory while it had subscribers: another gateway has it, or may have it."""
        self.unloaded = False
        """True once the chat leaves memory, while its journals are being closed and after that."""
        self._held: asyncio.Future[None] | None = None
        """Set while new messages wait for the next session."""
        self._doubted: Conversation | None = None
        """A conversation that ends because it may have a successor, to which new messages belong then."""
        self._watchers: set[Callable[[], None]] = set()
        self._relayed: set[Callable[[], None]] = set()
        """Those of the watchers that are other gateways."""

    @property
    def subscribers(self) -> int:
        return len(self._watchers)

    @property
    def conversations(self) -> list[Conversation]:
        return [*self.earlier.values(), *([self.current] if self.current else [])]

    @property
    def has_turn(self) -> bool:
        """Return True if a turn runs, or waits for the answer to a question."""
        return any(each.recorder.transcript.open_turn is not None for each in self.conversations)

    @property
    def is_open(self) -> bool:
        """Return True if messages can be received, or if the journal is known to be damaged."""
        return self.current is not None or self.damaged is not None

    @property
    def idle(self) -> bool:
        """Return True if nothing runs or waits, and no new session is being started."""
        return self._held is None and not self.earlier and (self.current is None or self.current.idle)

    @property
    def settled(self) -> bool:
        """Return True if nothing is left to finish, here or by whoever opens the chat next."""
        transcripts = [each.recorder.durable_transcript for each in self.conversations]
        failed = any(each.recorder.failure is not None for each in self.conversations)
        return self.idle and self.is_open and not failed and all(each.finished for each in transcripts)

    @property
    def only_delivers(self) -> bool:
        """Return True if nothing runs or waits, and at most answers are to be delivered."""
        current = self.current
        rests = current is not None and not current.busy and current.recorder.transcript.settled
        return self._held is None and not self.earlier and rests

    def conversation(self, session: str) -> Conversation | None:
        if self.current is not None and self.current.session == session:
            return self.current
        return self.earlier.get(session)

    def remove(self, conversation: Conversation) -> None:
        self.earlier.pop(conversation.session, None)
        if self.current is conversation:
            self.current = self._doubted = None
            self.release()

    @property
    def only_relayed(self) -> bool:
        """True if there are subscribers, and all of them are relayed by other gateways."""
        return bool(self._watchers) and self._watchers == self._relayed

    def watch(self, watcher: Callable[[], None], *, relayed: bool = False) -> None:
        """Call `watcher` on changes: a durable event, a piece of an answer, a new session. `relayed` tells that it is
        another gateway's."""
        self._watchers.add(watcher)
        if relayed:
            self._relayed.add(watcher)

    def unwatch(self, watcher: Callable[[], None]) -> None:
        self._watchers.discard(watcher)
        self._relayed.discard(watcher)

    def notify(self) -> None:
        for watcher in tuple(self._watchers):
            watcher()

    async def receive(self, message: MessageReceived, typed: TypedCommand | None) -> AcceptedMessage:
        """Append a message to the journal of the current session, or find the earlier message that it repeats.

        `typed` is the command in the message, if it is one. Raises Conflict, Busy, DamagedSession or StorageFailed; then the
        message was not accepted.
        """
        while self._held is not None:
            await asyncio.shield(self._held)
        opens = typed is not None and typed.opens_session
        damaged = self.damaged is not None and self.receipts.find(message.id) is None
        if damaged and typed is not None and typed.always_opens_session:
            return await self._replace_damaged(message, typed)
        if receipt := self.receipts.find(message.id):
            return self._repeated(message, receipt)
        if self.damaged is not None:
            raise DamagedSession(
                f"The log of this session is damaged ({self.damaged}). Nothing was changed; /new starts another session."
            )
        if self.unloaded:  # by now nobody would answer it
            raise Busy("The conversation is being closed; try again.")
        current = self._require_current()
        unwritten = current.recorder.log.end - current.recorder.log.durable
        if unwritten > PENDING_BYTES or self._store.pending > PENDING_LIMIT:
            raise Busy("The disk cannot keep up; try again shortly.")
        if not message.edits or typed is not None or self._waiting_in(message, current, typed) is None:
            self._check_room(current, is_command=typed is not None)
        if opens:
            self.hold()
        try:
            return self._append(current, message, typed)
        except BaseException:
            self.release()
            raise

    def _check_room(self, current: Conversation, *, is_command: bool) -> None:
        """Raise QueueFull if the inbox is full. Commands have a limit of their own, so that `/stop` gets through."""
        limit = COMMANDS_WAITING if is_command else self._settings.current.sessions.queue_limit
        if current.inbox.count(commands=is_command) >= limit:
            waiting = count_of(limit, "command" if is_command else "message")
            raise QueueFull(f"{waiting} {'is' if limit == 1 else 'are'} already waiting; try again later.")

    async def withdraw(self, id_: str, by: str) -> bool:
        """Withdraw a waiting message that was deleted, durably; return False if it does not wait. Raises StorageFailed."""
        for conversation in self.conversations:
            if (seq := conversation.inbox.waiting(id_)) is not None:
                await conversation.recorder.append_durable(MessageWithdrawn(of=seq, by=by))
                return True
        return False

    def _append(self, current: Conversation, message: MessageReceived, typed: TypedCommand | None) -> AcceptedMessage:
        """Append a message to the current session, or where the message waits that it replaces."""
        to = self._waiting_in(message, current, typed) if message.edits else current
        if message.edits and to is None:
            known = self.receipts.find(message.edits) is not None and typed is None
            text = f"{CORRECTION}\n\n{message.text}" if known else message.text
            message = msgspec.structs.replace(message, edits="", text=text)
        to = to or current
        seq = to.receive(message, typed)
        self.receipts.add(to.session, seq, message)
        return AcceptedMessage(session=to.session, seq=seq, duplicate=False)

    def _waiting_in(
        self, message: MessageReceived, current: Conversation, typed: TypedCommand | None
    ) -> Conversation | None:
        """Return the conversation in which a message that was edited waits for its turn: the current one, or one before a
        `/new`, which takes no commands any more."""
        places = (current, *self.earlier.values()) if typed is None else (current,)
        return next((each for each in places if each.inbox.waiting(message.edits) is not None), None)

    def _repeated(self, message: MessageReceived, receipt: Receipt) -> AcceptedMessage:
        if not message.edits and receipt.digest != digest_of(message.text, message.attachments):
            raise Conflict("This id was already used for another message; send the message with a new id.")
        return AcceptedMessage(session=receipt.session, seq=receipt.seq, duplicate=True)

    async def until_durable(self, received: AcceptedMessage) -> None:
        """Return once the message is durable. Raises StorageFailed if it never will be."""
        if conversation := self.conversation(received.session):
            await conversation.recorder.until_durable(received.seq)
        elif received.seq > (self.head(received.session) or 0):
            raise StorageFailed("The message could not be stored; send it again.")

    def stop_turns(self) -> bool:
        """Cancel the running turns of this key, including those of earlier sessions and of subagents; return False if none
        runs."""
        stopped = [conversation.stop() for conversation in self.conversations]
        return any([*stopped, self.stop_children()])

    def hold_for_successor(self) -> None:
        """Hold back new messages if a `/new` waits in the current session, which a restart may have left unanswered."""
        if self._held is None and any(each.typed.opens_session for each in self._require_current().inbox.commands()):
            self.hold()

    def hold(self) -> None:
        """Let new messages wait until `release`."""
        self._held = asyncio.get_running_loop().create_future()

    def release(self) -> None:
        """Accept messages again."""
        if self._held is not None and not self._held.done():
            self._held.set_result(None)
        self._held = None

    def next_agent(self, message: MessageReceived) -> AgentChoice:
        """Return the agent of a session that begins with a message: the one that the person chose, or else as routes say."""
        config = self._settings.current
        chosen = self.current.recorder.transcript.settings.get(AGENT) if self.current is not None else None
        if chosen is not None and (chosen == MAIN_AGENT or chosen in config.agents):
            return AgentChoice(agent=chosen, by_person=True)
        address = RouteAddress(
            channel=message.channel,
            person=self.person,
            chat=message.reply_to,
            sender=message.client if message.reply_to else "",
        )
        return AgentChoice(agent=agent_of(config, address))

    async def start_anew(self, old: Conversation, seq: int, choice: AgentChoice) -> str:
        """Begin the key's next session and return its id. `seq` is that of the `/new` in `old`.

        Raises:
            Conflict: A newer session was started before.
            OutcomeUnknown: The session may have begun. `old` ends, and the chat is opened again as it is stored.
            StorageFailed: No session has begun.
        """
        if old is not self.current:
            raise Conflict("A newer session has already been started.")
        try:
            self.current = await self._begin(self, Succession(session=old.session, seq=seq), choice)
        except OutcomeUnknown:
            self._doubted = old
            raise
        finally:
            self.release()
        self.earlier[old.session] = old
        old.retire(seq)
        self.notify()
        return self.current.session

    async def _replace_damaged(self, message: MessageReceived, typed: TypedCommand) -> AcceptedMessage:
        """Begin a new session after a damaged one. Its journal also records the `/new`."""
        assert self.damaged is not None
        self.hold()
        try:
            succeeds = Succession(session=self.damaged_session, seq=self.damaged.good_seq)
            self.current = current = await self._begin(self, succeeds, self.next_agent(message))
            self.damaged = None
            current.commands.by_successor = current.recorder.transcript.head + 1
            accepted = self._append(current, message, typed)
        except BaseException:
            if self._catalog.successor(self.damaged_session) is not None:
                self.damaged = None  # the successor exists and is opened for the next message; do not create another
            raise
        finally:
            self.release()
        self.notify()
        return accepted

    def _require_current(self) -> Conversation:
        if self.current is None or self.current is self._doubted:
            raise StorageFailed("This conversation is being opened again; try again shortly.")
        return self.current

    def settings(self, changed: Conversation | None = None) -> dict[str, Any]:
        """Return the settings of the current session as clients are told them.

        Args:
            changed: The conversation whose settings were changed. It is used if the chat was closed meanwhile.
        """
        if (current := self.current or changed) is None:
            return self._damaged_settings()
        agent = current.recorder.transcript.agent
        return {
            "session_id": current.session,
            "queue": current.inbox.mode,
            "verbose": current.verbose,
            "title": current.title,
            "pinned": current.pinned,
            "archived": current.archived,
            **({"agent": agent} if agent != MAIN_AGENT else {}),
            **current.settings.chosen,
        }

    def _damaged_settings(self) -> dict[str, Any]:
        """Return the settings of a session whose log cannot be read: the defaults, and what the catalog knows."""
        config, row = self._settings.current, self._catalog.row(self.damaged_session)
        return {
            "session_id": self.damaged_session,
            "queue": config.sessions.queue,
            "verbose": config.agent.verbose,
            "title": row.title if row is not None else "",
            "pinned": row is not None and row.pinned,
            "archived": row is not None and row.archived,
        }

    def head(self, session: str) -> int | None:
        """Return the last durable seq of a session; None if the session does not belong to this key."""
        if conversation := self.conversation(session):
            return conversation.recorder.durable
        row = self._catalog.row(session)
        return row.head if row is not None and row.name == self.name else None

    def has_ended(self, session: str) -> bool:
        """Return True if a session will have no further events: it has a successor, and no unfinished work."""
        row = self._catalog.row(session)
        return self.conversation(session) is None and row is not None and (row.settled or row.closed)

    def durable_bytes(self, session: str) -> int | None:
        conversation = self.conversation(session)
        return conversation.recorder.position.offset if conversation else None

    def recent(self, session: str, after: int) -> Sequence[bytes] | None:
        """Return the durable lines after a seq from memory; None if `lines` must read them."""
        conversation = self.conversation(session)
        return conversation.recorder.recent(after) if conversation else None

    async def lines(self, session: str, first: int, *, limit: int = PAGE_BYTES) -> list[bytes]:
        """Return durable lines from seq `first`, about `limit` bytes in total."""
        if conversation := self.conversation(session):
            return await conversation.recorder.log.lines(first, limit=limit)
        return await asyncio.to_thread(StoredLog(self._store, session).lines, first, limit)

    def successor(self, session: str) -> str | None:
        if self.current is not None and self.current.session == session:
            return None
        row = self._catalog.successor(session)
        return row.session if row else None
