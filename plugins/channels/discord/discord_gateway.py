"""Discord's gateway: a websocket with sessions that are resumed, heartbeats, and reconnection."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import msgspec
import structlog

from plugins.channels.discord.discord_api import DiscordApi, InvalidToken
from plugins.channels.discord.discord_events import SessionStart
from plugins.channels.discord.discord_progress import Progress
from plugins.support.errors import PluginError, SettingsRefused

PAUSES = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
"""Seconds before a connection is tried again, by its consecutive failures; half of it again is added at random."""

IDENTIFY_SECONDS = 5.0
"""Seconds between two new sessions."""

INVALID_SECONDS = 5.0
"""Seconds after a session was called invalid before a new one is started, at most; at least a fifth of them."""

HANDSHAKE_SECONDS = 30.0
"""Seconds that Discord has to greet."""

KEEPS_SESSION = 4000
"""The code with which connections are closed: after 1000 and 1001 a session could not be resumed."""

MESSAGE_CONTENT = 1 << 15
INTENTS = (1 << 0) | (1 << 9) | (1 << 10) | (1 << 12) | (1 << 13)
"""Servers, and the messages and reactions in them and in direct messages."""

SESSION_LOST = frozenset({4003, 4007, 4009})
"""Codes of closed connections after which the session cannot be resumed."""

PORTAL = "in the developer portal (discord.com/developers/applications) open the application, choose Bot"

FATAL = {
    4010: "Discord refuses the connection (code 4010): the shard is not valid",
    4011: "Discord refuses the connection (code 4011): the bot is in too many servers for one connection",
    4012: "Discord refuses the connection (code 4012): this version of its gateway no longer exists",
    4013: "Discord refuses the connection (code 4013): it does not know the intents of this version",
    4014: f"Discord does not let the bot read messages (code 4014): {PORTAL}, switch on Message Content Intent under"
    " Privileged Gateway Intents and save, or set message_content = false",
}
"""What is to be done about codes of closed connections after which another attempt would fail too."""

log = structlog.get_logger("exuvia.channels")


class Frame(msgspec.Struct):
    """A frame of the gateway."""

    op: int
    d: msgspec.Raw = msgspec.Raw(b"null")
    s: int | None = None
    t: str | None = None


class _Hello(msgspec.Struct):
    heartbeat_interval: float


class _Lost(Exception):
    """The connection ended; `str(error)` says why."""


class DiscordGateway:
    """The connection to the gateway.

    `on_event` is awaited with the name and the data of each event, in order, after its number stands in the progress;
    `on_start` is called when a new session has begun. `report` is called with problems, and "" when all is well.
    """

    def __init__(
        self,
        api: DiscordApi,
        progress: Progress,
        *,
        intents: int,
        on_start: Callable[[], None],
        on_event: Callable[[str, msgspec.Raw], Awaitable[None]],
        report: Callable[[str], None],
    ) -> None:
        self._api = api
        self._progress = progress
        self._intents = intents
        self._on_start = on_start
        self._on_event = on_event
        self._report = report
        self._failures = 0
        self._identified = float("-inf")
        self._decoder = msgspec.json.Decoder(Frame)

    async def run(self) -> None:
        """Stay connected until cancelled.

        Raises:
            PluginError: Discord refuses the connection for a reason that somebody has to mend.
        """
        while True:
            try:
                await self._connection()
            except _Lost as error:
                why = str(error)
            except (aiohttp.ClientError, OSError, msgspec.MsgspecError) as error:
                why = f"{type(error).__name__} {error}".strip()
            if self._failures:
                self._report(f"The connection to Discord was lost and is tried again: {why}.")
            pause = PAUSES[min(self._failures, len(PAUSES) - 1)] * random.uniform(1, 1.5)  # noqa: S311 - no secret
            self._failures += 1
            log.info("discord_reconnects", reason=why, seconds=round(pause, 1))
            await asyncio.sleep(pause)

    async def _connection(self) -> None:
        """Connect, resume the session or start one, and handle what comes until the connection ends."""
        resuming = bool(self._progress.session)
        url = self._progress.url if resuming else await self._new_session_url()
        socket = await self._api.websocket(f"{url.rstrip('/')}/?v=10&encoding=json")
        beating: asyncio.Task[None] | None = None
        try:
            async with asyncio.timeout(HANDSHAKE_SECONDS):
                hello = msgspec.json.decode((await self._receive(socket)).d, type=_Hello)
            beats = _Heartbeat(socket, hello.heartbeat_interval / 1000, self._progress)
            beating = asyncio.create_task(beats.run())
            await socket.send_str(self._greeting(resuming=resuming))
            while True:
                await self._handle(socket, await self._receive(socket), beats)
        finally:
            if beating is not None:
                beating.cancel()
            await socket.close(code=KEEPS_SESSION)

    async def _new_session_url(self) -> str:
        """Return the address for a new session, once Discord's limits allow one."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._identified + IDENTIFY_SECONDS - loop.time()))
        try:
            told = await self._api.get("/gateway/bot")
            url, limit = str(told["url"]), told["session_start_limit"]
            left, wait = int(limit["remaining"]), float(limit["reset_after"]) / 1000
        except InvalidToken:
            raise
        except PluginError as error:
            raise _Lost(str(error)) from error
        except (KeyError, TypeError, ValueError) as error:
            raise _Lost("Discord did not say where its gateway is") from error
        if left <= 0:
            self._report(
                f"Discord allows this bot no new session for {wait / 3600:.1f} hours: too many were started, perhaps by"
                " another program with the same token."
            )
            await asyncio.sleep(wait)
        self._identified = loop.time()
        return url

    def _greeting(self, *, resuming: bool) -> str:
        progress, token = self._progress, self._api.token
        if resuming:
            return _frame(6, {"token": token, "session_id": progress.session, "seq": progress.received})
        properties = {"os": "linux", "browser": "exuvia", "device": "exuvia"}
        return _frame(2, {"token": token, "intents": self._intents, "properties": properties, "large_threshold": 50})

    async def _receive(self, socket: aiohttp.ClientWebSocketResponse) -> Frame:
        message = await socket.receive()
        if message.type in (aiohttp.WSMsgType.TEXT, aiohttp.WSMsgType.BINARY):
            return self._decoder.decode(message.data)
        code = socket.close_code
        if code == 4004:
            raise InvalidToken
        if code in FATAL:
            raise SettingsRefused(FATAL[code])
        if code in SESSION_LOST:
            self._progress.ended()
        raise _Lost(f"the connection was closed (code {code}{', ' + str(message.extra) if message.extra else ''})")

    async def _handle(self, socket: aiohttp.ClientWebSocketResponse, frame: Frame, beats: _Heartbeat) -> None:
        match frame.op:
            case 0:
                await self._dispatch(frame, beats)
            case 1:
                await beats.send()
            case 7:
                raise _Lost("Discord asked to reconnect")
            case 9:
                if frame.d != msgspec.Raw(b"true"):
                    self._progress.ended()
                    await asyncio.sleep(random.uniform(0.2, 1) * INVALID_SECONDS)  # noqa: S311 - as Discord demands
                raise _Lost("Discord no longer knows the session")
            case 11:
                beats.acknowledged = True

    async def _dispatch(self, frame: Frame, beats: _Heartbeat) -> None:
        progress = self._progress
        if frame.t == "READY":
            start = msgspec.json.decode(frame.d, type=SessionStart)
            guilds = [guild.id for guild in start.guilds]
            progress.started(start.session_id, start.resume_gateway_url, frame.s or 0, guilds)
            self._on_start()
            await progress.settle()
        elif frame.s is not None:
            progress.received = frame.s
        if frame.t in ("READY", "RESUMED"):
            self._failures = 0
            self._report("")
            log.info("discord_session", resumed=frame.t == "RESUMED")
            return
        beats.held = True  # the socket is not read meanwhile, so acknowledgements may wait in it
        try:
            await self._on_event(frame.t or "", frame.d)
        finally:
            beats.held = False


class _Heartbeat:
    """The heartbeat of a connection. One that is not acknowledged before the next means that the connection is dead."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, interval: float, progress: Progress) -> None:
        self._socket = socket
        self._interval = interval
        self._progress = progress
        self.acknowledged = True
        self.held = False

    async def run(self) -> None:
        """Send heartbeats, and close the connection when it is dead."""
        await asyncio.sleep(self._interval * random.random())  # noqa: S311 - so that not all clients beat at once
        while True:
            if not self.acknowledged and not self.held:
                log.info("discord_connection_dead")
                await self._socket.close(code=KEEPS_SESSION)
                return
            self.acknowledged = False
            await self.send()
            await asyncio.sleep(self._interval)

    async def send(self) -> None:
        """Send a heartbeat with the number of the last event before which all have been handled durably."""
        try:
            await self._socket.send_str(_frame(1, self._progress.durable or None))
        except (aiohttp.ClientError, OSError):
            return  # whoever reads the connection notices


def _frame(op: int, data: Any) -> str:
    return msgspec.json.encode({"op": op, "d": data}).decode()
