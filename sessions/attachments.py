"""Attachments: pictures and large tool outputs, kept by content beside the journals."""

from __future__ import annotations

import asyncio
import secrets
from hashlib import sha256
from pathlib import Path

from sessions.disk import make_folder, sync_folder, write_new
from sessions.errors import StorageFailed


class Attachments:
    """A folder of files named by the SHA-256 of their bytes. What was kept is durable before its name is given out."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def keep(self, content: bytes) -> str:
        """Store bytes, durably, and return their hexadecimal SHA-256; StorageFailed if the disk refuses."""
        return await asyncio.to_thread(self._keep, content)

    async def read(self, digest: str) -> bytes:
        """The bytes kept under a digest; FileNotFoundError if there are none."""
        if len(digest) != 64 or not set(digest) <= set("0123456789abcdef"):
            raise FileNotFoundError(digest)
        return await asyncio.to_thread((self._folder / digest).read_bytes)

    def _keep(self, content: bytes) -> str:
        digest = sha256(content).hexdigest()
        path = self._folder / digest
        if path.exists():
            return digest
        try:
            make_folder(self._folder)
            self._write(path, content)
        except OSError as error:
            raise StorageFailed(f"an attachment could not be stored: {error.strerror}") from error
        return digest

    def _write(self, path: Path, content: bytes) -> None:
        draft = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
        try:
            write_new(draft, [content])
            draft.rename(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
        sync_folder(self._folder)


def head_and_tail(text: str, limit: int) -> str:
    """A text of more than `limit` bytes cut to its beginning and end, with a line between that says what is missing."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) <= limit:
        return text
    half = limit // 2
    head = encoded[:half].decode("utf-8", "ignore")
    tail = encoded[-half:].decode("utf-8", "ignore")
    return f"{head}\n[… {len(encoded) - 2 * half} bytes left out …]\n{tail}"
