"""Pictures for tests, made from the formats' documents: whole ones where that is short, else headers with filling."""

from __future__ import annotations

import struct
import zlib


def png(width: int = 2, height: int = 2, *, filling: int = 0) -> bytes:
    """A whole grey PNG; `filling` bytes that do not compress stand in a comment."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0))
    rows = zlib.compress((b"\0" + bytes(width)) * min(height, 100))
    comment = chunk(b"tEXt", b"Comment\0" + b"x" * filling) if filling else b""
    return b"\x89PNG\r\n\x1a\n" + header + comment + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def gif(width: int = 2, height: int = 2) -> bytes:
    """A GIF without a picture in it."""
    return b"GIF89a" + struct.pack("<HHBBB", width, height, 0, 0, 0) + b";"


def jpeg(width: int = 2, height: int = 2, *, notes: int = 0, progressive: bool = False) -> bytes:
    """The segments of a JPEG up to its first scan, behind `notes` segments of a camera, 60,000 bytes each."""

    def segment(marker: int, data: bytes) -> bytes:
        return struct.pack(">BBH", 0xFF, marker, len(data) + 2) + data

    frame = struct.pack(">BHHB", 8, height, width, 1) + b"\x01\x11\0"
    exif = segment(0xE1, b"Exif\0\0" + b"\xff\xc0\0\x11" * 15_000) * notes
    tables = segment(0xDB, bytes(65)) + b"\xff" + segment(0xC4, bytes(20))  # with a byte of filling between
    return b"\xff\xd8" + segment(0xE0, b"JFIF\0") + exif + tables + segment(0xC2 if progressive else 0xC0, frame)


def webp(kind: bytes, width: int = 2, height: int = 2) -> bytes:
    """A WebP of the kind `VP8 `, `VP8L` or `VP8X`, without its pixels."""
    if kind == b"VP8 ":
        data = b"\x10\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
    elif kind == b"VP8L":
        data = b"\x2f" + struct.pack("<I", (width - 1) | (height - 1) << 14) + bytes(8)
    else:
        data = bytes(4) + (width - 1).to_bytes(3, "little") + (height - 1).to_bytes(3, "little")
    body = b"WEBP" + kind + struct.pack("<I", len(data)) + data
    return b"RIFF" + struct.pack("<I", len(body)) + body
