"""An IMAP client (RFC 3501): what the channel needs of the protocol, on asyncio's streams.

No library fits. `aioimaplib` is under the GPL, waits forever for a response when the connection is lost, and exceeds
Python's recursion limit when a server sends a thousand lines at once. The standard library's `imaplib` blocks a thread that
cannot be cancelled.

A connection has one user, which sends one command after the other. After an error other than `ImapError`, or a cancellation
in the middle of a command, the connection is of no use: close it, and open another one.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
import socket
import ssl
from collections.abc import Iterator
from contextlib import suppress
from itertools import pairwise
from types import TracebackType
from typing import Any, NamedTuple, Self

PATIENCE = 60.0
"""Seconds without a byte from the server after which the connection counts as lost."""

CONNECT_SECONDS = 20.0
"""Maximum seconds for a connection and its TLS handshake."""

LINE_BYTES = 1024 * 1024
"""Maximum bytes of a line."""

LITERAL_BYTES = 128 * 1024 * 1024
"""Maximum bytes of the literals of one response."""

KEEPALIVE = (("TCP_KEEPIDLE", 120), ("TCP_KEEPINTVL", 30), ("TCP_KEEPCNT", 4))
"""How the kernel finds out that the other side is gone: probes after two minutes of silence, which wake no process."""

_LITERAL = re.compile(rb"~?\{(\d{1,10})\+?\}\Z")
_TOKEN = re.compile(rb'[ \t]*(?:(?P<open>\()|(?P<close>\))|"(?P<quoted>(?:[^"\\]|\\.)*)"|(?P<atom>[^\s()"]+))')
_CODE = re.compile(rb"\[([A-Za-z0-9-]{1,64})(?: ([^\[\]]*))?\]")

_REFUSED_LOGIN = ("", "AUTHENTICATIONFAILED", "AUTHORIZATIONFAILED", "EXPIRED", "PRIVACYREQUIRED", "CONTACTADMIN")
"""Response codes of a refused login that another attempt does not change."""


class ImapError(Exception):
    """The server refused a command. The message is the server's."""

    def __init__(self, text: str, code: str = "") -> None:
        super().__init__(text)
        self.code = code


class ImapLoginRefused(ImapError):
    """The server refused the user name or the password."""


class Folder(NamedTuple):
    """The state of a folder when it was opened."""

    validity: int
    next_uid: int
    messages: int


class Fetched(NamedTuple):
    """A message: its size in bytes on the server, and the section of it that was asked for."""

    uid: int
    size: int
    content: bytes


class _Response(NamedTuple):
    """A response: its tag (`*`, `+` or our own), its first word, and all of it as lines and literals in turn."""

    tag: bytes
    pieces: list[bytes]

    @property
    def text(self) -> bytes:
        return self.pieces[0].partition(b" ")[2]


