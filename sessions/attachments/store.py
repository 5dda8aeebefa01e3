"""The attachment store: pictures, files and large tool outputs, named by content hash.

attachments/<sha256>                  the content
attachments/owners/<person>/<sha256>  who sent it, and its description (see `owners`)
attachments/.draft-…                  a file that is being written
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable
from hashlib import file_digest, sha256
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Self

from sessions.attachments.gc import DRAFT, remove_orphans
from sessions.attachments.owners import Owners, is_digest
from sessions.events.errors import StorageFailed
from sessions.events.file_types import PLAIN, Content, detect_media_type, detect_picture
from sessions.events.messages import Attachment
from sessions.files.fsync import make_folder, sync_content, sync_folder
from sessions.store.protocols import LogReader


class Attachments:
    """The `Blobs` in a folder of files named by the SHA-256 of their content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.owners = Owners(folder / "owners")

    async def keep(self, content: bytes, person: str) -> str:
        """Store a tool's output, durably, for the person it was made for; return its hexadecimal SHA-256. Raises
        StorageFailed."""
        return (await asyncio.to_thread(self._keep, content, person, PLAIN, "", named=True)).sha256

    async def store(self, content: bytes, person: str, *, claimed: str, name: str) -> Attachment:
        """Store a file that a person sent, durably.

        Args:
            content: The bytes of the file.
            person: The sender.
            claimed: The media type stated by the sender, or empty.
            name: The sender's file name, or empty.

        Raises:
            StorageFailed: The file could not be written.
        """
        return await asyncio.to_thread(self._keep, content, person, claimed, name, named=False)

    async def find(self, person: str, digest: str) -> Attachment | None:
        """Return the attachment that this person sent with a hash, or None. Raises StorageFailed if its record cannot be
        read."""
        try:
            return await asyncio.to_thread(self.owners.find, person, digest)
        except OSError as error:
            raise StorageFailed(f"an attachment could not be looked up: {error.strerror}") from error

    async def settle(self, person: str, attachments: tuple[Attachment, ...]) -> None:
        """Mark attachments as used; see `Blobs.settle`."""
        for each in attachments:
            try:
                await asyncio.to_thread(self.owners.settle, person, each.sha256)
            except OSError as error:
                raise StorageFailed(f"an attachment could not be marked as used: {error.strerror}") from error

    async def read(self, digest: str, convert: Callable[[bytes], bytes] = bytes) -> bytes:
        """Return the content of a hash, converted on the thread that reads it. Raises FileNotFoundError if it is missing or
        altered."""
        if not is_digest(digest):
            raise FileNotFoundError(digest)
        return await asyncio.to_thread(lambda: convert(self._read(digest)))

    async def file(self, digest: str) -> Path | None:
        """Return the file of a hash; see `Blobs.file`."""
        path = self.path(digest)
        return path if is_digest(digest) and await asyncio.to_thread(path.is_file) else None

    def fault(self, digest: str) -> str:
        """Return what is wrong with a file; see `Blobs.fault`."""
        try:
            with self.path(digest).open("rb") as file:
                return "" if file_digest(file, "sha256").hexdigest() == digest else "was altered"
        except FileNotFoundError:
            return "is missing"
        except OSError as error:
            return f"cannot be read ({error.strerror})"

    def draft(self) -> Draft:
        """Begin a file; see `Blobs.draft`."""
        return Draft(self)

    def remove_orphans(self, logs: LogReader, before: float) -> int:
        """Remove unreferenced files; see `Blobs.remove_orphans`."""
        return remove_orphans(self.folder, self.owners, logs, before)

    def path(self, digest: str) -> Path:
        """Return the path of the content of a hash."""
        return self.folder / digest

    def _keep(self, content: bytes, person: str, claimed: str, name: str, *, named: bool) -> Attachment:
        with self.draft() as draft:
            draft.write(content)
            return draft.keep(person, claimed=claimed, name=name, named=named)

    def _read(self, digest: str) -> bytes:
        content = self.path(digest).read_bytes()
        if sha256(content).hexdigest() != digest:
            raise FileNotFoundError(f"{digest} was altered")
        return content


class Draft:
    """A file that is being written. All methods block and raise StorageFailed; `close`, or leaving the context, removes it
    unless it was kept."""

    def __init__(self, attachments: Attachments) -> None:
        self._attachments = attachments
        self._path = attachments.folder / f"{DRAFT}{secrets.token_hex(8)}"
        self._hash = sha256()
        self.size = 0
        try:
            make_folder(attachments.folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = open(os.open(self._path, flags, 0o600), "r+b", buffering=0)  # noqa: SIM115 - by close
        except OSError as error:
            raise _failed(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Remove the file unless it was kept. May be called repeatedly."""
        self._file.close()
        self._path.unlink(missing_ok=True)

    def write(self, piece: bytes) -> None:
        """Append bytes."""
        try:
            written = 0
            while written < len(piece):
                written += self._file.write(piece[written:])
        except OSError as error:
            raise _failed(error) from error
        self._hash.update(piece)
        self.size += len(piece)

    def keep(self, person: str, *, claimed: str, name: str, named: bool = False) -> Attachment:
        """Turn the file into an attachment of this person, durably.

        It replaces an equal one, so that the duration does not reveal whether somebody has the same file, and an altered
        file is repaired.
        """
        try:
            sync_content(self._file.fileno())
            attachment = self._described(claimed, name)
            os.replace(self._path, self._attachments.path(attachment.sha256))
            sync_folder(self._attachments.folder)
            self._attachments.owners.record(person, attachment, named=named)
        except OSError as error:
            raise _failed(error) from error
        return attachment

    def _described(self, claimed: str, name: str) -> Attachment:
        digest = self._hash.hexdigest()
        if not self.size:  # an empty file cannot be mapped
            return _description(b"", digest, claimed, name)
        with mmap(self._file.fileno(), 0, access=ACCESS_READ) as content:
            return _description(content, digest, claimed, name)


def _description(content: Content, digest: str, claimed: str, name: str) -> Attachment:
    picture = detect_picture(content)
    if picture is None:
        return Attachment(sha256=digest, media=detect_media_type(content, claimed), bytes=len(content), name=name)
    return Attachment(
        sha256=digest,
        media=picture.media,
        bytes=len(content),
        name=name,
        width=picture.width,
        height=picture.height,
    )


def _failed(error: OSError) -> StorageFailed:
    return StorageFailed(f"an attachment could not be stored: {error.strerror}")
