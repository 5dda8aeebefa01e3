"""A client of the websocket protocol (`docs/websocket.md`) that reconnects and resends, for `exuvia chat` and for tests.

It follows one key. It reconnects, requests the events that it missed, and resends messages that were not accepted under the
same id; every message therefore arrives once, and every event is reported once and in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Any, Self, assert_never

import aiohttp
import msgspec

from gateway.protocol.client_frames import (
    Accepted,
    CommandLine,
    Deleted,
    Delta,
    EventFrame,
    Forked,
    GatewayFrame,
    HistoryPage,
    Output,
    Paused,
    Reasoning,
    Refusal,
    SessionList,
    SessionSummary,
    SessionUpdate,
    Settings,
    Welcome,
)
from gateway.protocol.frames import FRAME_LIMIT
from gateway.terminal.client.connection import (
    ClientError,
    Connection,
    NotConnected,
    TokenRefused,
    Uploaded,
    download,
    upload,
    websocket_url,
)
from gateway.terminal.client.dedup import EventDedup, NewEvent
from gateway.terminal.client.local_gateway import TokenMissing, read_token
from gateway.terminal.client.signals import Connected, Disconnected, Earlier, Happened, Postponed, Signal
from sessions.events.codec import InvalidLine, decode
from sessions.events.events import ApprovalScope, Decision, SessionClosed

FIRST_SECONDS = 2.0
"""Seconds for which the first connection is tried: a gateway that was just started is not ready yet."""

DELAYS = (0.1, 5.0)
"""Seconds between attempts: the first delay, and the longest."""

BUSY_SECONDS = 1.0
"""Seconds before a message is sent again to a busy gateway that names no delay."""

LIST_SECONDS = 10.0
"""Seconds for which the list of sessions is awaited."""

WAITING_SIGNALS = 10_000
"""Maximum signals in the queue; the connection is not read while it is full."""


class MessageRefused(ClientError):
    """The gateway rejected a message, and would again. `code` is the one of the `error` frame."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class _Unaccepted(msgspec.Struct, frozen=True):
    fields: dict[str, Any]
    accepted: asyncio.Future[Accepted]


