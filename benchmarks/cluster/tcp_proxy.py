"""A TCP proxy with faults: it delays, swallows, resets and halves what passes, and refuses connections.

It stands between a gateway and a server of the database, or between clients and a gateway. What was swallowed is missing
from the stream, so such connections are reset when the fault ends.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from enum import Enum, auto
from pathlib import Path
from types import TracebackType
from typing import Self

_RESET_ON_CLOSE = struct.pack("ii", 1, 0)


class Passage(Enum):
    """How bytes pass: `OPEN`; `PAUSED`, nothing is read, and all of it arrives later; `SWALLOWED`, everything is read and
    dropped, as by a link that is down; `REFUSED`, connections are reset."""

    OPEN = auto()
    PAUSED = auto()
    SWALLOWED = auto()
    REFUSED = auto()


class TcpProxy:
    """A proxy on a port of loopback, used as an async context manager.

    Args:
        target: A path of a unix socket, or a port of loopback. It may be set again, for later connections.
        port: The port to listen on; 0 for a free one.
    """

    def __init__(self, target: Path | int, port: int = 0) -> None:
        self.target = target
        self.port = port
        self.connections = 0
        """How many connections were accepted."""
        self._passage = Passage.OPEN
        self._pairs: set[_Pair] = set()
        self._server: asyncio.Server

    async def __aenter__(self) -> Self:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: _Pair(self).near, "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        self.reset()

    @property
    def passage(self) -> Passage:
        """How bytes pass now."""
        return self._passage

    @passage.setter
    def passage(self, passage: Passage) -> None:
        before, self._passage = self._passage, passage
        if passage is Passage.REFUSED or before is Passage.SWALLOWED:
            self.reset()
        for pair in tuple(self._pairs):
            pair.adjust()

    def reset(self, target: Path | int | None = None) -> None:
        """Reset all connections, or those to one target."""
        for pair in tuple(self._pairs):
            if target is None or pair.target == target:
                pair.reset()

    def halve(self) -> None:
        """Of the next bytes of each connection, forward the first half, and reset the connection."""
        for pair in self._pairs:
            pair.halving = True

    async def connect(self, far: asyncio.Protocol) -> Path | int:
        """Connect to the target, and return it. Raises OSError."""
        target = self.target
        loop = asyncio.get_running_loop()
        if isinstance(target, Path):
            await loop.create_unix_connection(lambda: far, str(target))
        else:
            await loop.create_connection(lambda: far, "127.0.0.1", target)
        return target


class _Pair:
    """A connection of a client and that to the target."""

    def __init__(self, proxy: TcpProxy) -> None:
        self.proxy = proxy
        self.halving = False
        self.target: Path | int | None = None
        self.near, self.far = _Side(self), _Side(self)
        self._connecting: asyncio.Task[None] | None = None

    def accepted(self) -> None:
        """Connect to the target, unless connections are refused."""
        self.proxy.connections += 1
        self.proxy._pairs.add(self)
        if self.proxy.passage is Passage.REFUSED:
            self.reset()
        else:
            self._connecting = asyncio.get_running_loop().create_task(self._connect())

    def other(self, side: _Side) -> _Side:
        return self.far if side is self.near else self.near

    def adjust(self) -> None:
        """Read or stop reading, as the proxy is set."""
        for side in (self.near, self.far):
            side.read(self.proxy.passage is not Passage.PAUSED)

    def reset(self) -> None:
        """Abort both connections, so that the peers see a reset."""
        self.proxy._pairs.discard(self)
        if self._connecting is not None:
            self._connecting.cancel()
        self.near.reset()
        self.far.reset()

    async def _connect(self) -> None:
        try:
            self.target = await self.proxy.connect(self.far)
        except OSError:
            self.reset()
            return
        self.adjust()


class _Side(asyncio.Protocol):
    """One of the two connections of a pair. `early` has what is to be sent before there is one."""

    def __init__(self, pair: _Pair) -> None:
        self.early = bytearray()
        self._pair = pair
        self._transport: asyncio.Transport | None = None
        self._full = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self is self._pair.near:
            self._pair.accepted()
        else:
            self.write(bytes(self.early))

    def data_received(self, data: bytes) -> None:
        if self._pair.proxy.passage is Passage.SWALLOWED:
            return
        other = self._pair.other(self)
        if not self._pair.halving:
            other.write(data)
            return
        other.write(data[: len(data) // 2])
        other.finish()
        self.reset()
        self._pair.proxy._pairs.discard(self._pair)

    def eof_received(self) -> bool:
        if self._pair.proxy.passage is not Passage.SWALLOWED:
            self._pair.other(self).finish()
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        if self._pair.proxy.passage is Passage.SWALLOWED:
            return  # the other side does not hear of it
        if error is not None:
            self._pair.reset()
            return
        self._pair.other(self).finish()
        self._pair.proxy._pairs.discard(self._pair)

    def pause_writing(self) -> None:
        self._full = True
        self._pair.adjust()

    def resume_writing(self) -> None:
        self._full = False
        self._pair.adjust()

    def write(self, data: bytes) -> None:
        """Send, or keep until there is a connection."""
        if self._transport is None:
            self.early += data
        else:
            self._transport.write(data)

    def read(self, wanted: bool) -> None:
        """Read from this connection, or stop."""
        if self._transport is None or self._transport.is_closing():
            return
        if wanted and not self._pair.other(self)._full:
            self._transport.resume_reading()
        else:
            self._transport.pause_reading()

    def finish(self) -> None:
        """Close after what was written."""
        if self._transport is not None:
            self._transport.close()

    def reset(self) -> None:
        """Abort the connection."""
        if self._transport is None:
            return
        connection: socket.socket | None = self._transport.get_extra_info("socket")
        if connection is not None and connection.family == socket.AF_INET:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_ON_CLOSE)
        self._transport.abort()
