"""A fake IRC server with what ngircd lacks: SASL, message tags with ids and times, echoes, labels, accounts, and a history.

Written from the specifications of IRCv3 (capability negotiation, SASL 3.1 and 3.2, message tags, echo-message,
labeled-response, batch, chathistory) and modern.ircdocs.horse.
"""

from __future__ import annotations

import asyncio
import base64
import itertools
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Self

from tests.waiting import until

OFFERED = (
    "account-tag", "batch", "draft/chathistory", "echo-message", "labeled-response", "message-tags", "sasl=PLAIN,EXTERNAL",
    "server-time",
)  # fmt: skip

CHUNK = 400
"""Characters of each part of a login but the last."""

LAST_PAGE = 100
"""Messages of a page of the history, at most."""


class IrcServer:
    """The fake. `accounts` are names and passwords; `offered` the capabilities.

    Attributes:
        history: What was said in each chat: the tags, the source and the text.
        typing: The targets of notices that somebody is typing.
        swallow: Lines that are accepted and not answered: the connection is closed after so many of them.
    """

    def __init__(self, *, accounts: Mapping[str, str] | None = None, offered: tuple[str, ...] = OFFERED) -> None:
        self.history: dict[str, list[tuple[str, str, str]]] = {}
        self.typing: list[str] = []
        self.received: list[str] = []
        self.swallow = 0
        self.port = 0
        self._accounts = accounts or {}
        self._offered = offered
        self._clients: dict[str, _Client] = {}
        self._ids = itertools.count(1)

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Self]:
        """Listen on a free port."""
        server = await asyncio.start_server(self._enter, "127.0.0.1", 0, limit=16 * 1024)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield self
        finally:
            server.close()
            self.disconnect()

    def disconnect(self) -> None:
        """Close all connections."""
        for client in list(self._clients.values()):
            client.writer.transport.abort()

    def say(self, nick: str, target: str, text: str, *, account: str = "", tags: str = "") -> None:
        """Have somebody send a message."""
        number = next(self._ids)
        account = f";account={account}" if account else ""
        written = f"msgid=m{number};time=2026-11-23T12:00:{number // 1000:02}.{number % 1000:03}Z{account}{tags}"
        source = f"{nick}!{nick}@host.example"
        chat = target if target.startswith("#") else nick
        self.history.setdefault(chat, []).append((written, source, text))
        for client in list(self._clients.values()):
            if target in (client.nick, *client.rooms):
                client.send(f"@{written} :{source} PRIVMSG {target} :{text}")

    async def joined(self, room: str) -> None:
        """Wait until a client is in a channel."""
        await until(lambda: any(room in client.rooms for client in self._clients.values()))

    async def _enter(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        client = _Client(writer)
        try:
            while raw := await reader.readline():
                text = raw.decode().rstrip("\r\n")
                self.received.append(text)
                tags, _, rest = text[1:].partition(" ") if text.startswith("@") else ("", "", text)
                head, _, last = rest.partition(" :")
                words = [*head.split(" "), *([last] if " :" in rest else [])]
                assert len(rest.encode()) <= 510, f"too long: {rest}"
                self._answer(client, dict(each.partition("=")[::2] for each in tags.split(";")), words)
        except (OSError, ValueError):
            pass
        except asyncio.CancelledError:  # the end of the test; a stream's callback would log it
            pass
        finally:
            if self._clients.get(client.nick) is client:
                del self._clients[client.nick]
            writer.close()

    def _answer(self, client: _Client, tags: Mapping[str, str], words: list[str]) -> None:
        match words:
            case ["CAP", "LS", *_]:
                half = len(self._offered) // 2
                client.send(f":irc.fake CAP * LS * :{' '.join(self._offered[:half])}")
                client.send(f":irc.fake CAP * LS :{' '.join(self._offered[half:])}")
            case ["CAP", "REQ", wanted]:
                client.capabilities = set(wanted.split())
                client.send(f":irc.fake CAP * ACK :{wanted}")
            case ["CAP", "END"]:
                self._welcome(client)
            case ["AUTHENTICATE", "PLAIN"]:
                client.send("AUTHENTICATE +")
            case ["AUTHENTICATE", secret]:
                client.secret += secret.removeprefix("+")
                if len(secret) < CHUNK:  # the last part
                    self._log_in(client)
            case ["NICK", nick]:
                client.nick = nick
            case _ if client.nick in self._clients:
                self._serve(client, tags, words)

    def _serve(self, client: _Client, tags: Mapping[str, str], words: list[str]) -> None:
        """Answer a line of a registered client."""
        match words:
            case ["PING", token]:
                client.send(f":irc.fake PONG irc.fake :{token}")
            case ["JOIN", room]:
                client.rooms.add(room)
                client.send(f":{client.source} JOIN {room}")
            case ["TAGMSG", target]:
                self.typing.append(target)
            case ["CHATHISTORY", "TARGETS", *_]:
                self._batch(client, "draft/chathistory-targets", [f"CHATHISTORY TARGETS {chat} x" for chat in self.history])
            case ["CHATHISTORY", "AFTER", chat, since, _]:
                said = [each for each in self.history.get(chat, ()) if _time(each[0]) > since.removeprefix("timestamp=")]
                lines = [f"{tags} :{source} PRIVMSG {chat} :{text}" for tags, source, text in said[:LAST_PAGE]]
                self._batch(client, f"chathistory {chat}", lines)
            case ["PRIVMSG", target, text]:
                self._post(client, tags, target, text)

    def _log_in(self, client: _Client) -> None:
        _, name, password = base64.b64decode(client.secret).decode().split("\0")
        right = self._accounts.get(name) == password
        client.send(":irc.fake 903 * :Logged in" if right else ":irc.fake 904 * :SASL authentication failed")

    def _welcome(self, client: _Client) -> None:
        self._clients[client.nick] = client
        client.send(f":irc.fake 001 {client.nick} :Welcome")
        client.send(f":irc.fake 005 {client.nick} CASEMAPPING=ascii CHANTYPES=# BOT=B :are supported by this server")
        client.send(f":irc.fake 422 {client.nick} :No message of the day")

    def _batch(self, client: _Client, kind: str, lines: list[str]) -> None:
        number = next(self._ids)
        client.send(f":irc.fake BATCH +{number} {kind}")
        for line in lines:
            client.send(f"@batch={number};{line}" if " PRIVMSG " in line else f"@batch={number} :irc.fake {line}")
        client.send(f":irc.fake BATCH -{number}")

    def _post(self, client: _Client, tags: Mapping[str, str], target: str, text: str) -> None:
        label = f"label={tags['label']};" if "label" in tags and "labeled-response" in client.capabilities else ""
        if target == "#gone":
            client.send(f"@{label} :irc.fake 403 {client.nick} {target} :No such channel")
            return
        number = next(self._ids)
        written = f"msgid=m{number};time=2026-11-23T12:00:{number // 1000:02}.{number % 1000:03}Z"
        self.history.setdefault(target, []).append((written, client.source, text))
        if self.swallow:
            self.swallow -= 1
            if not self.swallow:
                client.writer.transport.abort()
            return
        if "echo-message" in client.capabilities:
            client.send(f"@{label}{written} :{client.source} PRIVMSG {target} :{text}")
        elif label:
            client.send(f"@{label[:-1]} :irc.fake ACK")


class _Client:
    """A connected client."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self.writer = writer
        self.nick = ""
        self.secret = ""
        self.capabilities: set[str] = set()
        self.rooms: set[str] = set()

    @property
    def source(self) -> str:
        return f"{self.nick}!assistant@a.host.example"

    def send(self, line: str) -> None:
        self.writer.write(line.encode() + b"\r\n")


def _time(tags: str) -> str:
    """Return the time in written tags."""
    return dict(each.partition("=")[::2] for each in tags.split(";"))["time"]
