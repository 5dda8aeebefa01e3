"""File uploads to the gateway, for use in a message (`docs/attachments.md`)."""

from __future__ import annotations

import asyncio
import mimetypes
from pathlib import Path
from typing import Annotated, BinaryIO

import aiohttp
import msgspec
from yarl import URL

from gateway.terminal.client.connection import ClientError

IDLE_SECONDS = 60.0
"""Seconds without progress after which an upload fails."""


class UploadRefused(ClientError):
    """A file that could not be uploaded."""


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
    url = URL(websocket)
    url = url.with_scheme({"ws": "http", "wss": "https"}[url.scheme]).parent / "attachments"
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


def _open(file: Path) -> BinaryIO:
    if not file.is_file():
        # A pipe or a device might never end.
        raise UploadRefused(f"{file} is no file.")
    return file.open("rb")


def _read(status: int, body: bytes, file: Path) -> Uploaded:
    try:
        if status == 201:
            return msgspec.structs.replace(msgspec.json.decode(body, type=Uploaded), name=file.name)
        sentence = msgspec.json.decode(body, type=_Refusal).message
    except (msgspec.MsgspecError, UnicodeError):
        sentence = ""
    raise UploadRefused(f"{file.name} was not taken: {sentence or f'status {status}'}")
