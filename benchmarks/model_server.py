"""A fake model server with minimal overhead that implements a subset of the OpenAI protocol.

`python -m benchmarks.model_server` prints its port and serves until it is killed. Each `POST` receives the same response:
eight chunks of text, the finish reason, the usage and `[DONE]`, each in a separate write without delay. `GET /last` returns
the body of the last `POST`, so that the floor can repeat the request. Bodies are not parsed.
"""

from __future__ import annotations

import asyncio
import re
import sys

PIECES = ("The shell ", "is called ", "an exuvia; ", "it is what ", "an animal ", "leaves behind ", "when it ", "moults.")

_LENGTH = re.compile(rb"\r\ncontent-length:[ \t]*([0-9]+)", re.IGNORECASE)


def _chunk(data: str) -> bytes:
    event = f"data: {data}\n\n".encode()
    return b"%x\r\n%s\r\n" % (len(event), event)


def _piece(delta: str, finish: str) -> bytes:
    return _chunk(
        '{"id":"c","object":"chat.completion.chunk","created":1,"model":"fake",'
        f'"choices":[{{"index":0,"delta":{delta},"finish_reason":{finish}}}]}}'
    )


HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nCache-Control: no-cache\r\n\r\n"
STREAM = (
    _piece('{"role":"assistant","content":""}', "null"),
    *(_piece(f'{{"content":"{piece}"}}', "null") for piece in PIECES),
    _piece("{}", '"stop"'),
    _chunk(
        '{"id":"c","object":"chat.completion.chunk","created":1,"model":"fake","choices":[],'
        '"usage":{"prompt_tokens":100,"completion_tokens":16,"total_tokens":116}}'
    ),
    _chunk("[DONE]"),
    b"0\r\n\r\n",
)


class ModelServer:
    """The state shared by all connections: the body of the last `POST`."""

    def __init__(self) -> None:
        self.last = b""


class ModelConnection(asyncio.Protocol):
    """A persistent connection with sequential requests."""

    def __init__(self, server: ModelServer) -> None:
        self._server = server
        self._received = bytearray()
        self._wanted = 0
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        self._received += data
        while len(self._received) > self._wanted and (request := self._next()) is not None:
            self._answer(*request)

    def _next(self) -> tuple[bytes, bytes] | None:
        """Remove one complete request from the buffer and return its head and body."""
        end = self._received.find(b"\r\n\r\n")
        if end < 0:
            return None
        head = bytes(self._received[:end])
        length = _LENGTH.search(head)
        size = end + 4 + (int(length[1]) if length else 0)
        if len(self._received) < size:
            self._wanted = size - 1  # no need to parse again before
            return None
        body = bytes(self._received[end + 4 : size])
        del self._received[:size]
        self._wanted = 0
        return head, body

    def _answer(self, head: bytes, body: bytes) -> None:
        if head.startswith(b"POST "):
            self._server.last = body
            self._transport.write(HEAD)
            for chunk in STREAM:
                self._transport.write(chunk)
        else:
            last = self._server.last if head.startswith(b"GET /last ") else b"{}"
            self._transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(last) + last)


async def serve() -> None:
    """Listen on a free loopback port and print it."""
    server = ModelServer()
    listening = await asyncio.get_running_loop().create_server(lambda: ModelConnection(server), "127.0.0.1", 0)
    print(listening.sockets[0].getsockname()[1], flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    sys.exit(asyncio.run(serve()))
