"""References to attachments in a log: in its messages, and in tool outputs too long for a line."""

from __future__ import annotations

import re
from collections.abc import Iterator

import msgspec

from sessions.events.codec import InvalidLine, decode
from sessions.events.events import Event, MessageImported, MessageReceived, ToolReturned, UnknownEvent
from sessions.events.file_types import PLAIN
from sessions.events.messages import Attachment
from sessions.store.protocols import START, Blobs, Lines

_MARKS = (b'"attachments":[{"', b'"whole":"', b'"changes":[{"')
"""Every line that refers to an attachment contains one of these; inside a text the quotation marks would be escaped."""
_DIGEST = re.compile(rb'"(?:sha256|whole|before)":"([0-9a-f]{64})"')


class AttachmentReference(msgspec.Struct, frozen=True):
    """An attachment, and the seq of the event that refers to it."""

    seq: int
    attachment: Attachment


def references_in(lines: Lines) -> Iterator[AttachmentReference]:
    """Yield the attachments that a log refers to, in order. Invalid lines are skipped. Blocks."""
    for line in _naming_lines(lines):
        try:
            recorded = decode(line)
        except InvalidLine:
            continue
        yield from (AttachmentReference(recorded.seq, attachment) for attachment in attachments_of_event(recorded.event))


def attachments_of_event(event: Event | UnknownEvent) -> Iterator[Attachment]:
    """Yield the attachments that an event refers to."""
    match event:
        case MessageReceived(attachments=attachments) | MessageImported(attachments=attachments):
            yield from attachments
        case ToolReturned():
            yield from _kept_by(event)


def _kept_by(event: ToolReturned) -> Iterator[Attachment]:
    """Yield what is kept of a tool's result: its complete output, its files, and what it replaced in other files."""
    if event.whole is not None:
        yield Attachment(sha256=event.whole, media=PLAIN, bytes=event.cut_from or 0)
    yield from event.attachments
    for change in event.changes:
        if change.before is not None:
            yield Attachment(sha256=change.before, media=PLAIN, bytes=0, name=change.path)


def digests_in(lines: Lines) -> set[str]:
    """Return the hashes in a log, including those in damaged lines. Blocks."""
    return {found.decode() for line in _naming_lines(lines) for found in _DIGEST.findall(line)}


class AttachmentFault(msgspec.Struct, frozen=True, kw_only=True):
    """An attachment that differs from its reference: the seq of the event, and the fault."""

    seq: int
    sha256: str
    name: str
    reason: str


def check_attachments(lines: Lines, blobs: Blobs, known: dict[str, str]) -> Iterator[AttachmentFault]:
    """Yield the faults of the attachments that a log refers to. Blocks.

    Args:
        lines: The log.
        blobs: The attachments.
        known: Results by hash, updated by this function, so that an attachment of several journals is read only once.
    """
    for named in references_in(lines):
        digest = named.attachment.sha256
        if digest not in known:
            known[digest] = blobs.fault(digest)
        if reason := known[digest]:
            yield AttachmentFault(seq=named.seq, sha256=digest, name=named.attachment.name, reason=reason)


def _naming_lines(lines: Lines) -> Iterator[bytes]:
    for line in lines.forward(START):
        if any(mark in line for mark in _MARKS):
            yield line