class ChatClient:
    """One person's client of a session, used as an async context manager.

    Args:
        session: The key.
        patience: Seconds for which a lost gateway is tried before the client fails.
        earlier: How many events from before the first connection are reported, as `Earlier`; 0 for none.
        token_file: The file from which the token is read again if it is refused; an unchanged token fails.

    `signals` must be consumed while the client is open.
    """

    def __init__(
        self,
        url: str,
        token: str,
        *,
        token_file: Path | None = None,
        session: str = "main",
        name: str = "exuvia client",
        patience: float = 60.0,
        earlier: int = 0,
    ) -> None:
        self.session = session
        self._url = websocket_url(url)
        self._token = token
        self._token_file = token_file
        self._name = name
        self._patience = patience
        self._earlier = earlier
        self._dedup = EventDedup()
        self._absent = False
        """True if the key had no session when this connection began, so that whatever comes is new."""
        self._requested: tuple[str, int] | None = None
        """The position in the last `subscribe`."""
        self._subscription = ""
        self.sessions: tuple[SessionSummary, ...] = ()
        """This person's sessions at the last request for the list, the newest first."""
        self._listed = asyncio.Event()
        self.commands: tuple[CommandLine, ...] = ()
        """The commands that the gateway listed."""
        self._reported = ""
        """The last reported reason why the session could not be followed, to report it once."""
        self._unaccepted: dict[str, _Unaccepted] = {}
        self._postponed: set[str] = set()
        """The ids of messages for which the gateway was busy, and of those after them; they are resent together."""
        self._reported_busy = False
        self._signals: asyncio.Queue[Signal | ClientError] = asyncio.Queue(WAITING_SIGNALS)
        self._connection: Connection | None = None
        self._delay = DELAYS[0]
        self._failure: ClientError | None = None
        self._numbers = count(1)

    async def __aenter__(self) -> Self:
        """Connect; raise NotConnected or ConnectionRefused on failure."""
        self._http = aiohttp.ClientSession()
        try:
            connection = await self._connect(FIRST_SECONDS)
        except BaseException:
            await self._http.close()
            raise
        self._running = asyncio.create_task(self._run(connection))
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect. Messages that were not accepted yet may or may not arrive."""
        self._running.cancel()
        await asyncio.wait([self._running])
        self._abandon(NotConnected("The client was closed before the gateway had accepted this."))
        await self._http.close()

    def send(self, text: str, *, message_id: str, attachments: Sequence[Uploaded] = ()) -> asyncio.Future[Accepted]:
        """Send a message, in the order of the calls.

        Args:
            message_id: An id that no other message of this key has.

        Returns:
            A future of the gateway's `accepted`, sent when the message is on disk. It raises MessageRefused if
            the gateway rejects the message, and another ClientError if the outcome is unknown.
        """
        accepted: asyncio.Future[Accepted] = asyncio.get_running_loop().create_future()
        fields: dict[str, Any] = {"id": message_id, "session": self.session, "text": text}
        if attachments:
            fields["attachments"] = attachments
        if len(msgspec.json.encode({"type": "send", **fields})) > FRAME_LIMIT:
            accepted.set_exception(MessageRefused("too_large", f"A message may have about {FRAME_LIMIT} bytes."))
        elif self._failure is not None:
            accepted.set_exception(self._failure)
        else:
            self._unaccepted[message_id] = _Unaccepted(fields, accepted)
            if self._postponed and not text.startswith("/"):
                # It must not overtake postponed ones. A command may: it has a queue of its own, so that `/stop` works.
                self._postponed.add(message_id)
            elif self._connection is not None:
                self._connection.send("send", **fields)
        return accepted

    async def upload(self, file: Path) -> Uploaded:
        """Upload a file for the next message; raise UploadRefused on failure."""
        return await upload(self._http, self._url, self._token, file)

    async def download(self, sha256: str, limit: int) -> bytes:
        """Return the content of an attachment; raise DownloadFailed if it is gone or has more bytes than `limit`."""
        return await download(self._http, self._url, self._token, sha256, limit)

    async def list_sessions(self) -> bool:
        """Request the list of sessions again, and return once `sessions` has it; return False without a connection."""
        if self._connection is None:
            return False
        self._listed.clear()
        self._connection.send("sessions", id=self._number())
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LIST_SECONDS):
                await self._listed.wait()
        return self._listed.is_set()

    @property
    def unaccepted(self) -> int:
        """The number of messages that the gateway has not accepted yet."""
        return len(self._unaccepted)

    def cancel(self) -> bool:
        """Request the end of the running turn; return False without a connection."""
        if self._connection is not None:
            self._connection.send("cancel", session=self.session)
        return self._connection is not None

    def approve(self, approval: str, decision: Decision, scope: ApprovalScope) -> bool:
        """Answer a question about a tool call; return False without a connection. A refusal comes as a signal."""
        if self._connection is not None:
            fields = {"session": self.session, "approval": approval, "decision": decision, "scope": scope}
            self._connection.send("approve", id=self._number(), **fields)
        return self._connection is not None

    async def signals(self) -> AsyncGenerator[Signal, None]:
        """Yield signals without end; raise ClientError once the client has failed."""
        while True:
            signal = await self._signals.get()
            if isinstance(signal, ClientError):
                raise signal
            yield signal

    # --- the connection -----------------------------------------------------------------------------------------------

    async def _run(self, connection: Connection) -> None:
        try:
            while True:
                reason = await self._use(connection)
                await self._signals.put(Disconnected(reason))
                await self._wait()
                connection = await self._connect(self._patience)
        except ClientError as error:
            self._abandon(error)
            await self._signals.put(error)

    async def _connect(self, seconds: float) -> Connection:
        """Open a new connection, retrying for about `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            try:
                return await Connection.open(self._http, self._url, self._token, self._name)
            except TokenRefused:
                if not await self._token_changed():
                    raise
            except NotConnected:
                if time.monotonic() + self._delay > deadline:
                    raise
                await self._wait()

    async def _token_changed(self) -> bool:
        """Read the token file again; return False if the token is unchanged."""
        if self._token_file is None:
            return False
        before = self._token
        with contextlib.suppress(TokenMissing):
            self._token = await asyncio.to_thread(read_token, self._token_file)
        return self._token != before

    async def _wait(self) -> None:
        """Wait before another attempt, longer each time until the gateway responds."""
        await asyncio.sleep(self._delay)
        self._delay = min(2 * self._delay, DELAYS[1])

    async def _use(self, connection: Connection) -> str:
        """Use a connection until it ends, and return the reason."""
        try:
            frames = connection.listen()
            await self._resume(connection, frames)
            self._connection = connection
            self.commands = tuple(connection.welcome.commands)
            await self._signals.put(Connected(connection.welcome))
            async for frame in frames:
                if (reason := await self._handle(frame)) is not None:
                    return reason
        except TokenRefused:
            if not await self._token_changed():
                raise
            return "the gateway's token was changed"
        except (msgspec.MsgspecError, InvalidLine) as error:
            return f"the gateway sent something invalid: {error}"
        finally:
            self._connection = None
            await connection.close()
        return "the gateway ended the connection"

    async def _resume(self, connection: Connection, frames: AsyncIterator[GatewayFrame]) -> None:
        """Request missed events, then resend messages that were not accepted."""
        connection.send("sessions", id=self._number())
        self._absent = False
        if self._dedup.position is None and not self._unaccepted:
            # Otherwise a message may be in the log already: its `accepted` will say where, and so what was not seen.
            await self._find_head(connection, frames)
        self._subscribe(connection)
        self._postponed.clear()
        for message in self._unaccepted.values():
            connection.send("send", **message.fields)

    async def _find_head(self, connection: Connection, frames: AsyncIterator[GatewayFrame]) -> None:
        """Find the head of the session before any event was seen, so that nothing after it is missed, and request what was
        before it."""
        async for frame in frames:
            if isinstance(frame, SessionList):
                self._list(frame)
                for listed in frame.sessions:
                    if listed.session == self.session:
                        # From an open question on, if there is one: it waits for whoever comes.
                        seen = listed.head if listed.question is None else min(listed.head, listed.question - 1)
                        self._dedup.start(listed.session_id, seen)
                        if self._earlier and seen:
                            page = {"session_id": listed.session_id, "before": seen + 1, "limit": self._earlier}
                            connection.send("history", id=self._number(), session=self.session, **page)
                        return
                self._absent = True
                connection.send("sessions", id=self._number(), follow=True)
                return

    def _list(self, frame: SessionList) -> None:
        self.sessions = tuple(sorted(frame.sessions, key=lambda listed: listed.at, reverse=True))
        self._listed.set()

    def _subscribe(self, connection: Connection) -> None:
        if (position := self._dedup.position) is not None:
            session_id, after = position
            self._requested, self._subscription = position, self._number()
            connection.send("subscribe", id=self._subscription, session=self.session, session_id=session_id, after=after)

    def _begin(self, session: str, session_id: str) -> None:
        """Follow the first session of the key, if others have begun it."""
        if session == self.session and self._absent and self._connection is not None:
            self._absent = False
            if self._dedup.position is None:
                self._dedup.start(session_id, 1)  # as after a message of one's own, which follows `session_opened`
                self._subscribe(self._connection)

    def _number(self) -> str:
        return f"{self._name}-{next(self._numbers)}"

    # --- frames from the gateway ------------------------------------------------------------------------------------------

    async def _handle(self, frame: GatewayFrame) -> str | None:
        """Handle a frame; return the reason if the connection must be replaced."""
        match frame:
            case Accepted():
                self._delay = DELAYS[0]
                self._accept(frame)
            case EventFrame():
                self._delay = DELAYS[0]
                await self._event(frame)
            case Delta() | Reasoning() | Output() | Paused() | Settings():
                await self._signals.put(frame)
            case Deleted():
                if frame.session == self.session:
                    await self._signals.put(frame)
            case Refusal():
                return await self._refused(frame)
            case SessionList():
                self._list(frame)
                for listed in frame.sessions:
                    self._begin(listed.session, listed.session_id)
            case SessionUpdate():
                self._begin(frame.session, frame.session_id)
            case HistoryPage():
                await self._signals.put(Earlier(tuple(decode(bytes(event)) for event in frame.events)))
            case Welcome() | Forked():
                pass
            case _:
                assert_never(frame)
        return None

    def _accept(self, frame: Accepted) -> None:
        self._reported_busy = False
        if self._dedup.position is None:
            self._dedup.start(frame.session_id, frame.seq - 1)
        message = self._unaccepted.pop(frame.id, None)
        if message is not None and not message.accepted.done():
            message.accepted.set_result(frame)

    async def _event(self, frame: EventFrame) -> None:
        recorded = decode(bytes(frame.event))
        match self._dedup.arrive(frame.session_id, recorded.seq):
            case NewEvent.NEW:
                if isinstance(recorded.event, SessionClosed):
                    self._dedup.close(frame.session_id)
                await self._signals.put(Happened(frame.session_id, recorded))
            case NewEvent.AHEAD:
                if self._connection is not None and self._requested != self._dedup.position:
                    self._subscribe(self._connection)
            case NewEvent.REPEATED:
                pass

    async def _refused(self, frame: Refusal) -> str | None:
        message = self._unaccepted.get(frame.id or "")
        if message is not None and frame.code == "busy":
            await self._postpone(message, frame)
        elif message is not None:
            del self._unaccepted[message.fields["id"]]
            if not message.accepted.done():
                message.accepted.set_exception(MessageRefused(frame.code, frame.message))
        elif frame.id == self._subscription and frame.code in ("unknown_session", "bad_request"):
            # The gateway's log is not the one that was followed, or shorter: it was restored, or begun anew.
            self._dedup.reset()
            return frame.message
        elif frame.id == self._subscription or (frame.id is None and frame.session == self.session):
            self._subscribe_later()
            if frame.message != self._reported:
                self._reported = frame.message
                await self._signals.put(frame)
        else:
            await self._signals.put(frame)
        return None

    async def _postpone(self, message: _Unaccepted, frame: Refusal) -> None:
        """Keep a message for a busy gateway; it is resent after a delay, or over the next connection."""
        if not self._postponed:
            self._later(frame.retry_after or BUSY_SECONDS, self._send_postponed)
        self._postponed.add(message.fields["id"])
        if not self._reported_busy:
            self._reported_busy = True
            await self._signals.put(Postponed(frame.message))

    def _send_postponed(self, connection: Connection) -> None:
        for message_id, message in self._unaccepted.items():
            if message_id in self._postponed:
                connection.send("send", **message.fields)
        self._postponed.clear()

    def _subscribe_later(self) -> None:
        """Subscribe again after a delay: the session is unreadable now, but messages can be sent."""
        self._later(self._delay, self._subscribe)
        self._delay = min(2 * self._delay, DELAYS[1])

    def _later(self, seconds: float, act: Callable[[Connection], None]) -> None:
        """Call a function after a delay if the current connection is still open."""
        connection = self._connection

        def do() -> None:
            if connection is not None and connection is self._connection:
                act(connection)

        asyncio.get_running_loop().call_later(seconds, do)

    def _abandon(self, error: ClientError) -> None:
        """Fail all messages that were not accepted."""
        self._failure = error
        for message in self._unaccepted.values():
            if not message.accepted.done():
                message.accepted.set_exception(error)
                message.accepted.exception()
        self._unaccepted.clear()