class ImapConnection:
    """A connection to a server, logged in or not.

    Attributes:
        capabilities: What the server announced, in upper case.
        news: The server has announced messages since the last `search`.
    """

    def __init__(self, host: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._host = host
        self._reader = reader
        self._writer = writer
        self._plain: asyncio.StreamWriter | None = None  # a writer closes its transport when it is collected
        self._tags = 0
        self.capabilities: frozenset[str] = frozenset()
        self.news = False

    @classmethod
    async def open(cls, host: str, port: int, *, security: str, context: ssl.SSLContext) -> Self:
        """Connect, and read the greeting.

        Args:
            host: The host; its certificate is verified.
            port: The port.
            security: "tls", "starttls", or "none".
            context: The context for TLS.

        Raises:
            OSError: The connection failed. This includes `ssl.SSLError` and `TimeoutError`.
            ImapError: The server refused the connection, or offers no STARTTLS.
        """
        async with asyncio.timeout(CONNECT_SECONDS):
            tls = context if security == "tls" else None
            reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=LINE_BYTES)
        connection = cls(host, reader, writer)
        try:
            _keep_alive(writer.get_extra_info("socket"))
            greeting = await connection._read()
            if not greeting.text.upper().startswith((b"OK", b"PREAUTH")):
                raise ImapError(_readable(greeting.text))
            if security == "starttls":
                await connection._start_tls(context)
            await connection._ask_capabilities()
        except BaseException:
            connection.close()
            raise
        return connection

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if kind is None:
                with suppress(OSError, ImapError):
                    async with asyncio.timeout(1.0):
                        await self._command(b"LOGOUT")
        finally:
            self.close()

    def close(self) -> None:
        """Drop the connection. It may be closed already."""
        self._writer.transport.abort()
        if self._plain is not None:
            self._plain.transport.abort()

    async def _start_tls(self, context: ssl.SSLContext) -> None:
        """Encrypt the connection. What the server, or somebody in between, sent before in plain text is dropped."""
        try:
            await self._command(b"STARTTLS")
        except ImapError as error:
            raise ImapError(f"It offers no STARTTLS: {error}") from error
        loop, self._plain = asyncio.get_running_loop(), self._writer
        reader = asyncio.StreamReader(limit=LINE_BYTES)
        protocol = asyncio.StreamReaderProtocol(reader)
        async with asyncio.timeout(CONNECT_SECONDS):
            transport = await loop.start_tls(self._writer.transport, protocol, context, server_hostname=self._host)
        assert transport is not None
        protocol.connection_made(transport)
        self._reader, self._writer = reader, asyncio.StreamWriter(transport, protocol, reader, loop)

    # --- login --------------------------------------------------------------------------------------------------------

    async def login(self, user: str, password: str) -> None:
        """Log in with a password. Raises ImapLoginRefused if it is wrong."""
        try:
            if "AUTH=PLAIN" in self.capabilities:
                await self._authenticate(b"PLAIN", f"\0{user}\0{password}".encode())
            else:
                await self._command(b"LOGIN", _string(user), _string(password))
        except ImapError as error:
            raise _refused_login(error) from error
        await self._ask_capabilities()

    async def login_xoauth2(self, user: str, token: str) -> None:
        """Log in with an access token of OAuth 2. Raises ImapLoginRefused if it is invalid."""
        try:
            await self._authenticate(b"XOAUTH2", f"user={user}\1auth=Bearer {token}\1\1".encode())
        except ImapError as error:
            raise _refused_login(error) from error
        await self._ask_capabilities()

    async def _authenticate(self, mechanism: bytes, response: bytes) -> None:
        encoded = base64.b64encode(response)
        if "SASL-IR" in self.capabilities:
            await self._command(b"AUTHENTICATE", mechanism, encoded)
        else:
            await self._command(b"AUTHENTICATE", mechanism, answer=encoded)

    async def _ask_capabilities(self) -> None:
        for each in await self._command(b"CAPABILITY"):
            word, _, rest = each.text.partition(b" ")
            if word.upper() == b"CAPABILITY":
                self.capabilities = frozenset(rest.decode("ascii", "replace").upper().split())

    # --- folders ------------------------------------------------------------------------------------------------------

    async def select(self, folder: str, *, read_only: bool = False) -> Folder:
        """Open a folder. Raises ImapError if there is none of this name."""
        codes: dict[str, int] = {}
        messages = 0
        for each in await self._command(b"EXAMINE" if read_only else b"SELECT", _mailbox(folder)):
            if (code := _CODE.search(each.text)) and (number := code[2] or b"").isdigit():
                codes[code[1].decode("ascii").upper()] = int(number)
            elif each.text.upper().endswith(b" EXISTS"):
                messages = int(each.text.split()[0])
        if "UIDVALIDITY" not in codes:
            raise ImapError(f"The folder {folder!r} has no UIDVALIDITY.")
        return Folder(codes["UIDVALIDITY"], codes.get("UIDNEXT", 0), messages)

    async def search(self, *criteria: str) -> list[int]:
        """Return the UIDs of the messages of the open folder that meet all criteria, in ascending order.

        Args:
            criteria: Keywords of the command `SEARCH`, or strings in quotation marks.
        """
        self.news = False
        found: set[int] = set()
        for each in await self._command(b"UID SEARCH", *(item.encode("ascii") for item in criteria)):
            word, _, rest = each.text.partition(b" ")
            if word.upper() == b"SEARCH":
                found.update(int(number) for number in rest.split() if number.isdigit())
        return sorted(found)

    async def fetch(self, uid: int, section: str = "") -> Fetched | None:
        """Return a message without marking it as read; None if it is gone.

        Args:
            uid: Its UID.
            section: The part to fetch, such as "HEADER"; "" for all of it.
        """
        found = None
        for each in await self._command(b"UID FETCH %d (UID RFC822.SIZE BODY.PEEK[%s])" % (uid, section.encode("ascii"))):
            values = _fetched_values(each)
            content = values.get(b"BODY[%s]" % section.encode("ascii"))
            if values.get(b"UID") == b"%d" % uid and isinstance(content, bytes):
                found = Fetched(uid, _number(values.get(b"RFC822.SIZE")), content)
        return found

    async def mark_seen(self, uid: int) -> None:
        """Mark a message as read."""
        await self._command(b"UID STORE %d +FLAGS.SILENT (\\Seen)" % uid)

    async def append(self, folder: str, content: bytes) -> None:
        """Add a message to a folder, marked as read."""
        await self._command(b"APPEND", _mailbox(folder), b"(\\Seen)", _Literal(content))

    async def sent_folder(self) -> str:
        """Return the folder that the server declares to be the one of sent messages, or one with a usual name, or ""."""
        special = "SPECIAL-USE" in self.capabilities
        names: list[tuple[set[bytes], str]] = []
        for each in await self._command(b'LIST (SPECIAL-USE) "" "*"' if special else b'LIST "" "*"'):
            names += _listed(each)
        if special and not any(b"\\SENT" in flags for flags, _ in names):
            names = [name for each in await self._command(b'LIST "" "*"') for name in _listed(each)]
        for flags, name in names:
            if b"\\SENT" in flags:
                return name
        usual = ("sent", "sent items", "sent messages", "sent mail")
        return next((name for _, name in names if re.split(r"[./]", name.lower())[-1] in usual), "")

    # --- news ---------------------------------------------------------------------------------------------------------

    async def noop(self) -> None:
        """Ask the server for news, which sets `news`."""
        await self._command(b"NOOP")

    async def idle(self, seconds: float) -> None:
        """Wait until the server announces messages, or so many seconds have passed. Needs the capability IDLE."""
        if self.news:
            return
        tag = self._next_tag()
        await self._send(tag + b" IDLE\r\n")
        until = asyncio.get_running_loop().time() + seconds
        idling = False
        while not (idling and self.news):
            left = until - asyncio.get_running_loop().time() if idling else PATIENCE
            try:
                response = await self._read(max(left, 0.0))
            except TimeoutError:
                if not idling:
                    raise
                break
            if response.tag == tag:
                _check(response)
                raise ImapError("The server ended IDLE.")
            idling = idling or response.tag == b"+"
        await self._send(b"DONE\r\n")
        await self._finish(tag)

    # --- the wire -----------------------------------------------------------------------------------------------------

    async def _command(self, *parts: bytes | _Literal, answer: bytes | None = None) -> list[_Response]:
        """Send a command and return its untagged responses.

        Args:
            parts: The words of the command.
            answer: What to send when the server asks to continue, and nothing else is left to send.

        Raises:
            ImapError: The server refused it.
            OSError: The connection is lost, or the server does not respond.
        """
        tag = self._next_tag()
        found: list[_Response] = []
        pending = tag
        for part in parts:
            if not isinstance(part, _Literal):
                pending += b" " + part
                continue
            await self._send(pending + b" {%d}\r\n" % len(part.content))
            if (refused := await self._until_continued(tag, found)) is not None:
                _check(refused)
                raise ImapError("The server ended the command early.")
            await self._send(part.content)
            pending = b""
        await self._send(pending + b"\r\n")
        return found + await self._finish(tag, answer)

    async def _until_continued(self, tag: bytes, found: list[_Response]) -> _Response | None:
        while (response := await self._read()).tag != b"+":
            if response.tag == tag:
                return response
            found.append(response)
        return None

    async def _finish(self, tag: bytes, answer: bytes | None = None) -> list[_Response]:
        found = []
        while (response := await self._read()).tag != tag:
            if response.tag == b"+":  # a second challenge, as XOAUTH2 has for errors, is answered with an empty line
                await self._send((answer or b"") + b"\r\n")
                answer = None
            else:
                found.append(response)
        _check(response)
        return found

    def _next_tag(self) -> bytes:
        self._tags += 1
        return b"x%d" % self._tags

    async def _send(self, data: bytes) -> None:
        self._writer.write(data)
        async with asyncio.timeout(PATIENCE):
            await self._writer.drain()

    async def _read(self, seconds: float = PATIENCE) -> _Response:
        """Read a response. Only the wait for its first line is limited to `seconds`; cancelled there, nothing is lost."""
        pieces = [await self._line(seconds)]
        left = LITERAL_BYTES
        while literal := _LITERAL.search(pieces[-1]):
            size = int(literal[1])
            if (left := left - size) < 0:
                raise ConnectionError(f"The server sent a response of more than {LITERAL_BYTES // 1024 // 1024} MiB.")
            pieces[-1] = pieces[-1][: literal.start()]
            pieces.append(await self._bytes(size))
            pieces.append(await self._line(PATIENCE))
        tag, _, first = pieces[0].partition(b" ")
        if tag == b"*":
            if first.upper().endswith(b" EXISTS"):
                self.news = True
            elif first[:4].upper() == b"BYE ":
                raise ConnectionError(f"The server closed the connection: {_readable(first[4:])}")
        return _Response(tag, pieces)

    async def _line(self, seconds: float) -> bytes:
        async with asyncio.timeout(seconds):
            try:
                line = await self._reader.readuntil(b"\n")
            except asyncio.IncompleteReadError as error:
                raise ConnectionError("The server closed the connection.") from error
            except asyncio.LimitOverrunError as error:
                raise ConnectionError(f"The server sent a line of more than {LINE_BYTES} bytes.") from error
        return line.rstrip(b"\r\n")

    async def _bytes(self, size: int) -> bytes:
        content = bytearray()
        while len(content) < size:
            async with asyncio.timeout(PATIENCE):
                piece = await self._reader.read(min(size - len(content), 256 * 1024))
            if not piece:
                raise ConnectionError("The server closed the connection.")
            content += piece
        return bytes(content)


