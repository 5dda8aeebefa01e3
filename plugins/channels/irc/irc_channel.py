"""The channel `irc`: channels and private messages of an IRC server.

IRC acknowledges nothing that a client receives: what the server has sent is lost if the connection or the gateway ends
before it is stored. Only a server with a history (`draft/chathistory`) is asked for what came meanwhile. What is sent is
confirmed by the server, see `irc_connection`; after a connection that ended before that, a reply is sent again, with a mark.
"""

from __future__ import annotations

import asyncio
import random
import re
import secrets
import ssl
from collections import OrderedDict
from collections.abc import Sequence
from datetime import datetime
from operator import itemgetter
from types import TracebackType
from typing import ClassVar, Self

import structlog

from plugins.api.channel import (
    ChannelActivity,
    ChannelInbox,
    DeliveryUnknown,
    InboundMessage,
    MessageRejected,
    OutboundMessage,
    TryLater,
    Undeliverable,
)
from plugins.api.context import PluginContext
from plugins.api.hookspecs import hookimpl
from plugins.channels.irc.irc_connection import ConnectionLost, FloodLimit, Interrupted, IrcConnection, Refused
from plugins.channels.irc.irc_formatting import irc_lines
from plugins.channels.irc.irc_lines import Line, cut_line, without_codes
from plugins.channels.irc.irc_settings import IrcSettings
from plugins.support.errors import PluginError, SettingsRefused
from plugins.support.state_file import StateFile
from plugins.support.untrusted import error_text, may_pass

MOST_LINES = 4
"""Lines of one post. The server confirms the lines of a post together."""

MOST_CHARS = 4000
"""Characters of Markdown that may fit into one post; longer texts are not tried."""

FIRST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
"""Seconds before the first attempt to reconnect, and before all later ones. A connection of this length resets them."""

STABLE_SECONDS = 10.0
"""Seconds after which a connection counts as working."""

KEEP_SECONDS = 60.0
"""The shortest interval in which missing channels are joined again, and a taken nick is asked for."""

WAITING = 1000
"""Messages that wait to be stored; no more lines are read then."""

LATER_SECONDS = 2.0
"""Seconds before a message is passed on again that the gateway could not store."""

ABSENT_SECONDS = 60.0
"""Seconds before a message to somebody who is not there is tried again."""

REMEMBERED = 500
"""Messages whose senders are remembered, to address replies in channels; posts of which some lines were accepted; and chats
whose last message is remembered."""

HISTORY = 100
"""Messages that the server is asked for at once."""

REPEATED = "[possibly repeated] "
"""The mark of a post that may have been sent already."""

NICK_CHARS = 32
"""Characters of a longer nick than most servers allow."""

_TARGET = re.compile(r"[^\s,:\0][^\s,\0]*")
"""The name of one channel or person."""

_ABSENT = ("401", "406")
_BUSY = ("263", "439")
_CLOSED = ("403", "405", "437", "471", "473", "474", "475", "476", "477", "489")

log = structlog.get_logger("exuvia.channels")


