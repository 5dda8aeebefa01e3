"""One websocket connection: reads the client's frames and handles them in order."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import tzinfo
from typing import TYPE_CHECKING

import msgspec
import structlog
from aiohttp import WSCloseCode, WSMsgType, web

from gateway.auth.access import Access
from gateway.auth.limits import UnauthenticatedLimit
from gateway.auth.people import Admission
from gateway.conversations.approvals.gate import UnknownApproval
from gateway.conversations.approvals.open_questions import Answerer, NotYourQuestion, OpenQuestions
from gateway.conversations.deletion.deletions import DeletedConversation
from gateway.conversations.routing.chat import AcceptedMessage, AgentChoice, Chat
from gateway.conversations.routing.session_updates import SessionUpdate, SessionUpdates
from gateway.conversations.routing.switchboard import Switchboard
from gateway.http.outbox import Outbox
from gateway.http.responses import EXHAUSTED
from gateway.http.subscribers import page_before
from gateway.http.uploads import UnknownAttachment, Uploads
from gateway.protocol import frames
from gateway.protocol.frames import ATTACHMENTS, FRAME_LIMIT, PROTOCOL, InvalidFrame
from gateway.protocol.slash_commands import parse_command
from gateway.status.problems import Readiness
from gateway.support.errors import (
    Busy,
    Conflict,
    GatewayError,
    ModelUnknown,
    OwnedElsewhere,
    SettingRefused,
    error_fields,
    sentence_of,
)
from gateway.support.printable import one_line
from gateway.support.resource_limits import is_exhaustion
from plugins.api.command import CommandHelp
from sessions.events.errors import SessionsError, UnknownSession
from sessions.events.events import MAIN_AGENT, MessageReceived
from sessions.events.handed_messages import client_name
from sessions.events.messages import Attachment
from sessions.store.catalog import portions
from sessions.store.fork import ForkRefused

if TYPE_CHECKING:
    from gateway.http.relay.key_relay import KeyRelay
    from gateway.http.relay.links import Links
    from gateway.http.relay.request_relay import RequestRelay
    from gateway.http.relay.update_relay import UpdateRelay

UNAUTHORIZED = 4401
"""Close code for a wrong or missing token."""

DAMAGED = "The log of this session is damaged; /new starts a new session."

BEHIND = "This gateway has lost contact with the database, and another one may have the conversation; try again shortly."

AGENTS_NAMED = 8
"""Maximum agents that an error names."""

REVOKED = "the token of this connection is no longer valid"

LIMITS = {"frame": FRAME_LIMIT, "id": 128, "history": 500, "attachments": ATTACHMENTS}
"""The limits in `welcome`: bytes, characters, events, files of a message. `attachment`, the bytes of a file, is
configured."""

log = structlog.get_logger("exuvia.websocket")


class ConnectionServices(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a gateway that the connections use.

    `unauthenticated` counts the connections that have not authenticated yet. `questions` are the open questions about tool
    calls, `updates` those of lists of conversations. `program` is the name and version in `welcome`, `model` returns the
    model that would answer now, if any, `verbose` returns the default for showing tools and tokens, `zone` the configured
    time zone (None for the system's), and `commands` are those that clients can complete.
    """

    switchboard: Switchboard
    questions: OpenQuestions
    updates: SessionUpdates
    access: Access
    unauthenticated: UnauthenticatedLimit
    uploads: Uploads
    readiness: Readiness
    program: str
    model: Callable[[], str | None]
    verbose: Callable[[], bool]
    zone: Callable[[], tzinfo | None]
    commands: Sequence[CommandHelp]
    agents: Callable[[], Sequence[str]] = lambda: (MAIN_AGENT,)
    """Returns the agents, `main` first."""
    links: Links | None = None
    """Connections to the other gateways of a cluster."""
    request_relay: RequestRelay | None = None
    """Handles requests about conversations that other gateways may have."""
    update_relay: UpdateRelay | None = None
    """Follows the lists of conversations on the other gateways."""
    gateway: Callable[[], str | None] = lambda: None
    """Returns the id of this gateway in its cluster."""


