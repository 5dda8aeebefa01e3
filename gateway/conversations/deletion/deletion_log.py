"""The log of deletions: `HOME/deletions.jsonl`, with ids, times and digests, and no text.

It has the line format of all logs (see docs/events.md). A deletion is recorded before anything is removed, and again when it
is finished: one that was interrupted is continued by the next start. What a person has confirmed by a command is recorded
before it is answered, since it begins only when the conversation is idle.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from functools import partial
from typing import TypeAlias

import msgspec

from sessions.events.events import MAIN_AGENT
from sessions.store.header import random_suffix
from sessions.store.lazy_log import LazyLog, LogFormat
from sessions.store.protocols import LogReader, Store
from sessions.store.reading import last_seq
from sessions.store.rewriting import rechained


def new_removal_id() -> str:
    """Return the id of a deletion, of an erasure, or of a request for one."""
    return random_suffix() + random_suffix()


class DeletedJournal(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a deleted conversation: the seq and the sum of its last event, 0 and empty if it could not be read."""

    session: str
    head: int
    sum: str


class SessionDeleted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="session_deleted"):
    """A conversation of a `person` with `agents` is to be deleted, as requested `by` somebody: its sessions, the attachments
    named there, and, if `facts` is True, the facts that came from it alone. `removal` is the request that it serves."""

    deletion: str
    person: str
    by: str
    sessions: tuple[DeletedJournal, ...]
    attachments: tuple[str, ...] = ()
    facts: bool = False
    agents: tuple[str, ...] = (MAIN_AGENT,)
    removal: str = ""

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the sessions."""
        return tuple(each.session for each in self.sessions)


class ErasedSession(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A session with content to erase: the seqs of the messages, and the seq up to which everything is erased."""

    session: str
    messages: tuple[int, ...] = ()
    upto: int = 0


class ErasureOrdered(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="erasure_ordered"):
    """Content of a `person`'s sessions is to be erased, as ordered `by` somebody. The `attachments` are those that the
    events named, the `facts` the ids of those that came from them. If `everything` is True, no session is named: all
    conversations of the person are erased, and what they have left elsewhere. `removal` is the request that it serves."""

    erasure: str
    person: str
    by: str
    sessions: tuple[ErasedSession, ...] = ()
    attachments: tuple[str, ...] = ()
    facts: tuple[str, ...] = ()
    everything: bool = False
    removal: str = ""


class RemovalRequested(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="removal_requested"
):
    """A `person` has confirmed a removal by a command.

    With a `message`, everything that came of this message of the session is erased, and nothing else. Otherwise the
    conversation with the session is deleted, with the facts that came from it if `facts` is True; if `erase` is True,
    everything that came of it is erased before that.
    """

    removal: str
    person: str
    session: str
    message: int = 0
    erase: bool = False
    facts: bool = False


class RemovalEnded(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="removal_ended"):
    """A request is not carried out any further: there is nothing to remove, or it failed permanently. Otherwise it ends with
    the event of the deletion or erasure that serves it."""

    removal: str


class ErasureFinished(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="erasure_finished"):
    """Everything was erased."""

    erasure: str


class DeletionFinished(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="deletion_finished"
):
    """Everything was removed; nothing, if `kept` is True: the conversation was continued after an interruption."""

    deletion: str
    kept: bool = False


Deletion: TypeAlias = SessionDeleted | DeletionFinished | ErasureOrdered | ErasureFinished | RemovalRequested | RemovalEnded
Unfinished: TypeAlias = Mapping[str, SessionDeleted | ErasureOrdered | RemovalRequested]


def fold_deletion(unfinished: Unfinished, event: Deletion, *, seq: int, at: str, turn: int | None, size: int) -> Unfinished:
    """Return the unfinished deletions, erasures and requests after one more event."""
    if isinstance(event, SessionDeleted | DeletionFinished):
        id_ = event.deletion
    elif isinstance(event, RemovalRequested | RemovalEnded):
        id_ = event.removal
    else:
        id_ = event.erasure
    left = {known: each for known, each in unfinished.items() if known != id_}
    if isinstance(event, SessionDeleted | ErasureOrdered):
        served = left.pop(event.removal, None)
        if isinstance(served, RemovalRequested) and isinstance(event, ErasureOrdered) and not served.message:
            left[served.removal] = msgspec.structs.replace(served, erase=False, facts=True)  # the deletion is left to do
    return {**left, id_: event} if isinstance(event, SessionDeleted | ErasureOrdered | RemovalRequested) else left


DELETIONS: LogFormat[Deletion, Unfinished] = LogFormat(
    name="deletions",
    events=(SessionDeleted, DeletionFinished, ErasureOrdered, ErasureFinished, RemovalRequested, RemovalEnded),
    empty={},
    fold=fold_deletion,
)


async def record_end(log: LazyLog[Deletion, Unfinished], order: ErasureOrdered) -> None:
    """Remove the hashes of an erasure's attachments from the log, since whoever guesses a short content could confirm it by
    them, and record the end of the erasure durably. Raises StorageFailed, JournalDamaged."""
    if order.attachments:  # before the end: an erasure that has ended is not carried out again
        await log.rewrite(lambda lines: rechained(lines, partial(_without_attachments, order.erasure)))
    async with log.writing() as writer:
        await writer.append_durable(ErasureFinished(erasure=order.erasure))


def _without_attachments(erasure: str, line: bytes) -> bytes:
    if b'"kind":"erasure_ordered"' not in line or erasure.encode() not in line:
        return line
    fields = msgspec.json.decode(line)
    fields.pop("attachments", None)
    return msgspec.json.encode(fields) + b"\n"


async def finish_removals(logs: LogReader, store: Store, forget: Callable[[Collection[str]], None]) -> None:
    """Remove the sessions of interrupted deletions before the catalog is opened, which would report their journals as lost.

    Args:
        logs: The logs of the home, with that of the deletions.
        store: The logs of the sessions.
        forget: Removes sessions from the catalog, on a thread.

    Raises:
        SessionsError, InvalidLine: The log cannot be read, or something cannot be removed.
    """
    if await asyncio.to_thread(logs.stamp, DELETIONS.name) is None:
        return
    for deletion in (await asyncio.to_thread(DELETIONS.read, logs)).values():
        if isinstance(deletion, SessionDeleted) and await remove_journals(store, deletion):
            await asyncio.to_thread(forget, deletion.ids)


async def remove_journals(store: Store, deletion: SessionDeleted) -> bool:
    """Remove the journals of a deletion. Return False, and remove none, if the conversation was continued after the deletion
    was recorded: whoever requested it was told that it failed, or nothing. Raises StorageFailed."""
    if await asyncio.to_thread(was_continued, store, deletion):
        return False
    for journal in deletion.sessions:
        if not await store.remove(journal.session, upto=journal.head):  # another gateway has just appended to it
            return False
    return True


def was_continued(logs: LogReader, deletion: SessionDeleted) -> bool:
    """Return True if a journal has grown since its deletion was recorded. Blocks; raises StorageFailed."""
    return any(0 < each.head < last_seq(logs, each.session) for each in deletion.sessions)
