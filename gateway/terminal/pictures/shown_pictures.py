"""The files of events at a terminal: a caption for each, and the picture if the terminal can show it.

Pictures come from the gateway, or as `data:` addresses from the text of an answer. Nothing else is ever fetched.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import re
from collections.abc import Awaitable, Callable
from itertools import islice

import msgspec

from gateway.support.printable import one_line
from gateway.terminal.client.connection import ClientError
from gateway.terminal.pictures.picture_encoding import LARGEST_BYTES, encoded
from gateway.terminal.pictures.terminal_graphics import Graphics
from sessions.events.events import Event, MessageImported, MessageReceived, ModelReplied, ToolReturned, UnknownEvent
from sessions.events.file_types import detect_picture
from sessions.events.messages import Attachment

SECONDS = 10.0
"""Seconds for which a picture is fetched and encoded; then only its caption is shown."""

DRAWN = 8
"""Pictures of one event that are shown; the others have captions."""

NAME_CHARACTERS = 60

_DATA = "](data:image/"
_NAME, _CONTENT = r"!\[(?P<name>[^\]\n]{0,200}+)", r"[^)\s!]*+"
_DATA_END = re.compile(r"[)\s!]")
_PICTURE = re.compile(rf"{_NAME}\]\((?P<data>data:image/{_CONTENT})\)")
_UNFINISHED = re.compile(
    rf"!(?:\Z|{_NAME[1:]}{''.join('(?:' + re.escape(each) for each in _DATA)}{_CONTENT}{')?' * len(_DATA)}\Z)"
)
"""A text that ends within a picture, or with what may become one."""


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
        case MessageReceived(attachments=files) | MessageImported(attachments=files) | ToolReturned(attachments=files):
            return [ShownFile(file) for file in files]
        case ModelReplied(text=text):
            return _data_pictures(text)
        case _:
            return []


def _data_pictures(text: str) -> list[ShownFile]:
    """Return the pictures that Markdown contains as `![name](data:image/…;base64,…)`."""
    return list(islice(filter(None, map(_data_picture, _PICTURE.finditer(text))), DRAWN))


def _data_picture(found: re.Match[str]) -> ShownFile | None:
    content = _decoded(found["data"].partition(";base64,")[2])
    picture = detect_picture(content) if content else None
    if content is None or picture is None:
        return None
    size = {"bytes": len(content), "width": picture.width, "height": picture.height}
    return ShownFile(Attachment(sha256="", media=picture.media, name=found["name"], **size), content)


def captioned(text: str) -> str:
    """Return Markdown with the captions of the pictures that it contains in their places."""

    def caption(found: re.Match[str]) -> str:
        file = _data_picture(found)
        return found[0] if file is None else file.caption

    return _PICTURE.sub(caption, text)


class CaptionedStream:
    """Text that arrives in pieces, with the captions of the pictures in it; an unfinished picture is held back."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._in_data = False

    def add(self, piece: str) -> str:
        """Return what can be shown after this piece."""
        if self._in_data and _DATA_END.search(piece) is None:
            self._held.append(piece)
            return ""
        text = captioned(self.rest() + piece)
        unfinished = _UNFINISHED.search(text)
        if unfinished is None:
            return text
        self._held.append(unfinished[0])
        self._in_data = _DATA in unfinished[0]
        return text[: unfinished.start()]

    def rest(self) -> str:
        """Return what was held back; nothing is, afterwards."""
        text = "".join(self._held)
        self._held.clear()
        self._in_data = False
        return text


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
