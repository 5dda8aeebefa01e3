"""Clients of a cluster: persons that send and do not give up, and watchers that only read. What they see becomes a history.

They do what docs/websocket.md asks of a client: after a lost connection they connect anywhere, subscribe from the last event
seen, and send again what nobody acknowledged.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from benchmarks.cluster.history import Attempt, History, Stream, digest
from benchmarks.gateway_process import TOKEN
from benchmarks.websocket_client import ConnectionClosed, Socket

PATIENCE_SECONDS = 3.0
"""How long a client waits for any answer before it connects elsewhere."""

RETRY_SECONDS = 0.1
LIMIT_SECONDS = 120.0
"""How long a message may remain without its answer until the client reports it."""

TEMPORARY = ("busy", "storage_failed", "unknown_session")

Frame = dict[str, Any]


class Unanswered(Exception):
    """A message had no answer within LIMIT_SECONDS."""


class Reader:
    """A client that follows a key: one connection at a time, to any of `ports`.

    Args:
        name: The name of the client in the history.
        key: The key of the conversation.
        ports: The ports to connect to, of which one is chosen each time.
        history: What is seen is added to it.
        choice: Random numbers.
        heard: Called with the session, each event and its frame.
    """

    def __init__(
        self,
        name: str,
        key: str,
        ports: Sequence[int],
        history: History,
        choice: random.Random,
        *,
        heard: Callable[[str, Frame], None] = lambda session, event: None,
    ) -> None:
        self.name = name
        self.key = key
        self.connects = 0
        self.closed: dict[str, int] = {}
        """How often a connection ended, by the reason."""
        self.unreached: dict[str, int] = {}
        """How often no connection or no subscription came about, by the reason."""
        self.answers: asyncio.Queue[Frame | ConnectionClosed] = asyncio.Queue()
        """Everything that is not an event."""
        self.arrived = asyncio.Event()
        """Set with each frame, and when the connection ends."""
        self.session, self.seq = "", 0
        self.port = 0
        self._ports = ports
        self._history = history
        self._choice = choice
        self._heard = heard
        self._socket: Socket | None = None
        self._stream = Stream(client=name, key=key)

    @property
    def connected(self) -> bool:
        """True unless the connection has ended."""
        return self._socket is not None

    async def connect(self) -> None:
        """Connect to some gateway and subscribe from the last event seen. Tries until that succeeds."""
        while True:
            try:
                await self._connect()
            except (OSError, TimeoutError, ConnectionClosed) as error:
                self._missed(str(error) or type(error).__name__)
                await asyncio.sleep(RETRY_SECONDS)
            else:
                return

    def disconnect(self, reason: str) -> None:
        """End the connection, for a reason."""
        self._drop()
        self._ended(reason)

    def _missed(self, reason: str) -> None:
        self.unreached[reason] = self.unreached.get(reason, 0) + 1
        self._drop()

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
        self._socket = None

    def send(self, **frame: Any) -> None:
        """Send a frame. Raises ConnectionClosed."""
        if self._socket is None:
            raise ConnectionClosed("there is no connection")
        self._socket.send(json.dumps(frame, separators=(",", ":")).encode())

    def begin(self, session: str, seq: int) -> None:
        """Follow a session from this event on, if no event was seen yet: sending has subscribed to it."""
        if not self.session:
            self.session, self.seq = session, seq - 1

    async def answer(self, of: str) -> Frame:
        """Return the answer to the frame with this id. Raises ConnectionClosed or TimeoutError."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while True:
                frame = await self.answers.get()
                if isinstance(frame, ConnectionClosed):
                    raise frame
                if frame.get("id") == of:
                    return frame

    async def _connect(self) -> None:
        self.connects += 1
        self.port = self._choice.choice(self._ports)
        self.answers = answers = asyncio.Queue[Frame | ConnectionClosed]()
        self._stream = Stream(client=self.name, key=self.key, session=self.session, after=self.seq)
        self._history.streams.append(self._stream)
        stream = self._stream

        def closed(error: ConnectionClosed) -> None:
            if self._stream is stream and self.connected:
                self._ended(str(error))

        async with asyncio.timeout(PATIENCE_SECONDS):
            self._socket = await Socket.open(self.port, lambda text: self._receive(stream, text), closed, token=TOKEN)
            frame = await answers.get()
        if isinstance(frame, ConnectionClosed):
            raise frame
        if self.session:
            await self._subscribe()

    async def _subscribe(self) -> None:
        self.send(type="subscribe", id="s", session=self.key, session_id=self.session, after=self.seq)
        frame = await self.answer("s")
        if frame["type"] == "error":
            if frame["code"] not in TEMPORARY:
                what = f"lost: {self.name} saw {self.seq} of {self.session} and was told {frame['message']}"
                self._history.findings.append(what)
                self.session, self.seq = "", 0
            raise ConnectionClosed(f"subscribe: {frame['code']}")

    def _receive(self, stream: Stream, text: bytes) -> None:
        if stream is not self._stream:
            return
        frame: Frame = msgspec.json.decode(text)
        if frame["type"] == "event" and frame["session"] == self.key:
            session, event = frame["session_id"], frame["event"]
            stream.events.append((session, event["seq"], digest(event)))
            self.session, self.seq = session, event["seq"]
            self._heard(session, event)
        elif frame["type"] == "error" and "id" not in frame:
            self.disconnect(f"error: {frame['code']}")
        elif frame["type"] in ("welcome", "accepted", "settings", "error", "history"):
            self.answers.put_nowait(frame)
        self.arrived.set()

    def _ended(self, reason: str) -> None:
        self._socket = None
        self.closed[reason] = self.closed.get(reason, 0) + 1
        self.answers.put_nowait(ConnectionClosed(reason))
        self.arrived.set()


