"""Connections to a gateway: one websocket, uploads and downloads of files, and their errors.

GatewayError
└── ClientError
    ├── NotConnected           no gateway responded in time
    ├── ConnectionRefused      a gateway refused this client: its host name or protocol version
    │   └── TokenRefused       the token is invalid
    ├── MessageRefused         one message was rejected; the connection continues (in `client`)
    ├── UploadRefused          a file could not be uploaded
    └── DownloadFailed         a file could not be downloaded
"""

from __future__ import annotations

import asyncio
import contextlib
import mimetypes
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Self
from urllib.parse import urlsplit

import aiohttp
import msgspec
from yarl import URL

from gateway.protocol.client_frames import GatewayFrame, Welcome, read_frame
from gateway.protocol.frames import PROTOCOL
from gateway.support.errors import GatewayError

ANSWER_SECONDS = 10.0
"""Seconds within which a connection must be opened and greeted."""

IDLE_SECONDS = 60.0
"""Seconds without progress after which an upload fails."""

LARGEST_FRAME = 64 * 1024 * 1024
"""Bytes of the largest frame that is read, far beyond the protocol's largest."""

DOWNLOAD_PIECE = 64 * 1024

UNAUTHORIZED = 4401
"""The close code for an invalid token."""


class ClientError(GatewayError):
    """A failure of the client; `str(error)` is one sentence."""


class NotConnected(ClientError):
    """No gateway could be reached."""


class ConnectionRefused(ClientError):
    """The gateway refused this client; trying again does not help."""


class TokenRefused(ConnectionRefused):
    """The token is invalid, or no longer valid."""


def websocket_url(address: str) -> str:
    """Return the websocket's URL for `host:port` or any URL of the gateway; raise ConnectionRefused if it is invalid."""
    address = address if "://" in address else f"ws://{address}"
    try:
        parts = urlsplit(address)
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        parts, port = urlsplit(""), ""
    scheme = {"ws": "ws", "http": "ws", "wss": "wss", "https": "wss"}.get(parts.scheme)
    if scheme is None or not parts.hostname:
        raise ConnectionRefused(f"{address!r} is not the address of a gateway, such as ws://127.0.0.1:7117/ws.")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    path = parts.path if parts.path not in ("", "/") else "/ws"
    return f"{scheme}://{host}{port}{path}"


class Connection:
    """A websocket on which the gateway has sent `welcome`. Outgoing frames are queued."""

    def __init__(self, socket: aiohttp.ClientWebSocketResponse, welcome: Welcome) -> None:
        self.welcome = welcome
        self._socket = socket
        self._frames: asyncio.Queue[bytes] = asyncio.Queue()
        self._writer = asyncio.create_task(self._write())

    @classmethod
    async def open(cls, http: aiohttp.ClientSession, url: str, token: str, name: str) -> Self:
        """Connect and greet as the client `name`; raise NotConnected or ConnectionRefused on failure."""
        try:
            async with asyncio.timeout(ANSWER_SECONDS):
                socket = await http.ws_connect(url, max_msg_size=LARGEST_FRAME, heartbeat=20)
                try:
                    return cls(socket, await _greet(socket, token, name))
                except BaseException:
                    await socket.close()
                    raise
        except aiohttp.WSServerHandshakeError as error:
            raise _handshake_error(url, error.status) from error
        except (aiohttp.ClientError, OSError) as error:
            raise NotConnected(f"No gateway answers at {url}; `exuvia run` starts one.") from error

    def send(self, kind: str, **fields: Any) -> None:
        """Queue a frame; fields that are None are left out."""
        given = {name: value for name, value in fields.items() if value is not None}
        self._frames.put_nowait(msgspec.json.encode({"type": kind, **given}))

    async def listen(self) -> AsyncIterator[GatewayFrame]:
        """Yield the gateway's frames until the connection ends; raise TokenRefused if the token was the reason."""
        async for message in self._socket:
            if message.type is aiohttp.WSMsgType.TEXT and (frame := read_frame(message.data)) is not None:
                yield frame
        if self._socket.close_code == UNAUTHORIZED:
            raise TokenRefused("The gateway's token was changed; pass the new one, from HOME/token, with --token.")

    async def close(self) -> None:
        """Close the connection; queued frames are discarded."""
        self._writer.cancel()
        await asyncio.wait([self._writer])
        await self._socket.close()

    async def _write(self) -> None:
        # `listen` notices a lost connection and ends it.
        with contextlib.suppress(aiohttp.ClientError, OSError):
            while True:
                await self._socket.send_frame(await self._frames.get(), aiohttp.WSMsgType.TEXT)