class _Literal(NamedTuple):
    """A part of a command that is sent as it is, after its length."""

    content: bytes


def _check(response: _Response) -> None:
    """Raise ImapError unless a tagged response says that its command succeeded."""
    word, _, rest = response.text.partition(b" ")
    if word.upper() != b"OK":
        code = _CODE.match(rest)
        raise ImapError(_readable(rest), code[1].decode("ascii").upper() if code else "")


def _refused_login(error: ImapError) -> ImapError:
    return ImapLoginRefused(str(error), error.code) if error.code in _REFUSED_LOGIN else error


def _readable(text: bytes) -> str:
    """Return a server's text as a short line."""
    shown = "".join(mark if mark.isprintable() else " " for mark in text.decode("utf-8", "replace"))
    return " ".join(shown.split())[:300]


def _string(text: str) -> bytes | _Literal:
    """Return a string as an argument of a command."""
    encoded = text.encode("utf-8", "replace")
    if encoded.isascii() and not re.search(rb"[\x00-\x1f\x7f]", encoded):
        return b'"' + re.sub(rb'(["\\])', rb"\\\1", encoded) + b'"'
    return _Literal(encoded)


def _mailbox(name: str) -> bytes:
    """Return the name of a folder in the modified UTF-7 of IMAP, in quotation marks."""

    def shifted(found: re.Match[str]) -> str:
        encoded = base64.b64encode(found[0].encode("utf-16-be", "surrogatepass")).decode("ascii")
        return "&" + encoded.rstrip("=").replace("/", ",") + "-"

    text = re.sub(r"[^\x20-\x7e]+", shifted, name.replace("&", "&-"))
    return b'"' + re.sub(r'(["\\])', r"\\\1", text).encode("ascii") + b'"'


