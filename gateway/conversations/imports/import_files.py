"""The files of imported messages: stored before the messages that name them are written."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Iterator
from typing import Protocol

import msgspec

from gateway.conversations.imports.branches import ImportSource
from gateway.conversations.imports.readers.import_values import (
    LeftOut,
    SourceCall,
    SourceConversation,
    SourceFile,
    SourceInvalid,
    SourceMessage,
)
from gateway.support.printable import sanitized_name
from sessions.events.messages import Attachment
from sessions.store.protocols import Blobs


class KeptFile(msgspec.Struct, frozen=True, kw_only=True):
    """A stored file, or the reason why it is left out; neither if it would be stored."""

    attachment: Attachment | None = None
    reason: str = ""


def fault_of_file(file: SourceFile, limit: int) -> str:
    """Return why a file is not stored; "" if it is."""
    if not file.content:
        return "empty"
    return f"larger than {limit:,} bytes (`gateway.attachment_bytes`)" if len(file.content) > limit else ""


class FileReader(Protocol):
    """Reads the files of a source."""

    def read(self, name: str, limit: int, /) -> bytes:
        """Return the content of a file. Raises SourceInvalid, also if it has more bytes than `limit`."""
        ...


class ImportFiles:
    """The files of imported messages in a home.

    Args:
        attachments: The attachments of the home.
        limit: Returns the maximum size of a file in bytes.
    """

    def __init__(self, attachments: Blobs, limit: Callable[[], int]) -> None:
        self._attachments = attachments
        self._limit = limit

    async def keep(self, source: ImportSource, file: SourceFile) -> KeptFile:
        """Store a file durably. Raises StorageFailed."""
        if fault := fault_of_file(file, self._limit()):
            return KeptFile(reason=fault)
        name = sanitized_name(file.name)
        return KeptFile(attachment=await self._attachments.store(file.content, source.person, claimed=file.media, name=name))

    async def owned(
        self, source: ImportSource, conversation: SourceConversation
    ) -> tuple[SourceConversation, tuple[Attachment, ...]]:
        """Return a conversation without the attachments that the person has not sent, and those that it has."""
        known = {each.sha256: each for message in conversation.messages for each in _attachments_of(message)}
        found: dict[str, Attachment] = {}
        for digest, each in known.items():
            if (stored := await self._attachments.find(source.person, digest)) is not None:
                found[digest] = msgspec.structs.replace(stored, name=sanitized_name(each.name))
        if not known:
            return conversation, ()

        def kept(attachments: tuple[Attachment, ...]) -> tuple[Attachment, ...]:
            return tuple(found[each.sha256] for each in attachments if each.sha256 in found)

        messages = tuple(
            msgspec.structs.replace(
                each,
                attachments=kept(each.attachments),
                calls=tuple(msgspec.structs.replace(call, attachments=kept(call.attachments)) for call in each.calls),
            )
            for each in conversation.messages
        )
        return msgspec.structs.replace(conversation, messages=messages), tuple(found.values())

    async def settle(self, source: ImportSource, attachments: tuple[Attachment, ...]) -> None:
        """Note that durable messages name these. Raises StorageFailed."""
        await self._attachments.settle(source.person, attachments)


def _attachments_of(message: SourceMessage) -> Iterator[Attachment]:
    yield from message.attachments
    for call in message.calls:
        yield from call.attachments


def has_files(conversation: SourceConversation) -> bool:
    """Return True if a message, or the result of a call, has files."""
    return any(each.files or any(call.files for call in each.calls) for each in conversation.messages)


class SourceFiles:
    """The files of a source on their way into the home.

    Args:
        reader: Reads them by their places; None if there are none.
        keep: Stores one, or says what would become of it.
    """

    def __init__(self, reader: FileReader | None, keep: Callable[[SourceFile], Awaitable[KeptFile]]) -> None:
        self._reader = reader
        self._keep = keep
        self.kept = 0
        self._left = Counter[str]()

    def left(self, name: str) -> list[LeftOut]:
        """Return the files of a conversation that were left out, and forget them."""
        left = [LeftOut(kind="files", reason=reason, name=name, count=count) for reason, count in self._left.items()]
        self._left.clear()
        return left

    async def stored(self, conversation: SourceConversation, missing: Collection[str]) -> SourceConversation:
        """Return a conversation whose `missing` messages have attachments instead of files; those of others are dropped.

        Raises StorageFailed, RequestFailed.
        """
        messages = []
        for message in conversation.messages:
            wanted = message.id in missing
            calls = [await self._of_call(call, wanted=wanted) for call in message.calls]
            attachments = await self._all(message.files) if wanted else ()
            messages.append(msgspec.structs.replace(message, files=(), attachments=attachments, calls=tuple(calls)))
        return msgspec.structs.replace(conversation, messages=tuple(messages))

    async def _of_call(self, call: SourceCall, *, wanted: bool) -> SourceCall:
        if not call.files:
            return call
        return msgspec.structs.replace(call, files=(), attachments=await self._all(call.files) if wanted else ())

    async def _all(self, files: tuple[SourceFile, ...]) -> tuple[Attachment, ...]:
        found = [await self._one(file) for file in files]
        return tuple(each for each in found if each is not None)

    async def _one(self, file: SourceFile) -> Attachment | None:
        try:
            content = file.content or await asyncio.to_thread(self._read, file.place)
        except SourceInvalid:
            self._left["that cannot be read"] += 1
            return None
        kept = await self._keep(msgspec.structs.replace(file, content=content, place=""))
        if kept.reason:
            self._left[kept.reason] += 1
        else:
            self.kept += 1
        return kept.attachment

    def _read(self, place: str) -> bytes:
        if self._reader is None:
            raise SourceInvalid(f"There is no file {place}.")
        return self._reader.read(place, LARGEST)


LARGEST = 40 * 1024 * 1024
"""Maximum bytes of a file that is read from a source."""
