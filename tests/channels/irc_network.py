"""A real ngircd on a free port, and people on it: a client of IRC in a few lines, which shares no code with the channel."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import shutil
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.ports import free_port
from tests.waiting import deadline, until

NGIRCD = shutil.which("ngircd", path=f"{os.environ.get('PATH', '')}:/usr/sbin")

needs_ngircd = pytest.mark.skipif(NGIRCD is None, reason="ngircd is missing; `apt-get install ngircd` brings it")

CONFIGURATION = """
[Global]
Name = irc.example.test
Listen = 127.0.0.1
Ports = {port}
MotdPhrase = "Welcome."
Password = {password}
[Limits]
MaxConnectionsIP = 0
MaxNickLength = 30
MaxJoins = 50
MaxPenaltyTime = 0
[Options]
DNS = no
Ident = no
PAM = no
[Operator]
Name = warden
Password = keys
{tls}
"""


class Ngircd:
    """A server. `restart` ends it and starts it again on the same port."""

    def __init__(self, folder: Path, *, password: str = "", tls: tuple[Path, Path] | None = None) -> None:
        self.port = free_port()
        self.tls_port = free_port() if tls else 0
        secure = f"[SSL]\nCertFile = {tls[0]}\nKeyFile = {tls[1]}\nPorts = {self.tls_port}\n" if tls else ""
        self._file = folder / "ngircd.conf"
        folder.mkdir(parents=True, exist_ok=True)
        self._file.write_text(CONFIGURATION.format(port=self.port, password=password, tls=secure))
        self._process: asyncio.subprocess.Process

    async def start(self) -> None:
        """Start it, and wait until it listens."""
        assert NGIRCD is not None
        output = self._file.with_suffix(".log").open("ab")
        with output:
            self._process = await asyncio.create_subprocess_exec(
                NGIRCD, "-n", "-f", str(self._file), stdin=asyncio.subprocess.DEVNULL, stdout=output, stderr=output
            )
        async with deadline():
            while True:
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", self.port)
                except OSError:
                    assert self._process.returncode is None, self._file.with_suffix(".log").read_text()
                    await asyncio.sleep(0.01)
                else:
                    writer.close()
                    return

    async def stop(self) -> None:
        """End it."""
        if self._process.returncode is None:
            self._process.kill()
        await self._process.wait()

    async def restart(self) -> None:
        """End it and start it again."""
        await self.stop()
        await self.start()


@asynccontextmanager
async def ngircd(folder: Path, **options: Any) -> AsyncIterator[Ngircd]:
    """Run a server."""
    server = Ngircd(folder, **options)
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


class IrcPerson:
    """Somebody on a server. `lines` holds everything that was received, without line ends."""

    def __init__(self, nick: str, port: int, password: str = "") -> None:
        self.nick = nick
        self.lines: list[str] = []
        self.here: dict[str, set[str]] = {}
        """Who is in each channel."""
        self._port = port
        self._password = password
        self._tokens = itertools.count()
        self._reader: asyncio.StreamReader
        self._writer: asyncio.StreamWriter
        self._reading: asyncio.Task[None]

    async def enter(self, *rooms: str) -> None:
        """Connect, and join channels."""
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port)
        self._reading = asyncio.create_task(self._read())
        password = [f"PASS {self._password}"] if self._password else []
        self.write(*password, f"NICK {self.nick}", f"USER {self.nick} 0 * :{self.nick}")
        await self.until(partial(_has, f" 001 {self.nick} "))
        for room in rooms:
            self.write(f"JOIN {room}")
            await self.until(partial(_has, f" 366 {self.nick} {room} "))

    async def leave(self) -> None:
        """Disconnect."""
        self._reading.cancel()
        await asyncio.wait([self._reading])
        self._writer.close()

    def write(self, *lines: str) -> None:
        """Send lines as they are."""
        self._writer.write("".join(f"{line}\r\n" for line in lines).encode())

    async def until(self, fits: Callable[[str], bool], since: int = 0) -> str:
        """Return the first line, from one on, that fits; wait for it."""
        await until(lambda: self._reading.done() or any(map(fits, self.lines[since:])))
        if self._reading.done():
            self._reading.result()  # raises what ended it
            assert any(map(fits, self.lines[since:])), f"The server disconnected {self.nick}: {self.lines[-3:]}"
        return next(line for line in self.lines[since:] if fits(line))

    async def say(self, target: str, text: str) -> None:
        """Send a message, and wait until the server has processed it."""
        self.write(f"PRIVMSG {target} :{text}")
        await self.fence()

    async def fence(self) -> None:
        """Wait until the server has processed everything that was sent."""
        token = f"fence-{next(self._tokens)}"
        self.write(f"PING :{token}")
        await self.until(lambda line: line.startswith(":irc.example.test PONG ") and line.endswith(token), len(self.lines))

    def messages(self, target: str, *, source: str = "exuvia", command: str = "PRIVMSG") -> list[str]:
        """Return the texts that somebody sent to a channel, or to this person."""
        form = re.compile(rf":{re.escape(source)}_*!\S+ {command} {re.escape(target)} :?(.*)", re.DOTALL)
        return [found[1] for line in self.lines if (found := form.fullmatch(line))]

    async def heard(self, target: str, count: int = 1, **options: str) -> list[str]:
        """Wait for so many texts of somebody, and return all."""
        await until(lambda: len(self.messages(target, **options)) >= count)
        return self.messages(target, **options)

    async def _read(self) -> None:
        while raw := await self._reader.readline():
            line = raw.decode("utf-8", "replace").rstrip("\r\n")
            if line.startswith("PING "):
                self.write(f"PONG {line[5:]}")
                continue
            self._follow(line.split(" "))
            self.lines.append(line)

    def _follow(self, words: Sequence[str]) -> None:
        """Keep who is in which channel."""
        nick, command, *rest = words[0].lstrip(":").partition("!")[0], *words[1:], ""
        match command:
            case "JOIN":
                self.here.setdefault(rest[0].lstrip(":"), set()).add(nick)
            case "353":
                self.here.setdefault(rest[2], set()).update(name.lstrip(":@+~&%") for name in rest[3:])
            case "PART":
                self.here[rest[0]].discard(nick)
            case "KICK":
                self.here[rest[0]].discard(rest[1])
            case "NICK":
                for people in self.here.values():
                    if nick in people:
                        people.remove(nick)
                        people.add(rest[0].lstrip(":"))
            case "QUIT":
                for people in self.here.values():
                    people.discard(nick)


def _has(part: str, line: str) -> bool:
    return part in line