async def _greet(socket: aiohttp.ClientWebSocketResponse, token: str, name: str) -> Welcome:
    hello = {"type": "hello", "protocol": PROTOCOL, "token": token, "client": name}
    await socket.send_str(msgspec.json.encode(hello).decode())
    message = await socket.receive()
    if message.type is not aiohttp.WSMsgType.TEXT:
        if socket.close_code == UNAUTHORIZED:
            raise _unauthorized()
        raise NotConnected(f"The gateway closed the connection: {message.extra or socket.close_code}.")
    try:
        welcome = read_frame(message.data)
    except msgspec.MsgspecError:
        welcome = None
    if not isinstance(welcome, Welcome) or welcome.protocol != PROTOCOL:
        raise ConnectionRefused("The server does not support this client's version of the protocol.")
    return welcome


def _unauthorized() -> TokenRefused:
    return TokenRefused("Invalid token: pass the gateway's, from HOME/token, with --token or EXUVIA_TOKEN.")


def _handshake_error(url: str, status: int) -> ClientError:
    if status == 401:
        return _unauthorized()
    if status == 403:
        return ConnectionRefused(f"The gateway rejects the host name in {url}; add it to gateway.allowed_hosts.")
    if status >= 500:
        return NotConnected(f"The server at {url} is not ready (status {status}).")
    return ConnectionRefused(f"The server at {url} is not an Exuvia gateway (status {status}).")


# --- files ------------------------------------------------------------------------------------------------------------


class UploadRefused(ClientError):
    """A file that could not be uploaded."""


class DownloadFailed(ClientError):
    """An attachment that could not be downloaded."""


class Uploaded(msgspec.Struct, frozen=True):
    """An uploaded file, by its hash."""

    sha256: Annotated[str, msgspec.Meta(pattern=r"\A[0-9a-f]{64}\Z")]
    name: str = ""


class _Refusal(msgspec.Struct, frozen=True):
    message: str = ""


async def upload(http: aiohttp.ClientSession, websocket: str, token: str, file: Path) -> Uploaded:
    """Upload a file to the gateway with this websocket URL.

    Raises:
        UploadRefused: The file cannot be read, or the gateway rejects it.
    """
    url = _attachments(websocket)
    media = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
    headers = {"Authorization": f"Bearer {token}", "Content-Type": media}
    try:
        with await asyncio.to_thread(_open, file) as body:
            timeout = aiohttp.ClientTimeout(total=None, sock_connect=IDLE_SECONDS, sock_read=IDLE_SECONDS)
            posting = http.post(url, params={"name": file.name}, data=body, headers=headers, timeout=timeout)
            async with posting as response:
                return _read(response.status, await response.read(), file)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise UploadRefused(f"{file.name} did not reach the gateway: {str(error) or 'it does not answer'}.") from error
    except OSError as error:
        raise UploadRefused(f"{file} cannot be read: {error.strerror or error}.") from error


async def download(http: aiohttp.ClientSession, websocket: str, token: str, sha256: str, limit: int) -> bytes:
    """Return the content of an attachment, by its hash, from the gateway with this websocket URL.

    Raises:
        DownloadFailed: The gateway does not have it or does not answer, or it has more bytes than `limit`.
    """
    headers = {"Authorization": f"Bearer {token}"}
    try:
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=IDLE_SECONDS, sock_read=IDLE_SECONDS)
        async with http.get(_attachments(websocket) / sha256, headers=headers, timeout=timeout) as response:
            if response.status != 200 or (response.content_length or 0) > limit:
                raise DownloadFailed(f"The file {sha256} could not be downloaded: status {response.status}.")
            content = bytearray()
            async for piece in response.content.iter_chunked(DOWNLOAD_PIECE):
                content += piece
                if len(content) > limit:
                    raise DownloadFailed(f"The file {sha256} has more than {limit} bytes.")
            return bytes(content)
    except (aiohttp.ClientError, TimeoutError) as error:
        raise DownloadFailed(f"The file {sha256} did not arrive: {str(error) or 'the gateway does not answer'}.") from error


def _attachments(websocket: str) -> URL:
    url = URL(websocket)
    return url.with_scheme({"ws": "http", "wss": "https"}[url.scheme]).parent / "attachments"


def _open(file: Path) -> BinaryIO:
    if not file.is_file():
        # A pipe or a device might never end.
        raise UploadRefused(f"{file} is not a file.")
    return file.open("rb")


def _read(status: int, body: bytes, file: Path) -> Uploaded:
    try:
        if status == 201:
            return msgspec.structs.replace(msgspec.json.decode(body, type=Uploaded), name=file.name)
        sentence = msgspec.json.decode(body, type=_Refusal).message
    except (msgspec.MsgspecError, UnicodeError):
        sentence = ""
    raise UploadRefused(f"{file.name} was rejected: {sentence or f'status {status}'}")