class IrcChannel:
    """A connection to an IRC server."""

    name: ClassVar[str] = "irc"
    Settings: ClassVar[type[IrcSettings]] = IrcSettings
    attempts_noted: ClassVar[bool] = True

    def __init__(self, context: PluginContext) -> None:
        self._settings: IrcSettings = context.settings
        self._trust: ssl.SSLContext | None = None
        self._connection: IrcConnection | None = None
        self._inbox: ChannelInbox
        self._received: asyncio.Queue[tuple[InboundMessage, str]] = asyncio.Queue(WAITING)
        self._joined: set[str] = set()
        self._senders: OrderedDict[str, str] = OrderedDict()
        self._accepted: OrderedDict[str, int] = OrderedDict()
        self._kept_at = float("-inf")
        self._replied_at = float("-inf")
        self._count = 0
        self._problem = ""
        self._run = secrets.token_hex(6)
        self._file = StateFile(context.folder / "history.json")
        self._history: dict[str, str] = {}
        """The time of the last stored message of each chat, the latest last, for a server with a history."""
        self._batches: dict[str, list[str]] = {}

    async def __aenter__(self) -> Self:
        self._settings.check()
        if self._settings.tls:
            self._trust = await asyncio.to_thread(_trusted, self._settings.certificates)
        kept = await self._file.load()
        self._history = dict(sorted(kept.items(), key=itemgetter(1))[-REMEMBERED:])
        self._connection = await self._connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._connection is not None:
            await self._connection.close()

    async def check(self) -> str:
        """Return as whom the assistant is connected."""
        assert self._connection is not None
        host, port = self._settings.address()
        account = f", logged in as {self._settings.login()}" if "sasl" in self._connection.capabilities else ""
        return f"Connected to {host}:{port} as {self._connection.nick}{account}."

    # --- receiving ----------------------------------------------------------------------------------------------------

    async def run(self, inbox: ChannelInbox) -> None:
        """Receive messages until cancelled; reconnect whenever the connection ends."""
        self._inbox = inbox
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._store(inbox))
            tasks.create_task(self._stay_connected())

    async def _stay_connected(self) -> None:
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
        while True:
            began, problem = loop.time(), ""
            try:
                if self._connection is None:
                    self._connection = await self._connect()
                    self._report("")
                await self._read(self._connection)
            except ConnectionLost as error:
                problem = f"The connection to {self._settings.server} ended: {error}. It is made again."
            except PluginError as error:
                problem = str(error)
            self._connection = None
            self._report(problem)
            pause = FIRST_PAUSE if loop.time() - began > STABLE_SECONDS else min(2 * pause, LONGEST_PAUSE)
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))  # noqa: S311 - so that not all clients return at once

    async def _connect(self) -> IrcConnection:
        connection = await IrcConnection.open(self._settings, self._trust)
        self._joined.clear()
        self._batches.clear()
        self._kept_at = asyncio.get_running_loop().time()
        for room in self._settings.rooms:
            connection.say(f"JOIN {room}")
        if "draft/chathistory" in connection.capabilities and self._history:
            since = min(self._history.values())
            connection.say(f"CHATHISTORY TARGETS timestamp={since} timestamp=2200-01-01T00:00:00.000Z {HISTORY}")
        return connection

    async def _read(self, connection: IrcConnection) -> None:
        async for line in connection.lines():
            match line.command:
                case "PRIVMSG" if not connection.is_me(line.nick) and "!" in line.source:
                    await self._receive(connection, line)
                case "JOIN" if connection.is_me(line.nick):
                    self._enter(connection, line.parameter(0))
                case "PART" if connection.is_me(line.nick):
                    self._joined.discard(connection.folded(line.parameter(0)))
                case "KICK" if connection.is_me(line.parameter(1)):
                    self._joined.discard(connection.folded(line.parameter(0)))
                case "INVITE" if connection.folded(line.parameter(1)) in map(connection.folded, self._settings.rooms):
                    connection.say(f"JOIN {line.parameter(1)}")
                case "CHATHISTORY" if line.parameter(0) == "TARGETS" and not connection.is_channel(line.parameter(1)):
                    self._ask_history(connection, line.parameter(1))
                case "BATCH":
                    self._page(connection, line)
                case code if code in _CLOSED and connection.folded(line.parameter(1)) in self._missing(connection):
                    reason = without_codes(line.parameters[-1]).rstrip(".")
                    self._report(f"The server does not let the assistant into {line.parameter(1)}: {reason}.")
            self._keep(connection)

    def _report(self, problem: str) -> None:
        if problem != self._problem:
            self._problem = problem
            self._inbox.report(problem)

    def _missing(self, connection: IrcConnection) -> set[str]:
        """Return the channels that the assistant should be in and is not."""
        return {connection.folded(room) for room in self._settings.rooms} - self._joined

    def _keep(self, connection: IrcConnection) -> None:
        """Join missing channels again, and ask for the nick if it was taken, once a minute."""
        now = asyncio.get_running_loop().time()
        if now - self._kept_at < KEEP_SECONDS:
            return
        self._kept_at = now
        for room in self._missing(connection):
            connection.say(f"JOIN {room}")
        if not connection.is_me(self._settings.nick):
            connection.say(f"NICK {self._settings.nick}")

    def _enter(self, connection: IrcConnection, room: str) -> None:
        self._joined.add(connection.folded(room))
        if not self._missing(connection):
            self._report("")
        self._ask_history(connection, room)

    async def _receive(self, connection: IrcConnection, line: Line) -> None:
        """Pass a message on, or answer a query of the sender's client."""
        target, text = re.sub("^[~&@%+]+(?=#)", "", line.parameter(0)), line.parameter(1)
        if text.startswith("\x01"):
            query, _, rest = text.strip("\x01").partition(" ")
            if query.upper() != "ACTION":
                self._answer_query(connection, line.nick, query.upper(), rest)
                return
            text = f"* {line.nick} {rest}"
        if "bot" in line.tags or self._is_old(line):  # programs that answer each other would never end
            return
        group = connection.is_channel(target)
        text, mentioned = _addressed(without_codes(text), connection.nick) if group else (without_codes(text), True)
        self._count += 1
        message = InboundMessage(
            id=line.tags.get("msgid") or f"{self._run}.{self._count}",
            sender=self._sender(connection, line),
            name=line.nick,
            chat=connection.folded(target if group else line.nick),
            text=text,
            group=group,
            mentioned=mentioned,
            at=_seconds(line.tags.get("time", "")),
        )
        self._senders[message.id] = line.nick
        if len(self._senders) > REMEMBERED:
            self._senders.popitem(last=False)
        await self._received.put(
            (message, line.tags.get("time", "") if "draft/chathistory" in connection.capabilities else "")
        )

    def _sender(self, connection: IrcConnection, line: Line) -> str:
        """Return the sender's account or nick. With accounts, somebody without one has a name that no account can have."""
        nick = connection.folded(line.nick)
        return line.tags.get("account") or f"~{nick}" if self._settings.accounts else nick

    def _answer_query(self, connection: IrcConnection, nick: str, query: str, rest: str) -> None:
        """Answer a CTCP query, at most one every two seconds."""
        now = asyncio.get_running_loop().time()
        answers = {"VERSION": "Exuvia", "PING": rest[:100], "CLIENTINFO": "ACTION CLIENTINFO PING VERSION"}
        if query in answers and now - self._replied_at > LATER_SECONDS:
            self._replied_at = now
            connection.say(f"NOTICE {nick} :\x01{query} {answers[query]}\x01")

    async def _store(self, inbox: ChannelInbox) -> None:
        """Pass received messages to the gateway, in order."""
        while True:
            message, at = await self._received.get()
            is_noted = message.group or message.chat in self._history  # not the chats of people who are never accepted
            while True:
                try:
                    await inbox.receive(message)
                    is_noted = True
                except MessageRejected as error:
                    if error.later:
                        await asyncio.sleep(LATER_SECONDS)
                        continue
                    if error.tell and self._connection is not None:
                        for text in irc_lines(str(error))[:MOST_LINES]:
                            self._connection.say(f"NOTICE {self._senders.get(message.id, message.chat)} :{text[:300]}")
                except Exception as error:  # the server does not send it again
                    if not may_pass(error):
                        raise
                    log.warning("irc_message_waits", chat=message.chat, reason=error_text(error))
                    await asyncio.sleep(LATER_SECONDS)
                    continue
                break
            if is_noted and at > self._history.get(message.chat, ""):
                self._history.pop(message.chat, None)
                self._history[message.chat] = at
                if len(self._history) > REMEMBERED:
                    del self._history[next(iter(self._history))]
                try:
                    await self._file.save(self._history)
                except Exception as error:  # the next message tries again
                    log.warning("irc_history_not_kept", reason=error_text(error))

    # --- the server's history -----------------------------------------------------------------------------------------

    def _is_old(self, line: Line) -> bool:
        """Count a message of the history. Return True if it came before the last stored one of its chat, or before the
        assistant was ever in it."""
        if (batch := self._batches.get(line.tags.get("batch", ""))) is None:
            return False
        batch.append(line.tags.get("time", ""))
        return batch[-1] <= self._history.get(batch[0], "9")

    def _ask_history(self, connection: IrcConnection, target: str) -> None:
        """Ask for what was said in a chat since its last stored message."""
        since = self._history.get(connection.folded(target))
        if since is not None and "draft/chathistory" in connection.capabilities:
            connection.say(f"CHATHISTORY AFTER {target} timestamp={since} {HISTORY}")

    def _page(self, connection: IrcConnection, line: Line) -> None:
        """Note the beginning of a part of the history; at its end, ask for the next part if this one was full."""
        reference = line.parameter(0)
        if reference.startswith("+") and line.parameter(1) == "chathistory":
            self._batches[reference[1:]] = [connection.folded(line.parameter(2))]
        elif reference.startswith("-"):
            chat, *times = self._batches.pop(reference[1:], [""])
            if len(times) >= HISTORY:
                connection.say(f"CHATHISTORY AFTER {chat} timestamp={times[-1]} {HISTORY}")

    # --- sending ------------------------------------------------------------------------------------------------------

    def fits(self, text: str) -> bool:
        """Return True if a text has at most `MOST_LINES` lines."""
        if len(text) > MOST_CHARS:
            return False
        room = min(self._room(chat) for chat in ("n" * NICK_CHARS, *self._settings.rooms))
        return sum(1 for line in irc_lines(text) for _ in cut_line(line, room)) <= MOST_LINES

    def _room(self, chat: str) -> int:
        """Return the bytes of a line to a chat, less those of the sender's nick or a mark before it."""
        return (self._connection.room(chat) if self._connection is not None else 380) - len(REPEATED) - NICK_CHARS

    async def deliver(self, message: OutboundMessage) -> str:
        """Send a post.

        Raises:
            Undeliverable: The server refuses it for good, or its outcome is unknown and `unknown` is "drop".
            TryLater: There is no connection, the person is not there, or the server is busy.
            DeliveryUnknown: The connection ended before the server confirmed it.
        """
        if message.again and self._settings.unknown == "drop":
            raise Undeliverable("The connection ended while it was sent, and `unknown` says that it is then dropped.")
        if not _TARGET.fullmatch(message.chat):
            raise Undeliverable(f"{message.chat!r} is neither a channel nor a nick.")
        if (connection := self._connection) is None:
            raise TryLater(LATER_SECONDS, "The server is not connected.")
        done = self._accepted.get(message.id, 0)
        lines = self._lines(message)[done:]
        if message.again and lines:
            lines[0] = REPEATED + lines[0]
        try:
            return await connection.send(message.chat, lines, self._reply_tag(connection, message))
        except FloodLimit as error:
            raise TryLater(LATER_SECONDS, "The posts of other chats fill the server's flood limit.") from error
        except Refused as error:
            raise _refusal(message.chat, error, is_channel=connection.is_channel(message.chat)) from error
        except Interrupted as error:
            if error.accepted:
                self._accepted[message.id] = done + error.accepted
                if len(self._accepted) > REMEMBERED:
                    self._accepted.popitem(last=False)
            if error.sent > error.accepted:
                raise DeliveryUnknown(f"The connection ended before the server confirmed it: {error}.") from error
            raise TryLater(FIRST_PAUSE, f"The connection ended: {error}.") from error

    def _lines(self, message: OutboundMessage) -> list[str]:
        """Return the lines of a post. In a channel, the first one addresses the person who is answered."""
        room = self._room(message.chat)
        files = [
            f"[{without_codes(file.name)[:100] or 'a file'}, {len(file.content):,} bytes: no files on IRC; see the console]"
            for file in message.attachments
        ]
        lines = [piece for line in [*irc_lines(message.text), *files] for piece in cut_line(line, room)]
        nick = self._senders.get(message.reply_to, "") if message.part == 1 else ""
        return [f"{nick}: {lines[0]}", *lines[1:]] if nick and lines and len(nick) < NICK_CHARS - 1 else lines

    def _reply_tag(self, connection: IrcConnection, message: OutboundMessage) -> str:
        """Return the tag that names the message which is answered, if it has an id of the server."""
        if not message.reply_to or message.reply_to.startswith(self._run) or "message-tags" not in connection.capabilities:
            return ""
        return (
            f"+draft/reply={message.reply_to}" if re.fullmatch(r"[\x21-\x3a\x3c-\x5b\x5d-\x7e]+", message.reply_to) else ""
        )

    async def show_activity(self, activity: ChannelActivity) -> None:
        """Show that the assistant is typing, if the server passes on such notices."""
        if self._connection is not None and "message-tags" in self._connection.capabilities:
            self._connection.say(f"@+typing=active TAGMSG {activity.chat}")


