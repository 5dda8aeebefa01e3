"""The websocket: connections, who they are, and what their frames do."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import structlog
from aiohttp import WSCloseCode, WSMsgType, web

from gateway import frames
from gateway.access import Access
from gateway.chat import Chat, Incoming, Received
from gateway.errors import Busy, Conflict, DamagedSession, sentence_of
from gateway.frames import FRAME_LIMIT, GREETING_LIMIT, PROTOCOL, InvalidFrame
from gateway.outbox import Outbox
from gateway.switchboard import Switchboard
from sessions.errors import SessionsError, StorageFailed

HELLO_SECONDS = 10.0
"""A connection must say who it is within this time."""

UNAUTHORIZED = 4401
"""Close code for a wrong or missing token."""

HARD_LIMIT = 4 * FRAME_LIMIT
"""A frame between the limit and this is answered with `too_large`; a larger one closes the connection (1009)."""

HISTORY_BYTES = 1024 * 1024
"""Bytes of events in one page of history."""

LIMITS = {"frame": FRAME_LIMIT, "id": 128, "history": 500}
"""What `welcome` says; bytes, characters, events."""

log = structlog.get_logger("exuvia.websocket")


class WebsocketDoor:
    """Accepts connections at `/ws`. `model` names the one that would answer now, `refuses` says why no
    new message is taken; either may be None."""

    def __init__(
        self,
        switchboard: Switchboard,
        access: Access,
        *,
        server: str,
        model: Callable[[], str | None],
        refuses: Callable[[], Busy | StorageFailed | None],
    ) -> None:
        self.switchboard = switchboard
        self.access = access
        self.server = server
        self.model = model
        self.refuses = refuses
        self._connections: set[Connection] = set()

    async def enter(self, request: web.Request) -> web.StreamResponse:
        """Serve one connection until it ends."""
        if {"token", "access_token"} & request.query.keys():
            return web.Response(status=401, text="A token is never taken from the URL, which ends up in logs.\n")
        person = None
        if (authorization := request.headers.get("Authorization")) is not None:
            person = self.access.person_of_header(authorization)
            if person is None:
                return web.Response(status=401, text="The token is not this gateway's.\n")
        socket = web.WebSocketResponse(max_msg_size=HARD_LIMIT, heartbeat=30.0, compress=False, timeout=5.0)
        await socket.prepare(request)
        connection = Connection(socket, self)
        self._connections.add(connection)
        try:
            await connection.serve(person)
        finally:
            self._connections.discard(connection)
        return socket

    async def close(self) -> None:
        """Tell every client to come back later."""
        closing = [c.close(WSCloseCode.GOING_AWAY, "the gateway stops") for c in tuple(self._connections)]
        await asyncio.gather(*closing)


class Connection:
    """One client. The reader does what frames say, in their order; the outbox sends."""

    def __init__(self, socket: web.WebSocketResponse, door: WebsocketDoor) -> None:
        self._socket = socket
        self._door = door
        self._outbox = Outbox(socket, self._close_soon)
        self._person = ""
        self._client = "unnamed"
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False

    async def serve(self, person: str | None) -> None:
        """Greet, then read and write until either side ends."""
        if person is None and (person := await self._greet()) is None:
            return
        self._person = person
        self._welcome()
        writer = asyncio.create_task(self._outbox.write())
        writer.add_done_callback(self._writer_ended)
        try:
            await self._read()
        finally:
            self._outbox.unfollow_all()
            tasks = {writer, *self._tasks}
            for task in tasks:
                task.cancel()
            await asyncio.wait(tasks)

    async def close(self, code: int, reason: str) -> None:
        """Close the connection once, whatever it is doing."""
        if not self._closed:
            self._closed = True
            await self._socket.close(code=code, message=reason.encode(), drain=False)

    def _writer_ended(self, writer: asyncio.Task[None]) -> None:
        if not writer.cancelled() and (error := writer.exception()) is not None:
            log.error("writer_failed", client=self._client, reason=sentence_of(error), exc_info=error)
            self._close_soon(WSCloseCode.INTERNAL_ERROR, "the gateway failed to write to this connection")

    def _close_soon(self, code: int, reason: str) -> None:
        if not self._closed:
            self._spawn(self.close(code, reason))

    # --- reading ------------------------------------------------------------------------------------------------------

    async def _greet(self) -> str | None:
        """The person that the first frame's token names; None after the connection was closed."""
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                message = await self._socket.receive()
        except TimeoutError:
            await self.close(UNAUTHORIZED, "no hello with a token came in time")
            return None
        if message.type is not WSMsgType.TEXT:
            await self.close(UNAUTHORIZED, "the first frame must be a hello with a token")
            return None
        if len(message.data.encode("utf-8", "surrogatepass")) > GREETING_LIMIT:
            await self.close(WSCloseCode.MESSAGE_TOO_BIG, "the first frame is too large")
            return None
        return await self._admit(message.data)

    async def _admit(self, greeting: str) -> str | None:
        try:
            hello = frames.parse(greeting)
        except InvalidFrame:
            hello = None
        person = self._door.access.person(hello.token or "") if isinstance(hello, frames.Hello) else None
        if not isinstance(hello, frames.Hello) or person is None:
            await self.close(UNAUTHORIZED, "the first frame must be a hello with this gateway's token")
            return None
        if hello.protocol != PROTOCOL:
            await self.close(WSCloseCode.PROTOCOL_ERROR, f"protocol {PROTOCOL} is spoken here")
            return None
        self._client = hello.client or self._client
        return person

    def _welcome(self) -> None:
        door = self._door
        self._outbox.answer(
            frames.frame("welcome", protocol=PROTOCOL, server=door.server, limits=LIMITS, model=door.model())
        )

    async def _read(self) -> None:
        while True:
            await self._outbox.room()
            message = await self._socket.receive()
            if message.type is WSMsgType.TEXT:
                await self._take(message.data)
            elif message.type is WSMsgType.BINARY:
                self._outbox.answer(frames.error("bad_frame", "Frames are JSON text, not bytes."))
            else:
                return

    async def _take(self, text: str) -> None:
        if len(text) > FRAME_LIMIT or len(text.encode("utf-8", "surrogatepass")) > FRAME_LIMIT:
            self._outbox.answer(frames.error("too_large", f"A frame may have {FRAME_LIMIT} bytes."))
            return
        try:
            frame = frames.parse(text)
        except InvalidFrame as error:
            self._outbox.answer(frames.error("bad_frame", str(error), error.id))
            return
        try:
            await self._do(frame)
        except (Refused, SessionsError, Busy, Conflict, DamagedSession) as error:
            self._outbox.answer(_error_frame(error, frame.id if not isinstance(frame, frames.Hello) else None))

    async def _do(self, frame: frames.ClientFrame) -> None:
        match frame:
            case frames.Send():
                await self._send(frame)
            case frames.Subscribe():
                await self._subscribe(frame)
            case frames.Unsubscribe():
                await self._known(frame.session)
                self._outbox.unfollow(frame.session)
            case frames.Cancel():
                chat = await self._known(frame.session)
                if chat.current is not None:
                    chat.current.turn.cancel()
            case frames.History():
                await self._history(frame)
            case frames.Sessions():
                self._sessions(frame)
            case frames.Ping():
                self._outbox.answer(frames.frame("pong", id=frame.id))
            case frames.Hello():
                if frame.protocol != PROTOCOL:
                    raise Refused("bad_request", f"Protocol {PROTOCOL} is spoken here.")
                self._client = frame.client or self._client
                self._welcome()

    # --- what frames do -----------------------------------------------------------------------------------------------

    async def _send(self, frame: frames.Send) -> None:
        if frame.attachments:
            raise Refused("bad_request", "This gateway takes no attachments.")
        if not frame.text.strip():
            raise Refused("bad_request", "A message needs a text.")
        if (reason := self._door.refuses()) is not None:
            raise reason
        chat = await self._door.switchboard.chat(self._person, frame.session, create=True)
        assert chat is not None
        received = await chat.receive(
            Incoming(id=frame.id, client=self._client, sender=self._person, channel="websocket", text=frame.text)
        )
        accepted = frames.frame(
            "accepted",
            id=frame.id,
            session=frame.session,
            session_id=received.session,
            seq=received.seq,
            duplicate=received.duplicate,
        )
        self._outbox.owe(received.session, received.seq, accepted)
        if not self._outbox.follows(frame.session):
            self._outbox.follow(chat, received.session, received.seq - 1)
        self._spawn(self._acknowledge(chat, received, accepted, frame.id))

    async def _acknowledge(self, chat: Chat, received: Received, accepted: bytes, frame_id: str) -> None:
        try:
            await chat.until_durable(received)
        except SessionsError as error:
            self._outbox.withdraw(received.session, received.seq, accepted, _error_frame(error, frame_id))
        else:
            self._outbox.settle(received.session, received.seq, accepted)

    async def _subscribe(self, frame: frames.Subscribe) -> None:
        chat = await self._known(frame.session)
        current = chat.current.session if chat.current is not None else chat.damaged_session
        session = frame.session_id or current
        head = chat.head(session)
        if head is None:
            raise Refused("unknown_session", f"{frame.session} has no session {session}.")
        after = head if frame.after is None else frame.after
        if after > head:
            raise Refused("bad_request", f"{session} ends at {head}.", head=head)
        self._outbox.follow(chat, session, after)

    async def _history(self, frame: frames.History) -> None:
        chat = await self._known(frame.session)
        current = chat.current.session if chat.current is not None else chat.damaged_session
        session = frame.session_id or current
        head = chat.head(session)
        if head is None:
            raise Refused("unknown_session", f"{frame.session} has no session {session}.")
        before = min(head + 1, frame.before if frame.before is not None else head + 1)
        lines = await page_before(chat, session, before, frame.limit)
        first = before - len(lines)
        self._outbox.answer(frames.history(frame.id, frame.session, session, lines, more=first > 1))

    def _sessions(self, frame: frames.Sessions) -> None:
        rows = [
            {"session": row.key, "session_id": row.session, "head": row.head, "at": row.at}
            for row in self._door.switchboard.sessions(self._person)
        ]
        self._outbox.answer(frames.frame("sessions", id=frame.id, sessions=rows))

    async def _known(self, key: str) -> Chat:
        chat = await self._door.switchboard.chat(self._person, key, create=False)
        if chat is None:
            raise Refused("unknown_session", f"There is no session {key}; a message to it makes it.")
        return chat

    def _spawn(self, work: Awaitable[None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


class Refused(Exception):
    """A frame asks what cannot be done; `code` and fields go into the `error` frame."""

    def __init__(self, code: str, sentence: str, **fields: int) -> None:
        super().__init__(sentence)
        self.code = code
        self.fields = fields


def _error_frame(error: Exception, frame_id: str | None) -> bytes:
    match error:
        case Refused():
            return frames.error(error.code, str(error), frame_id, **error.fields)
        case Conflict():
            return frames.error("conflict", str(error), frame_id)
        case Busy():
            return frames.error("busy", str(error), frame_id, retry_after=1)
        case _:
            return frames.error("storage_failed", sentence_of(error), frame_id)


async def page_before(chat: Chat, session: str, before: int, limit: int) -> list[bytes]:
    """The up to `limit` lines before a seq, oldest first, as many as a page's bytes hold and at least one."""
    wanted = min(limit, before - 1)
    while wanted > 0:
        first = before - wanted
        lines = (await chat.lines(session, first, limit=HISTORY_BYTES))[:wanted]
        if len(lines) == wanted or wanted == 1:
            return lines
        wanted = max(1, min(wanted // 2, len(lines)))
    return []
