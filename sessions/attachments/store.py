"""The attachment store: pictures, files and large tool outputs, named by content hash.

attachments/<sha256>                  the content
attachments/owners/<person>/<sha256>  who sent it, and its description (see `owners`)
attachments/.draft-…                  a file that is being written

Attachments that were uploaded but not used in a message are removed after a day. An attachment in any journal is never
removed, and nothing is removed while a journal cannot be read. The journals decide, not our own records, because a crash may
occur between an event and its record.
"""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from hashlib import file_digest, sha256
from mmap import ACCESS_READ, mmap
from pathlib import Path
from time import time
from typing import Self

from sessions.attachments.attachment_refs import digests_in, references_in
from sessions.attachments.owners import Owners, is_digest
from sessions.events.codec import InvalidLine, decode
from sessions.events.errors import StorageFailed, UnknownSession
from sessions.events.events import SessionOpened
from sessions.events.file_types import PLAIN, Content, detect_media_type, detect_picture
from sessions.events.messages import Attachment
from sessions.files.fsync import make_folder, sync_content, sync_folder
from sessions.store.protocols import START, Lines, LogReader

DRAFT = ".draft-"
"""Prefix of a file that is being written."""


class Attachments:
    """The `Blobs` in a folder of files named by the SHA-256 of their content."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.owners = Owners(folder / "owners")

    async def keep(self, content: bytes, person: str, *, media: str = PLAIN, name: str = "") -> Attachment:
        return await asyncio.to_thread(self._keep, content, person, media, name, named=True)

    async def store(self, content: bytes, person: str, *, claimed: str, name: str) -> Attachment:
        return await asyncio.to_thread(self._keep, content, person, claimed, name, named=False)

    async def find(self, person: str, digest: str) -> Attachment | None:
        try:
            return await asyncio.to_thread(self.owners.find, person, digest)
        except OSError as error:
            raise StorageFailed(f"an attachment could not be looked up: {error.strerror}") from error

    async def settle(self, person: str, attachments: tuple[Attachment, ...]) -> None:
        for each in attachments:
            try:
                await asyncio.to_thread(self.owners.settle, person, each.sha256)
            except OSError as error:
                raise StorageFailed(f"an attachment could not be marked as used: {error.strerror}") from error

    async def read(self, digest: str, convert: Callable[[bytes], bytes] = bytes) -> bytes:
        if not is_digest(digest):
            raise FileNotFoundError(digest)
        return await asyncio.to_thread(lambda: convert(self._read(digest)))

    async def file(self, digest: str) -> Path | None:
        path = self.path(digest)
        return path if is_digest(digest) and await asyncio.to_thread(path.is_file) else None

    def fault(self, digest: str) -> str:
        try:
            with self.path(digest).open("rb") as file:
                return "" if file_digest(file, "sha256").hexdigest() == digest else "was altered"
        except FileNotFoundError:
            return "is missing"
        except OSError as error:
            return f"cannot be read ({error.strerror})"

    def draft(self) -> Draft:
        return Draft(self)

    def remove_orphans(self, logs: LogReader, before: float) -> int:
        sessions = [session for session, _ in logs.listed()]
        if not self.folder.is_dir() or not sessions:  # without any log, nothing is removed: they may be elsewhere
            return 0
        owners = self.owners
        new = [(path, digest) for path, digest, at in owners.unsettled() if at < before]
        unknown = {path.name for path in self.folder.iterdir() if is_digest(path.name)} - owners.digests()
        self._remove_drafts(before)
        if not new and not unknown:
            return 0
        named: set[str] = set()
        for session in sessions:
            with logs.read(session) as lines:
                named |= digests_in(lines)
        for session in sessions if not unknown.isdisjoint(named) else ():
            with logs.read(session) as lines:
                self._record_again(lines, unknown)
        for path, digest in new:
            with owners.lock, suppress(FileNotFoundError):  # it may have been used meanwhile
                if digest in named:
                    path.rename(path.with_name(digest))
                elif path.stat().st_mtime < before:
                    path.unlink()
        return sum(self._remove(digest, before) for digest in {*unknown, *(digest for _, digest in new)} - named)

    def release(self, person: str, digests: Collection[str], logs: LogReader, sessions: Iterable[str]) -> tuple[int, int]:
        known = [digest for digest in digests if is_digest(digest)]
        began = time()
        for digest in known:
            self.owners.doubt(person, digest)
        named: set[str] = set()
        for session in sessions if known else ():
            with suppress(UnknownSession), logs.read(session) as lines:
                named |= digests_in(lines)
        removed = size = 0
        for digest in known:
            if digest in named:
                self.owners.settle(person, digest)
                continue
            self.owners.drop(person, digest)
            with suppress(FileNotFoundError):
                length = self.path(digest).stat().st_size
                if self._remove(digest, began):
                    removed, size = removed + 1, size + length
        if removed:
            sync_folder(self.folder)
        return removed, size

    def records(self) -> Iterator[tuple[str, Attachment, bool]]:
        return self.owners.records()

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

    def _remove(self, digest: str, before: float) -> bool:
        """Remove content without an owner."""
        path = self.path(digest)
        with self.owners.lock, suppress(FileNotFoundError):
            if not self.owners.is_owned(digest) and path.stat().st_mtime < before:
                path.unlink()
                return True
        return False

    def _remove_drafts(self, before: float) -> None:
        for path in [*self.folder.glob(f"{DRAFT}*"), *self.folder.glob("owners/*/.*")]:
            with suppress(FileNotFoundError):
                if path.stat().st_mtime < before:
                    path.unlink()

    def _record_again(self, lines: Lines, unknown: set[str]) -> None:
        """Restore the missing records of the owner of a log."""
        person = owner_of(lines)
        for named in references_in(lines) if person else ():
            if named.attachment.sha256 in unknown:
                self.owners.record(person, named.attachment, named=True)


def owner_of(lines: Lines) -> str:
    """Return the owner of a log; empty if its first line is invalid."""
    try:
        event = decode(next(lines.forward(START), b"")).event
    except InvalidLine:
        return ""
    return event.person if isinstance(event, SessionOpened) else ""


class DraftFile:
    """A content that is being written to a file. All methods block and raise StorageFailed; `close`, or leaving the context,
    removes it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / f"{DRAFT}{secrets.token_hex(8)}"
        self.size = 0
        self._hash = sha256()
        try:
            make_folder(folder)
            flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
            self._file = open(os.open(self.path, flags, 0o600), "r+b", buffering=0)  # noqa: SIM115 - by close
        except OSError as error:
            raise storage_failed(error) from error

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.path.unlink(missing_ok=True)

    def write(self, piece: bytes) -> None:
        try:
            written = 0
            while written < len(piece):
                written += self._file.write(piece[written:])
        except OSError as error:
            raise storage_failed(error) from error
        self._hash.update(piece)
        self.size += len(piece)

    def described(self, claimed: str, name: str) -> Attachment:
        """Return the attachment that the content is, with its stated media type and name. Raises OSError."""
        digest = self._hash.hexdigest()
        if not self.size:  # an empty file cannot be mapped
            return _description(b"", digest, claimed, name)
        with mmap(self._file.fileno(), 0, access=ACCESS_READ) as content:
            return _description(content, digest, claimed, name)


class Draft(DraftFile):
    """A file of the folder that is being written, and removed unless it is kept."""

    def __init__(self, attachments: Attachments) -> None:
        super().__init__(attachments.folder)
        self._attachments = attachments

    def keep(self, person: str, *, claimed: str, name: str, named: bool = False) -> Attachment:
        """Turn the file into an attachment of this person, durably.

        It replaces an equal one, so that the duration does not reveal whether somebody has the same file, and an altered
        file is repaired.
        """
        try:
            sync_content(self._file.fileno())
            attachment = self.described(claimed, name)
            os.replace(self.path, self._attachments.path(attachment.sha256))
            sync_folder(self._attachments.folder)
            self._attachments.owners.record(person, attachment, named=named)
        except OSError as error:
            raise storage_failed(error) from error
        return attachment


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


def storage_failed(error: OSError) -> StorageFailed:
    """Return the failure to store an attachment, as a sentence."""
    return StorageFailed(f"an attachment could not be stored: {error.strerror}")
