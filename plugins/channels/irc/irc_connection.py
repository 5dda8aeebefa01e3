"""A registered connection to an IRC server: capabilities, login, nick, flood limit, and whether lines were accepted.

IRC has no acknowledgement for a message. Where the server labels its responses, each line has a label that it answers;
elsewhere a PING is sent behind the lines, and its PONG says that the server has processed them. Errors for a target that
arrive before are its refusal.
"""

from __future__ import annotations

import asyncio
import base64
import ssl
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from itertools import count

import msgspec

from plugins.channels.irc.irc_lines import LINE_BYTES, Line, folded, parse_line, without_codes
from plugins.channels.irc.irc_settings import IrcSettings
from plugins.support.errors import PluginError, SettingsRefused, Unreachable

CONNECT_SECONDS = 30.0
"""Seconds for the connection, and again for the registration."""

SILENCE_SECONDS = 90.0
"""Seconds without a line from the server after which it is sent a PING."""

LAG_SECONDS = 25.0
"""Seconds without a response after which a connection is closed."""

TURN_SECONDS = 15.0
"""Seconds that lines wait for those to other targets."""

BURST_LINES = 5
"""Lines that may be sent without a pause."""

READ_BYTES = 64 * 1024
"""Bytes of the longest line that is read."""

CAPABILITIES = frozenset(
    {
        "account-tag", "batch", "chghost", "draft/chathistory", "echo-message", "labeled-response", "message-tags", "sasl",
        "server-time",
    }
)  # fmt: skip

LOGIN_CHUNK = 400
"""Characters of a part of the login."""

_NICK_TAKEN = ("433", "436", "437")
_LOGIN_REFUSED = ("902", "904", "905", "906", "908")
_BANNED = ("464", "465", "466")


_UNNAMED = ("412", "417", "486")
"""Errors of messages that do not name the target: no text, too long a line, and a person whom only accounts may write to."""


class ConnectionLost(PluginError):
    """The connection ended; the message says why, as the beginning of a sentence."""


class Refused(PluginError):
    """The server refused a line. `code` is the numeric of its error."""

    def __init__(self, code: str, sentence: str) -> None:
        super().__init__(sentence)
        self.code = code


class FloodLimit(PluginError):
    """Lines to other targets are being sent, as fast as the flood limit allows."""


class Interrupted(PluginError):
    """The connection ended while lines were sent: `sent` were written, and `accepted` of these certainly accepted."""

    def __init__(self, sentence: str, *, sent: int, accepted: int) -> None:
        super().__init__(sentence)
        self.sent = sent
        self.accepted = accepted


class _Attempt(msgspec.Struct, kw_only=True):
    """Lines that were sent to a target. `waiting` holds the labels or PING tokens without a response."""

    target: str
    done: asyncio.Future[None]
    waiting: set[str]
    accepted: int = 0
    receipt: str = ""
    refused: Refused | None = None


