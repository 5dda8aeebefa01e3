"""An IMAP server with an empty folder on the event loop of the test, so that virtual time passes for it too.

What needs a real server runs against dovecot (`mail_servers`).
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from types import TracebackType
from typing import Self

from tests.waiting import until

STILL_HERE_SECONDS = 120.0
"""Seconds between the signs of life during IDLE, as dovecot sends them."""


class ImapServer:
    """The server.

    Attributes:
        port: Where it listens, on loopback, without TLS.
        commands: The commands that arrived, without their tags, and `DONE`.
        connections: How many connections there were.
        greets_after: How many there must have been before the greeting is sent.
        signs: How many signs of life were sent.
        open: The connections that no side has closed.
    """

    def __init__(self) -> None:
        self.port = 0
        self.commands: list[str] = []
        self.connections = 0
        self.greets_after = 0
        self.signs = 0
        self.open: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._enter, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self.open:
            task.cancel()
        if self.open:
            await asyncio.wait(self.open)
        await self._server.wait_closed()

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.open.add(task)
        try:
            with suppress(OSError, asyncio.CancelledError):
                await self._answer(reader, writer)
        finally:
            self.open.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        await until(lambda: self.connections >= self.greets_after)
        writer.write(b"* OK Ready\r\n")
        while line := await reader.readline():
            tag, *words = line.decode("latin-1").split()
            command = " ".join(words[: 2 if words[0] == "UID" else 1])
            self.commands.append(command)
            match command:
                case "CAPABILITY":
                    writer.write(b"* CAPABILITY IMAP4rev1 IDLE SPECIAL-USE\r\n")
                case "SELECT":
                    writer.write(b"* 0 EXISTS\r\n* OK [UIDVALIDITY 7] Valid\r\n* OK [UIDNEXT 1] Next\r\n")
                case "UID SEARCH":
                    writer.write(b"* SEARCH\r\n")
                case "IDLE":
                    writer.write(b"+ idling\r\n")
                    await self._idle(reader, writer)
                case _:
                    pass
            writer.write(f"{tag} OK Done\r\n".encode())

    async def _idle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        reading = asyncio.create_task(reader.readline())
        try:
            while not (await asyncio.wait([reading], timeout=STILL_HERE_SECONDS))[0]:
                writer.write(b"* OK Still here\r\n")
                self.signs += 1
            self.commands.append(reading.result().decode().strip())
        finally:
            reading.cancel()
