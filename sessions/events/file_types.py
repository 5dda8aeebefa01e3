"""Detection of file types from content: four picture formats with their size in pixels, text, or other.

Only headers are read, according to the formats' specifications: PNG (W3C, "11.2.2 IHDR"), GIF89a ("18. Logical Screen
Descriptor"), JPEG (ITU-T T.81, "B.2.2 Frame header syntax"), WebP (RFC 9649, "2. WebP container" and RFC 6386, "9.1").

No library: imagesize measures a dozen more formats with 1,300 lines, swaps the sides by Exif, and sets no bound on a JPEG's
segments; filetype and puremagic do not say whether a file is text.
"""

from __future__ import annotations

import codecs
import re
from mmap import mmap
from typing import TypeAlias

import msgspec

Content: TypeAlias = bytes | mmap

PLAIN, UNKNOWN = "text/plain", "application/octet-stream"

_MEDIA = re.compile(r"[a-z0-9][a-z0-9!#$&^_.+-]{0,63}/[a-z0-9][a-z0-9!#$&^_.+-]{0,99}")
_NOT_TEXT = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
"""Bytes that do not occur in text; escape (1b) is allowed because many logs contain it."""
_STEP = 1024 * 1024
_FRAMES = frozenset({*range(0xC0, 0xD0)} - {0xC4, 0xC8, 0xCC})
"""The JPEG markers that begin a frame; the three excluded ones are tables and an extension."""
_ALONE = frozenset({0x01, *range(0xD0, 0xD9)})
"""The JPEG markers that are not followed by a length."""
_MARKERS = 4096
"""The markers and fill bytes that may precede a JPEG's frame. Cameras write hundreds at most."""


class Picture(msgspec.Struct, frozen=True):
    """A picture's media type, and its width and height in pixels."""

    media: str
    width: int
    height: int


def detect_picture(content: Content) -> Picture | None:
    """Return the format and size of a picture, or None if the content is not one of the four formats, is truncated, or has
    no area."""
    for begins, size in (
        (b"\x89PNG\r\n\x1a\n", _png),
        (b"GIF87a", _gif),
        (b"GIF89a", _gif),
        (b"\xff\xd8\xff", _jpeg),
        (b"RIFF", _webp),
    ):
        if content[: len(begins)] == begins:
            media, width, height = size(content)
            return Picture(media, width, height) if width > 0 and height > 0 else None
    return None


def detect_media_type(content: Content, claimed: str) -> str:
    """Return the media type of a file that is not a picture.

    Args:
        content: The whole file.
        claimed: The media type that the sender states. A `text/…` type is accepted only if the content is text; a picture
            type never is.
    """
    claim = claimed.partition(";")[0].strip().lower()
    if not _MEDIA.fullmatch(claim):
        claim = ""
    if is_text(content):
        return claim if claim.startswith("text/") else PLAIN
    return UNKNOWN if not claim or claim.startswith(("text/", "image/")) else claim


def is_text(content: Content) -> bool:
    """Return True if the content is UTF-8 text without control characters."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(content), _STEP):
            piece = content[start : start + _STEP]
            if _NOT_TEXT.search(piece):
                return False
            decoder.decode(piece)
        decoder.decode(b"", final=True)
    except UnicodeDecodeError:
        return False
    return True


def _number(content: Content, start: int, end: int, *, little: bool = False) -> int:
    return int.from_bytes(content[start:end], "little" if little else "big")


def _png(content: Content) -> tuple[str, int, int]:
    whole = content[12:16] == b"IHDR" and len(content) >= 33
    return "image/png", *((_number(content, 16, 20), _number(content, 20, 24)) if whole else (0, 0))


def _gif(content: Content) -> tuple[str, int, int]:
    whole = len(content) >= 13
    return "image/gif", *((_number(content, 6, 8, little=True), _number(content, 8, 10, little=True)) if whole else (0, 0))


def _jpeg(content: Content) -> tuple[str, int, int]:
    """Skip segments until one begins a frame. After a camera's metadata that can be far into the file."""
    at = 2
    for _ in range(_MARKERS):
        if at + 9 > len(content) or content[at] != 0xFF:
            break
        marker = content[at + 1]
        if marker in _FRAMES:
            return "image/jpeg", _number(content, at + 7, at + 9), _number(content, at + 5, at + 7)
        if marker == 0xFF:
            at += 1
        elif marker in _ALONE:
            at += 2
        else:
            at += 2 + max(2, _number(content, at + 2, at + 4))
    return "image/jpeg", 0, 0


def _webp(content: Content) -> tuple[str, int, int]:
    kind, width, height = content[8:16], 0, 0
    if len(content) >= 30 and kind == b"WEBPVP8 " and content[23:26] == b"\x9d\x01\x2a":
        width, height = (_number(content, at, at + 2, little=True) & 0x3FFF for at in (26, 28))
    elif len(content) >= 25 and kind == b"WEBPVP8L" and content[20] == 0x2F:
        bits = _number(content, 21, 25, little=True)
        width, height = (bits & 0x3FFF) + 1, (bits >> 14 & 0x3FFF) + 1
    elif len(content) >= 30 and kind == b"WEBPVP8X":
        width, height = (_number(content, at, at + 3, little=True) + 1 for at in (24, 27))
    return "image/webp", width, height
