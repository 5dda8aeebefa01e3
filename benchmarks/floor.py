"""The floor: the minimal cost of one durable turn on this machine.

It is the sum of three operations, executed and measured one after the other: the round trip of a frame of the message's size
to a bare aiohttp websocket server; two writes, each with an fdatasync, to a file on the home's file system, together as long
as a turn in the journal; one streamed request by the gateway's HTTP client to the same fake model, with the body of the
gateway's last request. The other frames of a turn, the thread of the sync and the assembly of the body are not included, so
they count as overhead of the gateway.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.request import urlopen

import msgspec

from benchmarks.process import serving
from benchmarks.websocket_client import ConnectionClosed, Socket
from plugins.http.client import Transport


class FloorTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Times of one pass in seconds. `synced_once` is the first of the two synced writes."""

    echo: float
    synced_once: float
    synced: float
    request: float

    @property
    def turn(self) -> float:
        """The floor of a turn."""
        return self.echo + self.synced + self.request

    @property
    def accepted(self) -> float:
        """The floor of an acknowledgement: one echo and one sync."""
        return self.echo + self.synced_once


class Floor:
    """Measures the floor in single passes, which alternate with the turns that they are compared with."""

    def __init__(self, transport: Transport, model_port: int, descriptor: int) -> None:
        self._transport = transport
        self._model_port = model_port
        self._descriptor = descriptor
        self._echoed: asyncio.Future[bytes]
        self._socket: Socket

    @classmethod
    @asynccontextmanager
    async def open(cls, folder: Path, model_port: int) -> AsyncIterator[Floor]:
        """Open with a separate echo server and a temporary file in `folder`."""
        path = folder / "floor"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            with serving("echo_server") as (_, echo_port):
                async with Transport() as transport:
                    floor = cls(transport, model_port, descriptor)
                    floor._socket = await Socket.open(echo_port, floor._receive, floor._fail)
                    yield floor
                    floor._socket.close()
        finally:
            os.close(descriptor)
            path.unlink()

    async def measure(self, *, frame: int, journal: int, body: bytes) -> FloorTimes:
        """Measure one pass with a frame of `frame` bytes, `journal` bytes in two syncs and a request with `body`."""
        began = time.perf_counter()
        await self._echo(b"x" * frame)
        echoed = time.perf_counter()
        self._sync(b"x" * (journal // 2))
        once = time.perf_counter()
        self._sync(b"x" * (journal - journal // 2))
        synced = time.perf_counter()
        await self.request(body)
        replied = time.perf_counter()
        return FloorTimes(echo=echoed - began, synced_once=once - echoed, synced=synced - echoed, request=replied - synced)

    async def last_body(self) -> bytes:
        """Return the body of the last request that the fake model received."""
        return await asyncio.to_thread(self._last_body)

    async def request(self, body: bytes) -> None:
        """Send one streamed request and read the whole response."""
        url = f"http://127.0.0.1:{self._model_port}/v1/chat/completions"
        async for _ in self._transport.stream_events(url, headers={"Authorization": "Bearer sk-benchmark"}, body=body):
            pass

    def _last_body(self) -> bytes:
        with urlopen(f"http://127.0.0.1:{self._model_port}/last") as answer:
            body: bytes = answer.read()
            return body

    async def _echo(self, payload: bytes) -> None:
        self._echoed = asyncio.get_running_loop().create_future()
        self._socket.send(payload)
        await self._echoed

    def _sync(self, chunk: bytes) -> None:
        # Blocking on purpose: the switch to another thread counts as overhead of the gateway.
        os.write(self._descriptor, chunk)
        os.fdatasync(self._descriptor)

    def _receive(self, payload: bytes) -> None:
        self._echoed.set_result(payload)

    def _fail(self, error: ConnectionClosed) -> None:
        self._echoed.set_exception(error)