class Watcher(Reader):
    """A client that only reads, and connects elsewhere whenever its connection ends.

    It subscribes without an id, so that nothing answers it: a subscription that is lost on its way is never made again.
    """

    async def watch(self) -> None:
        """Follow the key until the task is cancelled."""
        while True:
            if not self.connected:
                await self.connect()
            elif self.arrived.is_set():
                self.arrived.clear()
            else:
                await self.arrived.wait()

    async def until_seen(self, session: str, seq: int) -> None:
        """Return once the watcher has seen this event."""
        while (self.session, self.seq) < (session, seq):  # noqa: ASYNC110 - `watch` waits for the events
            await asyncio.sleep(RETRY_SECONDS)

    async def _connect(self) -> None:
        if self.connects:
            await asyncio.sleep(RETRY_SECONDS)  # the key may not exist yet
        await super()._connect()
        if not self.session:
            await self._subscribe()

    async def _subscribe(self) -> None:
        position = {"session_id": self.session} if self.session else {}
        self.send(type="subscribe", session=self.key, after=self.seq, **position)


class Person:
    """A client that sends one message after the other and waits for the end of each turn."""

    def __init__(self, name: str, key: str, ports: Sequence[int], history: History, choice: random.Random) -> None:
        self.reader = Reader(name, key, ports, history, choice, heard=self._hear)
        self.accepted: list[tuple[float, float, int]] = []
        """For each acknowledged message: the time, the seconds of the last sending, and the port."""
        self.answered: list[tuple[float, float]] = []
        """For each answered message: the time, and the seconds since it was first sent."""
        self._history = history
        self._taken: dict[tuple[str, int], int] = {}
        self._ended: set[tuple[str, int]] = set()

    async def say(self, number: int, text: str) -> None:
        """Send a message and wait for its answer. Raises Unanswered."""
        message = f"{self.reader.name}-{number}"
        begun = time.monotonic()
        try:
            async with asyncio.timeout(LIMIT_SECONDS):
                place = await self._send(message, text)
                await self._until_ended(*place)
        except TimeoutError:
            raise Unanswered(
                f"unanswered: {message} of {self.reader.key} had no answer within {LIMIT_SECONDS:g} s"
            ) from None
        self.answered.append((time.monotonic(), time.monotonic() - begun))

    async def attempt(self, message: str, text: str) -> Attempt:
        """Send a message once, by its id, and return what came of it."""
        if not self.reader.connected:
            await self.reader.connect()
        attempt = await self._attempt(message, text)
        self._history.attempts.append(attempt)
        return attempt

    async def _send(self, message: str, text: str) -> tuple[str, int]:
        while True:
            attempt = await self.attempt(message, text)
            if attempt.outcome == "accepted":
                self.reader.begin(attempt.session, attempt.seq)
                self.accepted.append((attempt.ended, attempt.ended - attempt.began, self.reader.port))
                return attempt.session, attempt.seq
            if attempt.outcome is not None and attempt.outcome not in TEMPORARY:
                self._history.findings.append(f"refused: {message} of {self.reader.key} was answered with {attempt.outcome}")
            await asyncio.sleep(RETRY_SECONDS)

    async def _attempt(self, message: str, text: str) -> Attempt:
        key, began = self.reader.key, time.monotonic()
        attempt = Attempt(client=self.reader.name, key=key, id=message, text=text, began=began)
        try:
            self.reader.send(type="send", id=message, session=self.reader.key, text=text)
            frame = await self.reader.answer(message)
        except (TimeoutError, ConnectionClosed) as error:
            if isinstance(error, TimeoutError):
                self.reader.disconnect("no answer")
            return replace(attempt, ended=time.monotonic())
        ended = time.monotonic()
        if frame["type"] == "error":
            return replace(attempt, ended=ended, outcome=frame["code"])
        return replace(attempt, ended=ended, outcome="accepted", session=frame["session_id"], seq=frame["seq"])

    async def _until_ended(self, session: str, seq: int) -> None:
        while (turn := self._taken.get((session, seq))) is None or (session, turn) not in self._ended:
            if not self.reader.connected:
                await self.reader.connect()
            self.reader.arrived.clear()
            try:
                async with asyncio.timeout(PATIENCE_SECONDS):
                    await self.reader.arrived.wait()
            except TimeoutError:
                self.reader.disconnect("silent")
        self._taken.clear()
        self._ended.clear()

    def _hear(self, session: str, event: Frame) -> None:
        if event["kind"] in ("turn_started", "turn_joined"):
            self._taken |= {(session, seq): event["turn"] for seq in event["takes"]}
        elif event["kind"] == "turn_ended":
            self._ended.add((session, event["turn"]))
