"""The connections of Socket Mode, over which events arrive.

Slack ends each connection after some hours and announces it. A second one is then opened before the first ends, so that
events always find a connection. Slack sends an envelope that was not acknowledged again, up to three times.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
import structlog

from plugins.api.channel import TryLater
from plugins.channels.slack.slack_api import SlackApi
from plugins.http.client import Transport
from plugins.support.errors import PluginError

if TYPE_CHECKING:
    import aiohttp

HEARTBEAT = 30.0
"""Seconds without anything from Slack after which it is pinged; half of them later the connection counts as lost."""

HELLO_SECONDS = 15.0
LINGER = 60.0
"""Seconds that a connection may last which Slack has announced to end."""

PAUSES = (0.2, 1.0, 3.0, 10.0, 30.0, 60.0)
"""Seconds before the next attempt to connect, by the number of those that failed."""

UNDER_WAY = 200
"""Envelopes that are being handled. While there are so many, no more are read."""

_REASONS = {
    "link_disabled": "Socket Mode is turned off for the Slack app: turn it on at https://api.slack.com/apps, “Socket Mode”.",
    "too_many_websockets": "The Slack app has too many connections: another program uses its app-level token.",
}

log = structlog.get_logger("exuvia.channels")

Envelope = dict[str, Any]


class SocketMode:
    """Keeps a connection open.

    Args:
        api: The Web API with the app-level token.
        transport: The HTTP client.
        handle: Handles an envelope, which is acknowledged when it returns. Calls begin in the order of arrival.
        connected: Called after a connection is there; with True if events may have been missed.
        report: Called with a problem, and with "" when it is over.
        url: The address of the first connection, if it was asked for just now.
    """

    def __init__(
        self,
        api: SlackApi,
        transport: Transport,
        handle: Callable[[Envelope], Awaitable[None]],
        connected: Callable[[bool], None],
        report: Callable[[str], None],
        *,
        url: str = "",
    ) -> None:
        self._api = api
        self._transport = transport
        self._handle = handle
        self._connected = connected
        self._report = report
        self._url = url
        self._live = 0
        self._reported = False
        self._slots = asyncio.Semaphore(UNDER_WAY)

    async def run(self) -> None:
        """Receive events until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            while True:
                socket = await self._open()
                missed, leaving = self._live == 0, asyncio.Event()
                self._live += 1
                tasks.create_task(self._read(socket, leaving, tasks))
                self._connected(missed)
                await leaving.wait()

    async def _open(self) -> aiohttp.ClientWebSocketResponse:
        """Return a connection that Slack has greeted, however long it takes."""
        failures = 0
        while True:
            pause = PAUSES[min(failures, len(PAUSES) - 1)] * random.uniform(0.5, 1.0)  # noqa: S311
            try:
                socket = await self._attempt()
            except TryLater as error:
                pause, problem = max(pause, error.after), str(error)
            except PluginError as error:
                problem = str(error)
            else:
                if self._reported:
                    self._report("")
                    self._reported = False
                return socket
            if failures and not self._live:
                self._tell(problem)
            failures += 1
            await asyncio.sleep(pause)

    async def _attempt(self) -> aiohttp.ClientWebSocketResponse:
        url, self._url = self._url or await connection_url(self._api), ""
        socket = await self._transport.websocket(url, heartbeat=HEARTBEAT)
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                frame = _decoded(await socket.receive())
            if frame is None or frame.get("type") != "hello":
                reason = str((frame or {}).get("reason", ""))
                raise PluginError(
                    _REASONS.get(reason, f"Slack ended the connection at its beginning ({reason or 'closed'}).")
                )
        except TimeoutError as error:
            await socket.close()
            raise PluginError(f"Slack did not greet the connection within {HELLO_SECONDS:g} seconds.") from error
        except BaseException:
            await socket.close()
            raise
        return socket

    async def _read(self, socket: aiohttp.ClientWebSocketResponse, leaving: asyncio.Event, tasks: asyncio.TaskGroup) -> None:
        """Read a connection to its end. `leaving` is set when another one is needed."""
        try:
            async with asyncio.timeout(None) as limit:
                while (frame := _decoded(await socket.receive())) is not None:
                    if frame.get("type") == "disconnect":
                        reason = str(frame.get("reason", ""))
                        log.info("slack_connection_ends", reason=reason)
                        if problem := _REASONS.get(reason):
                            self._tell(problem)
                        limit.reschedule(asyncio.get_running_loop().time() + LINGER)
                        leaving.set()
                    elif isinstance(envelope_id := frame.get("envelope_id"), str):
                        await self._slots.acquire()
                        tasks.create_task(self._take(socket, envelope_id, frame))
        except TimeoutError:
            log.info("slack_connection_lingered")
        finally:
            self._live -= 1
            leaving.set()
            await socket.close()

    def _tell(self, problem: str) -> None:
        self._report(problem)
        self._reported = True

    async def _take(self, socket: aiohttp.ClientWebSocketResponse, envelope_id: str, envelope: Envelope) -> None:
        """Handle an envelope, and acknowledge it after that."""
        try:
            await self._handle(envelope)
            with suppress(ConnectionError, RuntimeError):
                await socket.send_str(msgspec.json.encode({"envelope_id": envelope_id}).decode())
        except (PluginError, ValueError, TypeError, KeyError, AttributeError, OSError) as error:
            log.error("slack_envelope_failed", reason=f"{type(error).__name__}: {error}")
        finally:
            self._slots.release()


async def connection_url(api: SlackApi) -> str:
    """Return the address for one connection, which is valid for half a minute. Raises the errors of `SlackApi.call`."""
    url = (await api.call("apps.connections.open")).get("url")
    if not isinstance(url, str):
        raise PluginError("Slack gave no address for a connection.")
    return url


def _decoded(message: aiohttp.WSMessage) -> dict[str, Any] | None:
    """Return the object of a frame: {} if it has none, None at the end of the connection."""
    kind = message.type.name
    if kind not in ("TEXT", "BINARY"):
        return None if kind in ("CLOSE", "CLOSING", "CLOSED", "ERROR") else {}
    try:
        value = msgspec.json.decode(message.data)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return {}
    return value if isinstance(value, dict) else {}
