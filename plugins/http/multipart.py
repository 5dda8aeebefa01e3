"""Bodies of the type `multipart/form-data` (RFC 7578) with one file, which is read while it is sent."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

PIECE = 256 * 1024
"""Bytes of the file that are in memory at a time."""

_QUOTED = str.maketrans({"\r": "%0D", "\n": "%0A", '"': "%22"})
"""How browsers write these characters in a name."""


class FileForm:
    """A form with text fields and one file. It can be sent repeatedly; the length of the file must not change meanwhile.

    Args:
        fields: The names and values of the text fields. A name may be repeated.
        path: The file.
        name: The name of the file for the server.
        media: The media type of the file.

    Raises:
        OSError: The file cannot be read. Use in a thread.
    """

    def __init__(self, fields: Sequence[tuple[str, str]], path: Path, *, name: str, media: str) -> None:
        boundary = secrets.token_hex(16)
        parts = [
            f'--{boundary}\r\nContent-Disposition: form-data; name="{_quoted(field)}"\r\n\r\n{value}\r\n'
            for field, value in fields
        ]
        disposition = f'Content-Disposition: form-data; name="file"; filename="{_quoted(name)}"'
        parts.append(f"--{boundary}\r\n{disposition}\r\nContent-Type: {media}\r\n\r\n")
        self.content_type = f"multipart/form-data; boundary={boundary}"
        self._before = "".join(parts).encode("utf-8", "replace")
        self._after = f"\r\n--{boundary}--\r\n".encode()
        self._path = path
        self._file_size = path.stat().st_size

    def __len__(self) -> int:
        return len(self._before) + self._file_size + len(self._after)

    async def __aiter__(self) -> AsyncIterator[bytes]:
        yield self._before
        offset = 0
        while piece := await asyncio.to_thread(self._read, offset):
            offset += len(piece)
            yield piece
        yield self._after

    def _read(self, offset: int) -> bytes:
        """Return the piece at an offset. The file is open only meanwhile: a request that ends early leaves nothing open."""
        with self._path.open("rb") as file:
            file.seek(offset)
            return file.read(PIECE)


def _quoted(name: str) -> str:
    return name.translate(_QUOTED)
