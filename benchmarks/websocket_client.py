"""A minimal websocket client (RFC 6455) with little overhead of its own.

The masking key is four zero bytes, so that payloads need no masking.
"""

from __future__ import annotations

import asyncio
import base64
import os
from collections.abc import Callable


class ConnectionClosed(ConnectionError):
    """The server closed or refused the connection. The message contains the reason."""


class Socket(asyncio.Protocol):
    """A websocket connection. `on_text` is called with each text frame, `on_close` when the server closes the connection."""

    def __init__(self, on_text: Callable[[bytes], None], on_close: Callable[[ConnectionClosed], None]) -> None:
        self._on_text = on_text
        self._on_close = on_close
        self._buffer = bytearray()
        self._upgraded: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._transport: asyncio.Transport

    @classmethod
    async def open(
        cls,
        port: int,
        on_text: Callable[[bytes], None],
        on_close: Callable[[ConnectionClosed], None],
        *,
        token: str | None = None,
    ) -> Socket:
        """Connect to `/ws` on the loopback.

        Raises:
            ConnectionClosed: The connection is refused.
        """
        loop = asyncio.get_running_loop()
        _, socket = await loop.create_connection(lambda: cls(on_text, on_close), "127.0.0.1", port)
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
        """Close the connection without a closing handshake."""
        self._on_close = lambda _: None
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def connection_lost(self, error: Exception | None) -> None:
        self._end(ConnectionClosed(f"the connection ended: {error}"))

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
            self._end(ConnectionClosed(self._buffer.decode(errors="replace")))
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
            self._on_text(payload)
        elif first == 0x89:
            self._write(0x8A, payload)
        elif first == 0x88:
            code = int.from_bytes(payload[:2], "big")
            self._end(ConnectionClosed(f"closed with {code} {payload[2:].decode(errors='replace')}"))
        elif first != 0x8A:
            self._end(ConnectionClosed(f"a frame begins with {first:#x}, which is not supported"))

    def _write(self, first: int, payload: bytes) -> None:
        size = len(payload)
        length = bytes([0x80 | size]) if size < 126 else b"\xfe" + size.to_bytes(2, "big")
        self._transport.write(b"%c%s\0\0\0\0%s" % (first, length, payload))

    def _end(self, error: ConnectionClosed) -> None:
        if not self._upgraded.done():
            self._upgraded.set_exception(error)
        else:
            self._on_close(error)
