"""A lean websocket client: what it costs must not hide what the gateway costs.

Written from the contract and RFC 6455. The masking key is four zero bytes, which is allowed and spares the masking.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable


class Gone(ConnectionError):
    """The server closed the connection, or refused it; the message holds its words."""


class Socket(asyncio.Protocol):
    """One websocket connection. `receive` is called with each text frame as it arrives."""

    def __init__(self, receive: Callable[[bytes], None], gone: Callable[[Gone], None]) -> None:
        self._receive = receive
        self._gone = gone
        self._buffer = bytearray()
        self._upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport

    @classmethod
    async def open(
        cls, port: int, receive: Callable[[bytes], None], gone: Callable[[Gone], None], *, token: str | None = None
    ) -> Socket:
        """Connect to `/ws` on the loopback; Gone if it is refused."""
        loop = asyncio.get_running_loop()
        _, socket = await loop.create_connection(lambda: cls(receive, gone), "127.0.0.1", port)
        key = base64.b64encode(os.urandom(16)).decode()
        head = f"GET /ws HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        head += f"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {key}\r\n"
        head += f"Authorization: Bearer {token}\r\n" if token else ""
        socket._transport.write(f"{head}\r\n".encode())
        await socket._upgraded
        return socket

    def send(self, payload: bytes) -> None:
        """Send one text frame, up to 64 KiB."""
        self._write(0x81, payload)

    def close(self) -> None:
        """Let go of the connection."""
        self._gone = lambda _: None
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._end(Gone(f"the connection ended: {error}"))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if not self._upgraded.done() and not self._upgrade():
            return
        while (frame := self._next()) is not None:
            self._take(*frame)

    def _upgrade(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        if b" 101 " not in self._buffer[:end].split(b"\r\n", 1)[0]:
            self._end(Gone(self._buffer.decode(errors="replace")))
            return False
        del self._buffer[: end + 4]
        self._upgraded.set_result(None)
        return True

    def _next(self) -> tuple[int, bytes] | None:
        if len(self._buffer) < 2:
            return None
        size, start = self._buffer[1] & 0x7F, 2
        if size >= 126:
            start = 4 if size == 126 else 10
            if len(self._buffer) < start:
                return None
            size = int.from_bytes(self._buffer[2:start], "big")
        if len(self._buffer) < start + size:
            return None
        first, payload = self._buffer[0], bytes(self._buffer[start : start + size])
        del self._buffer[: start + size]
        return first, payload

    def _take(self, first: int, payload: bytes) -> None:
        if first == 0x81:
            self._receive(payload)
        elif first == 0x89:
            self._write(0x8A, payload)
        elif first == 0x88:
            code = int.from_bytes(payload[:2], "big")
            self._end(Gone(f"closed with {code} {payload[2:].decode(errors='replace')}"))
        elif first != 0x8A:
            self._end(Gone(f"a frame begins with {first:#x}, which this client does not know"))

    def _write(self, first: int, payload: bytes) -> None:
        size = len(payload)
        length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        self._transport.write(b"%c%s\0\0\0\0%s" % (first, length, payload))

    def _end(self, gone: Gone) -> None:
        if not self._upgraded.done():
            self._upgraded.set_exception(gone)
        else:
            self._gone(gone)