def _trusted(certificates: str | None) -> ssl.SSLContext:
    """Return the system's certificates and those of a file. Raises SettingsRefused if it cannot be read."""
    trust = ssl.create_default_context()
    if certificates is not None:
        try:
            trust.load_verify_locations(certificates)
        except (OSError, ssl.SSLError) as error:
            raise SettingsRefused(f"`certificates`: {certificates} cannot be read as certificates in PEM.") from error
    return trust


def _addressed(text: str, nick: str) -> tuple[str, bool]:
    """Return a text without the assistant's nick at its beginning, and True if it mentions the assistant."""
    name = re.escape(nick)
    if found := re.match(rf"@?{name}(?:[:,]\s*|\s+|$)", text, re.IGNORECASE):
        return text[found.end() :] or text, True
    return text, re.search(rf"(?<![\w\[\]\\`^{{|}}-]){name}(?![\w\[\]\\`^{{|}}-])", text, re.IGNORECASE) is not None


def _seconds(time: str) -> float:
    """Return a time of a server in seconds since the epoch; 0 if it does not say one."""
    try:
        return datetime.fromisoformat(time).timestamp()
    except (ValueError, OverflowError):
        return 0.0


def _refusal(chat: str, error: Refused, *, is_channel: bool) -> PluginError:
    """Return what the gateway should do about a refusal of the server."""
    if error.code in _BUSY:
        return TryLater(ABSENT_SECONDS / 4, f"The server asks to wait: {error}.")
    if error.code in _ABSENT and not is_channel:
        return TryLater(ABSENT_SECONDS, f"{chat} is not there: {error}.")
    return Undeliverable(f"The server does not accept messages to {chat}: {error}.")


@hookimpl
def register_channels() -> Sequence[type[IrcChannel]]:
    """Return the channel."""
    return [IrcChannel]
