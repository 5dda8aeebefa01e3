"""The protocol of a store of attachments: contents by hash, each with the people who may use it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from sessions.events.messages import Attachment
from sessions.store.protocols import LogReader


class BlobDraft(Protocol):
    """A content that is being written. All methods block and raise StorageFailed."""

    @property
    def size(self) -> int:
        """The bytes written so far."""
        ...

    def write(self, piece: bytes) -> None:
        """Append bytes."""
        ...

    def keep(self, person: str, *, claimed: str, name: str) -> Attachment:
        """Turn the content into an attachment of this person, durably. `claimed` is the media type stated by the sender."""
        ...

    def close(self) -> None:
        """Discard the content unless it was kept. May be called repeatedly."""
        ...


class Blobs(Protocol):
    """All attachments of a home. A content is durable before its hash is returned; for a person who has not sent it, it does
    not exist."""

    async def keep(self, content: bytes, person: str) -> str:
        """Store a tool's output for a person and return its hexadecimal SHA-256. Raises StorageFailed."""
        ...

    async def store(self, content: bytes, person: str, *, claimed: str, name: str) -> Attachment:
        """Store a file that a person sent, with its stated media type and name, each or both empty. Raises StorageFailed."""
        ...

    def draft(self) -> BlobDraft:
        """Begin a content that arrives in pieces. Blocks; raises StorageFailed."""
        ...

    async def find(self, person: str, digest: str) -> Attachment | None:
        """Return the attachment that this person sent with a hash, or None. Raises StorageFailed."""
        ...

    async def settle(self, person: str, attachments: tuple[Attachment, ...]) -> None:
        """Mark attachments as used by a durable event, so that they are kept. Raises StorageFailed."""
        ...

    async def read(self, digest: str, convert: Callable[[bytes], bytes] = bytes) -> bytes:
        """Return the content of a hash, converted on a thread. Raises FileNotFoundError if it is missing or altered, or
        another OSError."""
        ...

    async def file(self, digest: str) -> Path | None:
        """Return a file with the content of a hash, which is sent as it is, or None. A store without files keeps a copy in
        one."""
        ...

    def fault(self, digest: str) -> str:
        """Return what is wrong with the content of a hash, to follow "it"; empty if nothing is. Blocks."""
        ...

    def remove_orphans(self, logs: LogReader, before: float) -> int:
        """Remove attachments from before a time, in seconds since the epoch, that no log refers to, and restore lost records
        of those that one does. Return the number of removed contents. Blocks; raises OSError or a SessionsError."""
        ...
