"""The files of events at a terminal: a caption for each, and the picture if the terminal can show it.

Pictures come from the gateway, or as `data:` addresses from the text of an answer. Nothing else is ever fetched.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
from collections.abc import Awaitable, Callable

import msgspec

from gateway.support.printable import one_line
from gateway.terminal.client.connection import ClientError
from gateway.terminal.pictures.picture_encoding import LARGEST_BYTES, encoded
from gateway.terminal.pictures.terminal_graphics import Graphics
from sessions.events.events import Event, MessageReceived, ModelReplied, ToolReturned, UnknownEvent
from sessions.events.file_types import detect_picture
from sessions.events.messages import Attachment

SECONDS = 10.0
"""Seconds for which a picture is fetched and encoded; then only its caption is shown."""

DRAWN = 8
"""Pictures of one event that are shown; the others have captions."""

NAME_CHARACTERS = 60

_DATA = "](data:image/"


class ShownFile(msgspec.Struct, frozen=True):
    """A file of an event; `content` if the event contains it."""

    attachment: Attachment
    content: bytes | None = None

    @property
    def is_picture(self) -> bool:
        return self.attachment.width > 0

    @property
    def caption(self) -> str:
        """The file in one line, such as `[picture roof.png 640x480 12 kB]`."""
        file = self.attachment
        name = one_line(file.name, NAME_CHARACTERS)
        size = f"{file.bytes:,} bytes" if file.bytes < 1000 else f"{file.bytes / 1000:,.0f} kB"
        kind, extent = ("picture", f"{file.width}x{file.height}") if self.is_picture else ("file", "")
        return f"[{' '.join(filter(None, (kind, name, extent, size)))}]"


def files_of(event: Event | UnknownEvent) -> list[ShownFile]:
    """Return the files of an event, and the pictures in the text of an answer."""
    match event:
        case MessageReceived(attachments=files) | ToolReturned(attachments=files):
            return [ShownFile(file) for file in files]
        case ModelReplied(text=text):
            return _data_pictures(text)
        case _:
            return []


def _data_pictures(text: str) -> list[ShownFile]:
    """Return the pictures that Markdown contains as `![name](data:image/…;base64,…)`."""
    found, at = list[ShownFile](), text.find(_DATA)
    while at >= 0 and len(found) < DRAWN:
        end = text.find(")", at)
        if end < 0:
            break
        name = text[max(0, at - 200) : at].rpartition("![")
        _, _, data = text[at + 2 : end].partition(";base64,")
        if (
            name[1]
            and "]" not in name[2]
            and (content := _decoded(data)) is not None
            and (picture := detect_picture(content))
        ):
            size = {"bytes": len(content), "width": picture.width, "height": picture.height}
            file = Attachment(sha256="", media=picture.media, name=name[2], **size)
            found.append(ShownFile(file, content))
        at = text.find(_DATA, end)
    return found


def _decoded(data: str) -> bytes | None:
    if len(data) > LARGEST_BYTES * 4 // 3 + 4:
        return None
    try:
        return base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None


class Pictures:
    """Fetches and encodes pictures for a terminal.

    Args:
        graphics: What the terminal can show; None for captions only.
        size: Returns the columns and rows that a picture may have.
    """

    def __init__(self, graphics: Graphics | None, size: Callable[[], tuple[int, int]]) -> None:
        self._graphics = graphics
        self._size = size

    async def drawings(
        self, files: list[ShownFile], fetch: Callable[[str, int], Awaitable[bytes]]
    ) -> list[tuple[ShownFile, str | None]]:
        """Return the files with their sequences, None for those that are not drawn.

        `fetch` returns the content of an attachment, by its SHA-256, of at most so many bytes.
        """
        return [(file, await self._drawing(file, fetch) if number < DRAWN else None) for number, file in enumerate(files)]

    async def _drawing(self, file: ShownFile, fetch: Callable[[str, int], Awaitable[bytes]]) -> str | None:
        if self._graphics is None or not file.is_picture or file.attachment.bytes > LARGEST_BYTES:
            return None
        try:
            async with asyncio.timeout(SECONDS):
                content = file.content or await fetch(file.attachment.sha256, LARGEST_BYTES)
                return await asyncio.to_thread(encoded, content, self._graphics, *self._size())
        except (ClientError, TimeoutError):
            return None