class IrcConnection:
    """A connection. `open` returns a registered one.

    Attributes:
        nick: The assistant's nick on this connection.
        capabilities: The negotiated capabilities.
        supported: What the server announced about itself (ISUPPORT).
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, settings: IrcSettings) -> None:
        self.nick = settings.nick
        self.capabilities: frozenset[str] = frozenset()
        self.supported: dict[str, str] = {}
        self._reader = reader
        self._writer = writer
        self._settings = settings
        self._host = ""
        self._offered: dict[str, str] = {}
        self._attempt: _Attempt | None = None
        self._sending = asyncio.Lock()
        self._tokens = count(1)
        self._free_at = 0.0
        self._lost = ""

    @classmethod
    async def open(cls, settings: IrcSettings, trust: ssl.SSLContext | None) -> IrcConnection:
        """Connect and register.

        Raises:
            SettingsRefused: The server refuses the login or the nick.
            Unreachable: The server cannot be reached, or does not let anybody in.
        """
        host, port = settings.address()
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                reader, writer = await asyncio.open_connection(
                    host, port, ssl=trust, server_hostname=host if trust else None, limit=READ_BYTES
                )
        except TimeoutError as error:
            raise Unreachable(f"{host}:{port} did not answer within {CONNECT_SECONDS:.0f} seconds.") from error
        except ssl.SSLCertVerificationError as error:
            raise Unreachable(f"The certificate of {host} is not valid: {error.verify_message}.") from error
        except (ssl.SSLError, ConnectionResetError, ConnectionAbortedError) as error:
            raise Unreachable(f"{host}:{port} does not speak TLS; `tls = false` is for such a server.") from error
        except OSError as error:
            raise Unreachable(f"{host}:{port} cannot be reached: {error.strerror or error}.") from error
        connection = cls(reader, writer, settings)
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                await connection._register()
        except TimeoutError as error:
            connection.abort()
            raise Unreachable(f"{host} did not complete the registration within {CONNECT_SECONDS:.0f} seconds.") from error
        except BaseException as error:
            connection.abort()
            if isinstance(error, ConnectionLost):
                raise Unreachable(f"{host} ended the registration: {error}.") from error
            raise
        return connection

    # --- registration -------------------------------------------------------------------------------------------------

    async def _register(self) -> None:
        settings = self._settings
        self._write("CAP LS 302")
        if settings.server_password:
            self._write(f"PASS :{settings.server_password.reveal()}")
        self._write(f"NICK {settings.nick}")
        self._write(f"USER {settings.nick} 0 * :Exuvia")
        welcomed = False
        while True:
            line = await self._next()
            match line.command:
                case "376" | "422" if welcomed:  # the end of the message of the day
                    break
                case "001":
                    welcomed, self.nick = True, line.parameter(0)
                case "CAP":
                    self._negotiate(line)
                case "AUTHENTICATE":
                    self._log_in()
                case "903":
                    self._write("CAP END")
                case code if code in _NICK_TAKEN and not welcomed:
                    self.nick += "_"
                    self._write(f"NICK {self.nick}")
                case _ if not welcomed:
                    self._check_refusal(line)
        if not self._host:
            self._write(f"USERHOST {self.nick}")
        if bot := self.supported.get("BOT"):
            self._write(f"MODE {self.nick} +{bot}")

    def _check_refusal(self, line: Line) -> None:
        """Raise SettingsRefused if the server refuses the login or the nick, or lets nobody in."""
        if line.command == "432":
            raise SettingsRefused(f"The server does not allow the nick {self.nick!r}; change `nick`.")
        if line.command in _LOGIN_REFUSED:
            name = self._settings.login()
            raise SettingsRefused(f"The server refuses the login of {name!r}: {_said(line)}. Check `user` and `password`.")
        if line.command in _BANNED:
            raise SettingsRefused(f"The server does not let the assistant in: {_said(line)}. Check `server_password`.")

    def _negotiate(self, line: Line) -> None:
        match line.parameter(1).upper():
            case "LS":
                self._offered |= dict(each.partition("=")[::2] for each in line.parameters[-1].split())
                if line.parameter(2) == "*" and len(line.parameters) > 3:  # more lines follow
                    return
                wanted = CAPABILITIES & set(self._offered) - (set() if self._settings.password else {"sasl"})
                self._check_offer()
                self._write(f"CAP REQ :{' '.join(sorted(wanted))}" if wanted else "CAP END")
            case "ACK":
                self.capabilities |= {each.removeprefix("-") for each in line.parameters[-1].split()}
                self._write("AUTHENTICATE PLAIN" if "sasl" in self.capabilities else "CAP END")
            case "NAK":
                self._write("CAP END")

    def _check_offer(self) -> None:
        if self._settings.password:
            if "sasl" not in self._offered:
                raise SettingsRefused("The server offers no login by SASL; remove `password`, or use `server_password`.")
            if (methods := self._offered["sasl"]) and "PLAIN" not in methods.upper().split(","):
                raise SettingsRefused(f"The server offers no login by SASL PLAIN, only {methods[:100]}.")
        if self._settings.accounts and "account-tag" not in self._offered:
            raise SettingsRefused("The server does not tell accounts (account-tag); `accounts = true` cannot be used here.")

    def _log_in(self) -> None:
        assert self._settings.password is not None
        user = self._settings.login()
        secret = base64.b64encode(f"{user}\0{user}\0{self._settings.password.reveal()}".encode()).decode()
        for start in range(0, len(secret), LOGIN_CHUNK):
            self._write(f"AUTHENTICATE {secret[start : start + LOGIN_CHUNK]}")
        if len(secret) % LOGIN_CHUNK == 0:
            self._write("AUTHENTICATE +")

    # --- reading ------------------------------------------------------------------------------------------------------

    async def lines(self) -> AsyncIterator[Line]:
        """Yield the server's lines. Responses to what `send` sent are handled here.

        Raises:
            ConnectionLost: The connection ended, or the server does not respond.
        """
        try:
            while True:
                line = await self._next()
                self._follow(line)
                yield line
        except ConnectionLost as error:
            self._lost = str(error)
            self.abort()
            raise
        finally:
            self._lost = self._lost or "it was closed"
            if self._attempt is not None and not self._attempt.done.done():
                self._attempt.done.set_exception(ConnectionLost(self._lost))

    async def _next(self) -> Line:
        """Return the next line; answer a PING, and keep what concerns this connection."""
        while True:
            if (line := parse_line(await self._read())) is None:
                continue
            match line.command:
                case "PING":
                    self._write(f"PONG :{line.parameters[-1] if line.parameters else ''}")
                    continue
                case "ERROR":
                    raise ConnectionLost(f"the server closed it ({_said(line)})")
                case "005":
                    self.supported |= dict(each.partition("=")[::2] for each in line.parameters[1:-1])
                case "NICK" if self.is_me(line.nick):
                    self.nick = line.parameter(0)
                case "JOIN" if self.is_me(line.nick):
                    self._host = line.source.partition("!")[2]
                case "302":
                    self._host = line.parameters[-1].partition("=")[2].lstrip("+-").strip() or self._host
                case "396":
                    user, _, host = line.parameter(1).rpartition("@")
                    self._host = f"{user or self._host.partition('@')[0]}@{host}"
                case "CHGHOST" if self.is_me(line.nick):
                    self._host = f"{line.parameter(0)}@{line.parameter(1)}"
            return line

    async def _read(self) -> bytes:
        for seconds in (SILENCE_SECONDS, LAG_SECONDS):
            try:
                async with asyncio.timeout(seconds):
                    raw = await self._reader.readline()
            except TimeoutError:
                self._write("PING :alive")
                continue
            except (OSError, ValueError) as error:  # ValueError: a line of more than READ_BYTES
                raise ConnectionLost(f"it broke ({error})") from error
            if not raw.endswith(b"\n"):
                raise ConnectionLost("the server closed it")
            return raw
        raise ConnectionLost(f"the server did not respond for {LAG_SECONDS:.0f} seconds")

    def is_me(self, nick: str) -> bool:
        """Return True for the assistant's own nick."""
        return self.folded(nick) == self.folded(self.nick)

    def folded(self, name: str) -> str:
        """Return a nick or channel in the form in which this server compares it."""
        return folded(name, self.supported.get("CASEMAPPING", "rfc1459"))

    def is_channel(self, target: str) -> bool:
        """Return True for the name of a channel, False for a nick."""
        return target[:1] in (self.supported.get("CHANTYPES") or "#&")

    # --- writing ------------------------------------------------------------------------------------------------------

    def room(self, target: str) -> int:
        """Return the bytes of text that fit into a line to a target: others receive it with the assistant's full name."""
        host = len((self._host or "~" + "u" * 10 + "@" + "h" * 63).encode())
        announced = self.supported.get("LINELEN", "")
        most = int(announced) if announced.isdecimal() and LINE_BYTES <= int(announced) <= READ_BYTES else LINE_BYTES
        return most - len(f":{self.nick}! PRIVMSG {target} :\r\n".encode()) - host

    def say(self, line: str) -> None:
        """Send a line that needs no response, at once."""
        self._write(line)

    async def send(self, target: str, texts: Sequence[str], tags: str = "") -> str:
        """Send texts as messages to a target, in order, and wait until the server has accepted them.

        Args:
            target: A channel or nick.
            texts: At most `room(target)` bytes each.
            tags: Client tags for each line, such as `+draft/reply=X`; "" for none.

        Returns:
            The server's id of the last message, or "".

        Raises:
            FloodLimit: Too much is being sent to others.
            Refused: The server refused a line.
            Interrupted: The connection ended; it says how many lines were accepted.
        """
        try:
            async with asyncio.timeout(TURN_SECONDS):
                await self._sending.acquire()
        except TimeoutError as error:
            raise FloodLimit("Other posts are being sent.") from error
        try:
            return await self._send(target, texts, tags)
        finally:
            self._attempt = None
            self._sending.release()

    async def _send(self, target: str, texts: Sequence[str], tags: str) -> str:
        if self._lost:
            raise Interrupted(self._lost, sent=0, accepted=0)
        tokens = [f"sent-{next(self._tokens)}" for _ in (texts if self._labels else [""])]
        done = asyncio.get_running_loop().create_future()
        self._attempt = attempt = _Attempt(target=self.folded(target), done=done, waiting=set(tokens))
        sent = 0
        try:
            for sent, text in enumerate(texts, 1):
                await self._pause()
                if done.done():
                    break
                named = ";".join([*([f"label={tokens[sent - 1]}"] if self._labels else []), *([tags] if tags else [])])
                self._write(f"{f'@{named} ' if named else ''}PRIVMSG {target} :{text}")
            if not self._labels:
                self._write(f"PING :{tokens[0]}")
            async with asyncio.timeout(LAG_SECONDS):
                await done
        except ConnectionLost as error:
            raise Interrupted(str(error), sent=sent, accepted=attempt.accepted) from error
        except TimeoutError as error:
            self.abort()
            raise Interrupted("the server did not respond", sent=sent, accepted=attempt.accepted) from error
        if attempt.refused is not None:
            raise attempt.refused
        return attempt.receipt

    @property
    def _labels(self) -> bool:
        return {"labeled-response", "batch"} <= self.capabilities

    async def _pause(self) -> None:
        """Wait until a line may be sent: BURST_LINES at once, then one every `flood_seconds`."""
        now, each = asyncio.get_running_loop().time(), self._settings.flood_seconds
        self._free_at = max(self._free_at, now - BURST_LINES * each) + each
        if self._free_at > now:
            await asyncio.sleep(self._free_at - now)

    def _follow(self, line: Line) -> None:
        """Note what a line says about the lines that are being sent."""
        attempt = self._attempt
        if attempt is None or attempt.done.done():
            return
        token = line.tags.get("label", "") if self._labels else line.parameters[-1] if line.command == "PONG" else ""
        answered = token in attempt.waiting
        attempt.waiting.discard(token)
        echo = line.command == "PRIVMSG" and self.is_me(line.nick) and self.folded(line.parameter(0)) == attempt.target
        if echo:
            attempt.receipt = line.tags.get("msgid", "")
        concerns = line.command in _UNNAMED or self.folded(line.parameter(1)) == attempt.target
        if _is_error(line) and (answered if self._labels else concerns):
            attempt.refused = Refused(line.command, _said(line))
        else:
            attempt.accepted += answered if self._labels else echo
        if answered and not (attempt.waiting and attempt.refused is None):
            attempt.done.set_result(None)

    def _write(self, line: str) -> None:
        """Send a line. A line break would begin another command: it is never sent."""
        if not self._writer.is_closing():
            self._writer.write(line.translate({0: None, 10: " ", 13: " "}).encode("utf-8", "replace") + b"\r\n")

    def abort(self) -> None:
        """Close the connection at once."""
        self._writer.transport.abort()

    async def close(self) -> None:
        """Leave the server and close the connection."""
        self._write("QUIT :The gateway stops.")
        self._writer.close()
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(1.0):
                await self._writer.wait_closed()


def _is_error(line: Line) -> bool:
    """Return True for the numeric of an error."""
    return (len(line.command) == 3 and line.command[0] in "45") or line.command in ("263", "FAIL")


def _said(line: Line) -> str:
    """Return what the server says in a line, at the end of it."""
    return without_codes(line.parameters[-1] if line.parameters else line.command)[:200].rstrip(". ")
