"""A client that sends one message at a time, waits for the end of its turn and measures the time of each part."""

from __future__ import annotations

import asyncio
import time

import msgspec

from benchmarks.websocket_client import Socket


class TurnFailed(Exception):
    """A turn that did not end with a reply."""


class Times(msgspec.Struct, frozen=True, kw_only=True):
    """Times of one turn in seconds since its message was sent. `sent` and `received` are bytes of frames."""

    accepted: float
    first_delta: float
    ended: float
    sent: int
    received: int


class _Event(msgspec.Struct):
    kind: str
    outcome: str | None = None


class _Frame(msgspec.Struct):
    type: str
    event: _Event | None = None
    message: str | None = None


class _Turn:
    """The turn in progress."""

    def __init__(self, sent: int) -> None:
        self.sent = sent
        self.received = 0
        self.accepted = 0.0
        self.first_delta = 0.0
        self.done: asyncio.Future[Times] = asyncio.get_running_loop().create_future()
        self.began = time.perf_counter()


_decode = msgspec.json.Decoder(_Frame).decode


class Client:
    """A client in one session with at most one turn in progress."""

    def __init__(self, session: str) -> None:
        self._session = session
        self._count = 0
        self._turn: _Turn | None = None
        self._socket: Socket

    @classmethod
    async def open(cls, port: int, token: str, session: str) -> Client:
        """Connect to a gateway."""
        client = cls(session)
        client._socket = await Socket.open(port, client._receive, client._fail, token=token)
        return client

    async def turn(self) -> Times:
        """Send one message and wait for the end of its turn.

        Raises:
            TurnFailed: The turn did not end with a reply.
        """
        self._count += 1
        frame = b'{"type":"send","id":"%s-%d","session":"%s","text":"%s"}' % (
            self._session.encode(),
            self._count,
            self._session.encode(),
            b"Message %d: what is the shell called that a crab leaves behind?" % self._count,
        )
        self._turn = _Turn(len(frame))
        self._socket.send(frame)
        return await asyncio.wait_for(self._turn.done, 60)

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _receive(self, payload: bytes) -> None:
        now = time.perf_counter()
        frame = _decode(payload)
        turn = self._turn
        if turn is None:  # the welcome frame
            return
        turn.received += len(payload)
        if frame.type == "accepted":
            turn.accepted = now - turn.began
        elif frame.type == "delta":
            turn.first_delta = turn.first_delta or now - turn.began
        elif frame.type == "error":
            self._fail(TurnFailed(frame.message))
        elif frame.event is not None and frame.event.kind == "turn_ended":
            self._end(turn, now, payload, frame.event.outcome)

    def _end(self, turn: _Turn, now: float, payload: bytes, outcome: str | None) -> None:
        if outcome != "replied" or not turn.accepted or not turn.first_delta:
            self._fail(TurnFailed(payload.decode()))
            return
        self._turn = None
        turn.done.set_result(
            Times(
                accepted=turn.accepted,
                first_delta=turn.first_delta,
                ended=now - turn.began,
                sent=turn.sent,
                received=turn.received,
            )
        )

    def _fail(self, error: Exception) -> None:
        turn, self._turn = self._turn, None
        if turn is not None and not turn.done.done():
            turn.done.set_exception(error)
