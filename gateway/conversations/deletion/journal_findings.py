"""The plan of a deletion, and what the journals say about other places that hold something of the conversation."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress

import msgspec

from gateway.conversations.deletion.deletion_log import DeletedJournal, SessionDeleted, new_removal_id
from sessions.attachments.attachment_refs import digests_in
from sessions.events.codec import InvalidLine, decode, is_complete_line, seq_of
from sessions.events.errors import JournalDamaged, SessionsError, UnknownSession
from sessions.events.events import (
    ApprovalGiven,
    ContextCompacted,
    MemoryFlushed,
    NoteAppended,
    ReplyDelivered,
    ToolCalled,
    kind_of,
)
from sessions.store.protocols import START, LogReader

_MARKS = tuple(
    b'"kind":"%s"' % kind_of(kind).encode()
    for kind in (NoteAppended, MemoryFlushed, ContextCompacted, ReplyDelivered, ApprovalGiven, ToolCalled)
)
_HEAD = 128
"""Bytes at the start of a line that contain its kind."""


def sessions_citing(logs: LogReader, sessions: Iterable[str], documents: Iterable[str]) -> int:
    """Return the number of these sessions in which the memory's `documents` were found. Blocks."""
    marks = [document.encode() for document in documents]
    found = 0
    for session in sessions:
        with suppress(SessionsError), logs.read(session) as lines:
            found += any(any(mark in line for mark in marks) for line in lines.forward(START))
    return found


class JournalFindings(msgspec.Struct, kw_only=True):
    """The findings of several journals: the notes that were written from them, the channels on which answers were delivered,
    whether tools ran and whether calls were approved for always; the attachments; and the total size in bytes."""

    notes: set[str] = msgspec.field(default_factory=set)
    channels: set[str] = msgspec.field(default_factory=set)
    tools: bool = False
    rules: bool = False
    attachments: set[str] = msgspec.field(default_factory=set)
    size: int = 0

    def add(self, logs: LogReader, session: str) -> tuple[int, str]:
        """Add the findings of a journal, as far as it is there and undamaged; return the seq and the sum of its last line.
        Blocks. Raises StorageFailed."""
        head, last = 0, b""
        with suppress(UnknownSession, JournalDamaged), logs.read(session) as lines:
            self.size += lines.size
            for line in lines.forward(START):
                if is_complete_line(line):
                    last = line
                if any(line.find(mark, 0, _HEAD) >= 0 for mark in _MARKS):
                    with suppress(InvalidLine):
                        self._read(line)
            self.attachments |= digests_in(lines)
            with suppress(InvalidLine):
                head = seq_of(last)
        return head, last[-19:-3].decode("ascii", "replace")

    def _read(self, line: bytes) -> None:
        match decode(line).event:
            case NoteAppended(path=path) | MemoryFlushed(path=path) | ContextCompacted(path=path) if path:
                self.notes.add(path)
            case ReplyDelivered(channel=channel):
                self.channels.add(channel)
            case ToolCalled():
                self.tools = True
            case ApprovalGiven(scope="always", decision="approve"):
                self.rules = True


def planned_deletion(
    logs: LogReader, sessions: Sequence[str], *, person: str, by: str, facts: bool
) -> tuple[SessionDeleted, JournalFindings]:
    """Return the event that records a deletion, and the findings of the journals. Blocks; raises StorageFailed."""
    findings, journals = JournalFindings(), []
    for session in sessions:
        head, digest = findings.add(logs, session)
        journals.append(DeletedJournal(session=session, head=head, sum=digest))
    event = SessionDeleted(
        deletion=new_removal_id(),
        person=person,
        by=by,
        sessions=tuple(journals),
        attachments=tuple(sorted(findings.attachments)),
        facts=facts,
    )
    return event, findings