class FrameRefused(Exception):
    """A frame that cannot be handled; `code` and `fields` go into the `error` frame."""

    def __init__(self, code: str, sentence: str, **fields: int) -> None:
        super().__init__(sentence)
        self.code = code
        self.fields = fields


def error_frame(error: Exception, frame_id: str | None) -> bytes:
    """Return the `error` frame for a failure to handle the frame with this id."""
    match error:
        case FrameRefused():
            return frames.error(error.code, str(error), frame_id, **error.fields)
        case UnknownAttachment() | UnknownApproval() | SettingRefused() | ModelUnknown():
            return frames.error("bad_request", str(error), frame_id)
        case NotYourQuestion():
            return frames.error("unauthorized", str(error), frame_id)
        case Conflict():
            return frames.error("conflict", str(error), frame_id)
        case Busy():
            return frames.error("busy", str(error), frame_id, retry_after=1)
        case _:
            return frames.error("storage_failed", sentence_of(error), frame_id)


class Connection:
    """One connection to a client. `serve` handles its frames in order; the outbox sends the frames to it."""

    def __init__(self, socket: web.WebSocketResponse, services: ConnectionServices, *, relayed: bool = False) -> None:
        self._socket = socket
        self._services = services
        self._outbox = Outbox(socket, self._close_soon, self._on_moved, relayed=relayed)
        self._relayed = relayed
        """True if the client is another gateway, which relays for a person."""
        self._relay: KeyRelay | None = None
        self.admission: Admission | None = None
        """The authenticated person; None before the handshake."""
        self.client = "unnamed"
        self._tasks: set[asyncio.Future[None]] = set()
        self._deleting: dict[str, str] = {}
        """By key, the id of the frame that asked to delete it."""
        self._unwatch_updates: Callable[[], None] | None = None
        self._held_updates: list[SessionUpdate] | None = None
        """While the list of conversations is made, the updates that are sent after it."""
        self._closed = False

    @property
    def _person(self) -> str:
        assert self.admission is not None
        return self.admission.person.id

    async def serve(self, admission: Admission) -> None:
        """Handle frames until either side closes the connection."""
        self.admission = admission
        if not self._services.access.still_admits(admission):  # the token may have been replaced during the upgrade
            await self.close(UNAUTHORIZED, REVOKED)
            return
        self._welcome()
        writer = asyncio.create_task(self._outbox.write())
        writer.add_done_callback(self._writer_ended)
        unwatch = self._services.switchboard.removals.on_deleted(self._on_deleted)
        try:
            await self._read()
        finally:
            unwatch()
            if self._unwatch_updates is not None:
                self._unwatch_updates()
            self._outbox.unfollow_all()
            if self._relay is not None:
                await self._relay.close()
            tasks = {writer, *self._tasks}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def close(self, code: int, reason: str) -> None:
        """Close the connection, unless it is closed already."""
        if not self._closed:
            self._closed = True
            await self._socket.close(code=code, message=reason.encode(), drain=False)

    async def until_sent(self) -> None:
        """Return once everything that waited for the client has been sent."""
        await self._outbox.until_sent()

    async def until_finished(self) -> None:
        """Return once all tasks of this connection have ended."""
        if self._tasks:
            await asyncio.wait(self._tasks)

    def revoke(self) -> None:
        """Close the connection because its token is no longer valid; nothing is sent or handled after this."""
        self._outbox.unfollow_all()
        self._close_soon(UNAUTHORIZED, REVOKED)

    def refuse_hello(self) -> None:
        """Close the connection because its first frame is too large."""
        self._close_soon(WSCloseCode.MESSAGE_TOO_BIG, "the first frame is too large")

    def _writer_ended(self, writer: asyncio.Task[None]) -> None:
        if not writer.cancelled() and (error := writer.exception()) is not None:
            log.error("writer_failed", client=self.client, reason=sentence_of(error), exc_info=error)
            self._close_soon(WSCloseCode.INTERNAL_ERROR, "the gateway failed to write to this connection")

    def _close_soon(self, code: int, reason: str) -> None:
        if not self._closed:
            self._spawn(self.close(code, reason))

    @property
    def is_relayed(self) -> bool:
        """True if the client is another gateway."""
        return self._relayed

    # --- reading ------------------------------------------------------------------------------------------------------

    def _welcome(self) -> None:
        services = self._services
        assert self.admission is not None
        welcome = frames.frame(
            "welcome",
            protocol=PROTOCOL,
            server=services.program,
            limits={**LIMITS, "attachment": services.uploads.limit()},
            model=services.model(),
            person=self.admission.person,
            verbose=services.verbose(),
            commands=services.commands,
            gateway=services.gateway(),
            agents=agents if len(agents := services.agents()) > 1 else None,
        )
        self._outbox.answer(welcome)

    async def _read(self) -> None:
        while True:
            await self._outbox.until_room()
            message = await self._socket.receive()
            if self._closed:
                return
            if message.type is WSMsgType.TEXT:
                await self._receive(message.data)
            elif message.type is WSMsgType.BINARY:
                self._outbox.answer(frames.error("bad_frame", "Frames are JSON text, not bytes."))
            else:
                return

    async def _receive(self, text: str) -> None:
        if len(text) > FRAME_LIMIT or len(text.encode("utf-8", "surrogatepass")) > FRAME_LIMIT:
            self._outbox.answer(
                frames.error("too_large", f"Frames are limited to {FRAME_LIMIT:,} bytes.", frames.id_in(text))
            )
            return
        try:
            frame = frames.parse(text)
        except InvalidFrame as error:
            self._outbox.answer(frames.error("bad_frame", str(error), error.id))
            return
        try:
            if self._relay is not None and self._relay.has(frame):
                self._relay.forward(frame, text)
                return
            await self._handle(frame)
        except OwnedElsewhere:
            self._pass_on(frame, text)
        except (FrameRefused, SessionsError, GatewayError, UnknownAttachment) as error:
            self._outbox.answer(error_frame(error, frame.id if not isinstance(frame, frames.Hello) else None))
        except (MemoryError, OSError, RuntimeError) as error:
            if not is_exhaustion(error):
                raise
            log.error("resources_exhausted", client=self.client, frame=type(frame).__name__, reason=sentence_of(error))
            self._outbox.answer(error_frame(Busy(EXHAUSTED), frame.id if not isinstance(frame, frames.Hello) else None))

    async def _handle(self, frame: frames.ClientFrame) -> None:  # noqa: PLR0912 - one arm for each type
        match frame:
            case frames.Send():
                await self._send(frame)
            case frames.Subscribe():
                await self._subscribe(frame)
            case frames.Unsubscribe():
                await self._existing(frame.session)
                self._outbox.unfollow(frame.session)
            case frames.Cancel():
                chat = await self._existing(frame.session)
                chat.stop_turns()
            case frames.History():
                await self._history(frame)
            case frames.Sessions():
                await self._sessions(frame)
            case frames.Fork():
                await self._fork(frame)
            case frames.Rename() | frames.Pin() | frames.Archive():
                await self._set(frame)
            case frames.Delete():
                await self._services.switchboard.chat(self._person, frame.session, create=False)  # if another has it
                self._spawn(self._delete(frame))
            case frames.Configure():
                await self._configure(frame)
            case frames.Approve():
                await self._existing(frame.session)
                self._spawn(self._approve(frame))
            case frames.Ping():
                self._outbox.answer(frames.frame("pong", id=frame.id))
            case frames.Hello():
                if frame.protocol != PROTOCOL:
                    raise FrameRefused("bad_request", f"Only protocol {PROTOCOL} is supported.")
                self.client = frame.client or self.client
                self._welcome()

    # --- other gateways -----------------------------------------------------------------------------------------------

    def _pass_on(self, frame: frames.ClientFrame, text: str) -> None:
        """Let the owner of a conversation handle a frame."""
        if self._relayed:
            self._outbox.answer(frames.frame("moved", session=getattr(frame, "session", "")))
        else:
            self._relaying().forward(frame, text)

    def _on_moved(self, key: str, sent: dict[str, int]) -> None:
        """Continue a subscription at the next owner of its conversation."""
        if self._relayed:
            self._outbox.answer(frames.frame("moved", session=key))
        elif not self._closed:
            self._relaying().follow(key, sent)

    @property
    def _can_leave(self) -> bool:
        """True if another gateway can answer what this one takes."""
        return self._relayed or self._services.links is not None

    def _relaying(self) -> KeyRelay:
        if self._relay is None:
            assert self._services.links is not None, "only a cluster has other owners"
            from gateway.http.relay.key_relay import KeyRelay  # noqa: PLC0415 - only in a cluster

            self._relay = KeyRelay(self._services.links, self._person, self)
        return self._relay

    def answer(self, data: bytes) -> None:
        """Queue a frame for the client; see `RelayingClient`."""
        self._outbox.answer(data)

    async def until_room(self) -> None:
        """Return once another frame may be queued; see `RelayingClient`."""
        await self._outbox.until_room()

    async def handle_here(self, frame: frames.ClientFrame, text: str) -> None:
        """Handle a frame that was meant for another gateway; see `RelayingClient`."""
        try:
            await self._handle(frame)
        except OwnedElsewhere:
            raise
        except (FrameRefused, SessionsError, GatewayError, UnknownAttachment) as error:
            self._outbox.answer(error_frame(error, frames.id_in(text)))

    async def follow_here(self, key: str, sent: Mapping[str, int]) -> bool:
        """Continue a subscription on this gateway; see `RelayingClient`."""
        chat = await self._services.switchboard.chat(self._person, key, create=False)
        if chat is None:
            return False
        if sent:
            session = next(iter(sent))
            self._outbox.follow(chat, session, sent[session], sent)
        return True

    def relay_failed(self, key: str, error: BaseException) -> None:
        """Close the connection after an unexpected error; see `RelayingClient`."""
        log.error("relay_failed", client=self.client, session=key, **error_fields(error))
        self._close_soon(WSCloseCode.INTERNAL_ERROR, "the gateway failed to relay a conversation; connect again")

    def _follow(self, chat: Chat, session: str, after: int) -> None:
        self._outbox.follow(chat, session, after)
        if self._relayed:
            self._outbox.answer(frames.frame("following", session=chat.key, session_id=session, after=after))

    # --- frames -------------------------------------------------------------------------------------------------------

    async def _send(self, frame: frames.Send) -> None:
        if not frame.text.strip() and not frame.attachments:
            raise FrameRefused("bad_request", "A message needs a text or an attachment.")
        typed = parse_command(frame.text)
        if frame.attachments and typed is not None:
            raise FrameRefused("bad_request", "A command takes no attachments.")
        if (reason := self._services.readiness.refuses) is not None and not (self._can_leave and isinstance(reason, Busy)):
            raise reason  # what a gateway takes that stops is answered by the next owner, if there are others
        attachments = await self._services.uploads.store(self._person, frame.attachments)
        chat = await self._services.switchboard.chat(self._person, frame.session, create=True)
        assert chat is not None
        if self._closed:  # the token may have been replaced meanwhile
            return
        message = MessageReceived(
            id=frame.id,
            client=client_name(self.client),
            sender=self._person,
            channel="websocket",
            chat="private",
            text=frame.text,
            attachments=attachments,
        )
        received = await chat.receive(message, typed)
        accepted = frames.frame(
            "accepted",
            id=frame.id,
            session=frame.session,
            session_id=received.session,
            seq=received.seq,
            duplicate=received.duplicate,
        )
        self._outbox.promise(received.session, received.seq, accepted)
        if not self._outbox.follows(frame.session):
            self._follow(chat, received.session, received.seq - 1)
        self._spawn(self._acknowledge(chat, received, accepted, frame.id, attachments))

    async def _acknowledge(
        self, chat: Chat, received: AcceptedMessage, accepted: bytes, frame_id: str, attachments: tuple[Attachment, ...]
    ) -> None:
        try:
            await chat.until_durable(received)
        except SessionsError as error:
            self._outbox.withdraw(received.session, received.seq, accepted, error_frame(error, frame_id))
        else:
            self._outbox.fulfil(received.session, received.seq, accepted)
            if attachments:
                await self._services.uploads.settle(self._person, attachments)

    async def _subscribe(self, frame: frames.Subscribe) -> None:
        chat = await self._existing(frame.session)
        session, head = self._session(chat, frame.session_id)
        after = head if frame.after is None else frame.after
        if after > head:
            if self._services.links is not None and not self._services.links.is_current:
                raise FrameRefused("busy", BEHIND, retry_after=1)
            raise FrameRefused("bad_request", f"The last event of {session} is {head}.", head=head)
        self._follow(chat, session, after)
        if frame.id is not None:
            self._outbox.send_settings(chat, frame.id)

    async def _history(self, frame: frames.History) -> None:
        chat = await self._existing(frame.session)
        session, head = self._session(chat, frame.session_id)
        before = min(head + 1, frame.before if frame.before is not None else head + 1)
        lines = await page_before(chat, session, before, frame.limit)
        first = before - len(lines)
        self._outbox.answer(frames.history(frame.id, frame.session, session, lines, more=first > 1))

    async def _sessions(self, frame: frames.Sessions) -> None:
        if frame.follow and self._unwatch_updates is None:
            self._unwatch_updates = self._watch_updates()
        self._held_updates = []  # the list may not have their changes yet
        try:
            # Another gateway lists them itself, and wants the updates only.
            self._outbox.answer(frames.sessions(frame.id, [] if self._relayed else await self._listed()))
        finally:
            updates, self._held_updates = self._held_updates, None
            for update in updates:
                self._on_update(update)

    def _watch_updates(self) -> Callable[[], None]:
        """Watch the updates of the person's conversations, those that other gateways have included. Returns a function that
        ends it."""
        unwatch = self._services.updates.watch(self._person, self._on_update, relayed=self._relayed)
        if self._relayed or self._services.update_relay is None:
            return unwatch
        leave = self._services.update_relay.follow(self._person)

        def end() -> None:
            unwatch()
            leave()

        return end

    async def _listed(self) -> list[bytes]:
        """Return the person's conversations, encoded in portions."""
        listed = await self._services.switchboard.sessions.conversations(self._person)
        oldest_last = self._services.questions.of_person(self._person)[::-1]
        questions = {question.transcript.session: question.seq for question in oldest_last}
        pieces = list[bytes]()
        async for portion in portions(listed):
            for each in portion:
                each.question = questions.get(each.session_id)
            pieces.append(frames.listed(portion))
        return pieces

    def _on_update(self, update: SessionUpdate) -> None:
        """Tell the client about an event in one of its conversations; one that reads nothing lists them again later."""
        if self._held_updates is not None:
            self._held_updates.append(update)
        elif self._outbox.has_room:
            fields = {"session": update.session, "session_id": update.session_id, "event": update.event}
            self._outbox.answer(frames.frame("session_update", **fields))

    async def _fork(self, frame: frames.Fork) -> None:
        if (reason := self._services.readiness.refuses) is not None:
            raise reason
        chat = await self._existing(frame.session)
        session, _ = self._session(chat, frame.session_id)
        try:
            made = await self._services.switchboard.fork(self._person, session, frame.key, frame.upto)
        except ForkRefused as error:
            raise FrameRefused("bad_request", str(error)) from error
        forked = frames.frame(
            "forked",
            id=frame.id,
            session=made.key,
            session_id=made.session,
            parent=made.parent,
            parent_seq=made.parent_seq,
        )
        self._outbox.answer(forked)

    async def _set(self, frame: frames.Rename | frames.Pin | frames.Archive) -> None:
        chat = await self._existing(frame.session)
        if (current := chat.current) is None:
            raise FrameRefused("bad_request", DAMAGED)
        match frame:
            case frames.Rename(title=title):
                await current.rename(one_line(title, frames.TITLE_CHARACTERS), self._person)
            case frames.Pin(pinned=pinned):
                await current.pin(self._person, pinned=pinned)
            case frames.Archive(archived=archived):
                await current.archive(self._person, archived=archived)
        self._outbox.send_settings(chat, frame.id, current)

    async def _delete(self, frame: frames.Delete) -> None:
        self._deleting[frame.session] = frame.id
        try:
            await self._services.switchboard.removals.delete(self._person, frame.session, by=self._person, facts=frame.facts)
        except UnknownSession as error:
            self._outbox.answer(frames.error("unknown_session", str(error), frame.id))
        except (SessionsError, GatewayError) as error:
            self._outbox.answer(error_frame(error, frame.id))
        finally:
            self._deleting.pop(frame.session, None)

    def _on_deleted(self, person: str, key: str, deleted: DeletedConversation | None) -> None:
        """End the subscription to a conversation that is being deleted; later, tell the client."""
        if person != self._person:
            return
        if deleted is None:
            self._outbox.unfollow(key)
            return
        fields = {"id": self._deleting.get(key), "session": key, "removed": deleted.removed, "remains": deleted.remains}
        self._outbox.answer(frames.frame("deleted", **fields))

    async def _configure(self, frame: frames.Configure) -> None:
        if (reason := self._services.readiness.refuses) is not None:
            raise reason
        if frame.name == frames.AGENT_SETTING:
            chat = await self._begin_with(frame)
            changed = chat.current
        else:
            chat = await self._configurable(frame.session)
            changed = chat.current
            assert changed is not None
            await changed.settings.configure(frame.name, frame.value, self._person)
        self._outbox.send_settings(chat, frame.id, changed)

    async def _configurable(self, key: str) -> Chat:
        chat = await self._services.switchboard.chat(self._person, key, create=True)
        assert chat is not None
        if chat.current is None:
            raise FrameRefused("bad_request", DAMAGED)
        return chat

    async def _begin_with(self, frame: frames.Configure) -> Chat:
        """Begin a session with the chosen agent. One that exists keeps its agent."""
        if frame.value not in (agents := self._services.agents()):
            raise FrameRefused("bad_request", f"There is no such agent; the agents are {', '.join(agents[:AGENTS_NAMED])}.")
        choice = AgentChoice(agent=str(frame.value), by_person=True)
        chat = await self._services.switchboard.begun_with(self._person, frame.session, choice)
        if chat.current is None:
            raise FrameRefused("bad_request", DAMAGED)
        if chat.current.recorder.transcript.agent != choice.agent:
            raise FrameRefused("bad_request", "Another agent answers here; `/agent NAME` starts a new session with it.")
        return chat

    async def _approve(self, frame: frames.Approve) -> None:
        answerer = Answerer(person=self._person, channel="websocket", client=self.client)
        try:
            given = await self._services.questions.answer(frame.approval, frame.decision, frame.scope, answerer)
        except (GatewayError, SessionsError) as error:
            self._outbox.answer(error_frame(error, frame.id))
            return
        self._outbox.answer(
            frames.frame(
                "accepted", id=frame.id, session=given.key, session_id=given.session, seq=given.seq, duplicate=False
            )
        )

    async def _existing(self, key: str) -> Chat:
        chat = await self._services.switchboard.chat(self._person, key, create=False)
        if chat is None:
            raise FrameRefused("unknown_session", f"There is no session {key}; a message to it creates it.")
        return chat

    def _session(self, chat: Chat, wanted: str | None) -> tuple[str, int]:
        """Return a session of a chat, by default the current one, and its last seq."""
        session = wanted or (chat.current.session if chat.current is not None else chat.damaged_session)
        if (head := chat.head(session)) is None:
            raise FrameRefused("unknown_session", f"{chat.key} has no session {session}.")
        return session, head

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._task_ended)

    def _task_ended(self, task: asyncio.Future[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("frame_failed", client=self.client, **error_fields(error))
            self._close_soon(WSCloseCode.INTERNAL_ERROR, "the gateway failed to handle a frame; connect again")
