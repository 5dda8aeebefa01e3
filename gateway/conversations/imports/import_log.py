"""Where imported conversations are in the home, and which were deleted. Everything blocks, and nothing is written."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gateway.conversations.deletion.deletion_log import DELETIONS, SessionDeleted
from gateway.conversations.imports.branches import ExistingBranch, ImportSource, times_of
from gateway.conversations.imports.readers.import_values import SourceConversation, SourceMessage
from sessions.events.events import (
    ImportOrigin,
    MessageImported,
    ReplyImported,
    SessionArchived,
    SessionForked,
    SessionOpened,
    SessionTitled,
    SettingChanged,
    ToolReturned,
    UnknownEvent,
)
from sessions.store.lazy_log import LogFormat
from sessions.store.protocols import LogReader
from sessions.store.reading import StoredLog


def _fold(
    deleted: frozenset[str], event: SessionDeleted, *, seq: int, at: str, turn: int | None, size: int
) -> frozenset[str]:
    return deleted | set(event.ids)


DELETED: LogFormat[SessionDeleted, frozenset[str]] = LogFormat(
    name=DELETIONS.name, events=(SessionDeleted,), empty=frozenset(), fold=_fold
)
"""The ids of all sessions that were ever deleted, from the log of deletions."""


class KnownConversation(msgspec.Struct, frozen=True, kw_only=True):
    """What the home has of a conversation: its sessions, or that it was `deleted`. `taken` is True if its id belongs to
    another session."""

    existing: tuple[ExistingBranch, ...] = ()
    deleted: bool = False
    taken: bool = False


def began_at(conversation: SourceConversation, first: Iterable[SourceMessage]) -> str:
    """Return the time at which a conversation began, of whose branches one is `first`."""
    return conversation.at or times_of(list(first), "")[0]


def known_conversation(
    logs: LogReader, source: ImportSource, conversation: SourceConversation, began: str, deleted: frozenset[str]
) -> KnownConversation:
    """Find the sessions of a conversation. Raises JournalDamaged, StorageFailed, UnknownSession."""
    root = source.session(conversation.id, began)
    if root in deleted:
        return KnownConversation(deleted=True)
    if logs.stamp(root) is None:
        return KnownConversation()
    origin = ImportOrigin(program=source.program, conversation=conversation.id)
    found = [_read(logs, root, origin)]
    for message in conversation.messages:
        session = source.session(conversation.id, message.at or began, message.id)
        if logs.stamp(session) is not None:
            found.append(_read(logs, session, origin))
    known = tuple(each for each in found if each is not None)
    return KnownConversation(existing=known, taken=len(known) < len(found))


def _read(logs: LogReader, session: str, origin: ImportOrigin) -> ExistingBranch | None:
    """Read a session; None if it was not imported from there."""
    key, used, ours, titled, archived = "", False, False, False, False
    messages: dict[str, int] = {}
    last, lacking = "", 0
    for recorded in StoredLog(logs, session).events():
        match recorded.event:
            case SessionOpened() as opened:
                key, ours = opened.key, opened.imported == origin
            case SessionForked() as forked:
                key = forked.key
            case MessageImported(id=last):
                messages[last], lacking = recorded.seq, 0
            case ReplyImported(id=last, calls=calls):
                messages[last], lacking = recorded.seq, len(calls)
            case ToolReturned() if lacking and recorded.turn is None:
                messages[last], lacking = recorded.seq, lacking - 1
            case SessionTitled():
                titled = True
            case SessionArchived():
                archived = True
            case event:
                used = used or not isinstance(event, SettingChanged | UnknownEvent)
    if not ours:
        return None
    ids, seqs = tuple(messages), tuple(messages.values())
    return ExistingBranch(
        session=session,
        key=key,
        messages=ids,
        seqs=seqs,
        used=used,
        titled=titled,
        archived=archived,
        lacking=lacking,
    )
