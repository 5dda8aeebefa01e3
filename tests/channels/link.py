"""A TCP proxy between a gateway and a service, which delays what passes and cuts connections at any byte."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Literal, Self

CHUNK = 4096

Direction = Literal["in", "out"]
"""From the service to the gateway, or from the gateway to the service."""


class Link:
    """A proxy for a TCP service. The gateway connects to `port`; TLS passes through.

    Attributes:
        port: The port on which it listens, on loopback.
        delay: Seconds by which each chunk of bytes is delayed.
        connections: How many connections there were.
        cuts: How many connections were cut.
        down: The intervals in which there was no connection, by the clock of the event loop; the last one is open while
            there is none.
    """

    def __init__(self, port: int, host: str = "127.0.0.1") -> None:
        self.port = 0
        self.delay = 0.0
        self.connections = 0
        self.cuts = 0
        self.down: list[tuple[float, float]] = []
        self._service = host, port
        self._open: set[asyncio.StreamWriter] = set()
        self._left: dict[Direction, int] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._enter, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        self.down = [(self._now(), float("inf"))]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._closed = True
        self._server.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await asyncio.sleep(0)  # what was aborted is closed in the next pass of the event loop

    def sever(self, direction: Direction = "in", after: int = 0) -> None:
        """Cut all connections, once `after` more bytes have passed in this direction; 0 is now."""
        if after:
            self._left[direction] = after
        else:
            self._cut()

    def _cut(self, *, flushed: asyncio.StreamWriter | None = None) -> None:
        """Abort all connections; `flushed` is closed after its bytes are sent."""
        self._left.clear()
        for writer in self._open:
            if writer is flushed:
                writer.close()
            else:
                writer.transport.abort()
        self.cuts += bool(self._open)

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        ends = {writer}
        try:
            if self._closed:
                return
            far_reader, far_writer = await asyncio.open_connection(*self._service)
            ends.add(far_writer)
            await self._carry((reader, far_writer), (far_reader, writer))
        except OSError:
            writer.transport.abort()
        finally:
            await self._close(ends)

    async def _carry(
        self, out: tuple[asyncio.StreamReader, asyncio.StreamWriter], back: tuple[asyncio.StreamReader, asyncio.StreamWriter]
    ) -> None:
        """Pass bytes in both directions until one of them ends."""
        if not self._open:
            self.down[-1] = self.down[-1][0], self._now()
        self.connections += 1
        ends = {out[1], back[1]}
        self._open |= ends
        flows = {asyncio.create_task(self._pass(*out, "out")), asyncio.create_task(self._pass(*back, "in"))}
        try:
            await asyncio.wait(flows, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in flows:
                each.cancel()
            await asyncio.wait(flows)
            self._open -= ends
            if not self._open:
                self.down.append((self._now(), float("inf")))

    async def _close(self, ends: set[asyncio.StreamWriter]) -> None:
        """Close both connections once what was written is sent, or at once if the link is closed meanwhile."""
        for end in ends:
            if self._closed:
                end.transport.abort()
            else:
                end.close()
        with suppress(OSError):
            try:
                for end in ends:
                    await end.wait_closed()
            except asyncio.CancelledError:  # the other side does not read
                for end in ends:
                    end.transport.abort()
                raise

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, direction: Direction) -> None:
        with suppress(OSError):
            while chunk := await reader.read(CHUNK):
                if self.delay:
                    await asyncio.sleep(self.delay)
                left = self._left.get(direction)
                if left is None:
                    writer.write(chunk)
                    await writer.drain()
                    continue
                self._left[direction] = left - len(chunk)
                writer.write(chunk[:left])
                await writer.drain()
                if left <= len(chunk):
                    self._cut(flushed=writer)
                    return