def _folder_name(encoded: bytes) -> str:
    """Return the name of a folder that the server sent."""

    def unshifted(found: re.Match[str]) -> str:
        if not found[1]:
            return "&"
        padded = found[1].replace(",", "/") + "=" * (-len(found[1]) % 4)
        try:
            return base64.b64decode(padded).decode("utf-16-be", "replace")
        except binascii.Error:
            return found[0]

    return re.sub(r"&([A-Za-z0-9+,]*)-", unshifted, encoded.decode("utf-8", "replace"))


def _listed(response: _Response) -> Iterator[tuple[set[bytes], str]]:
    """Yield the flags and the name of a response to LIST."""
    word, _, _ = response.text.partition(b" ")
    values = _values(response)
    if word.upper() == b"LIST" and len(values) >= 4 and isinstance(values[1], list) and isinstance(values[3], bytes):
        yield {flag.upper() for flag in values[1] if isinstance(flag, bytes)}, _folder_name(values[3])


def _fetched_values(response: _Response) -> dict[bytes, Any]:
    """Return the data items of a response to FETCH; empty for another response."""
    values = _values(response)
    if len(values) < 3 or values[1] not in (b"FETCH", b"Fetch", b"fetch") or not isinstance(values[2], list):
        return {}
    items = values[2]
    return {key.upper(): value for key, value in list(pairwise(items))[::2] if isinstance(key, bytes)}


def _values(response: _Response) -> list[Any]:
    """Return the words of an untagged response: bytes, and lists for what stands in parentheses."""
    top: list[Any] = []
    stack = [top]
    lines = [response.text, *response.pieces[1:]]
    for number, piece in enumerate(lines):
        if number % 2:  # a literal
            stack[-1].append(piece)
            continue
        position = 0
        while found := _TOKEN.match(piece, position):
            position = found.end()
            if found["open"]:
                inner: list[Any] = []
                stack[-1].append(inner)
                stack.append(inner)
            elif found["close"]:
                if len(stack) > 1:
                    stack.pop()
            elif found["quoted"] is not None:
                stack[-1].append(re.sub(rb"\\(.)", rb"\1", found["quoted"]))
            else:
                stack[-1].append(None if found["atom"].upper() == b"NIL" else found["atom"])
    return top


def _number(value: Any) -> int:
    return int(value) if isinstance(value, bytes) and value.isdigit() else 0


def _keep_alive(connected: socket.socket) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in KEEPALIVE:
        if (option := getattr(socket, name, None)) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)


def quoted(text: str) -> str:
    """Return an ASCII text in quotation marks, for `ImapConnection.search`."""
    return '"' + re.sub(r'(["\\])', r"\\\1", re.sub(r"[^\x20-\x7e]", "", text)) + '"'
