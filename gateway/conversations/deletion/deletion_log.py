"""The log of deletions: `HOME/deletions.jsonl`, with ids, times and digests, and no text.

It has the line format of all logs (see docs/events.md). A deletion is recorded before anything is removed, and again when it
is finished: one that was interrupted is continued by the next start.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from typing import TypeAlias

import msgspec

from sessions.store.lazy_log import LogFormat
from sessions.store.protocols import LogReader, Store


class DeletedJournal(msgspec.Struct, frozen=True, kw_only=True):
    """A session of a deleted conversation: the seq and the sum of its last event, 0 and empty if it could not be read."""

    session: str
    head: int
    sum: str


class SessionDeleted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="session_deleted"):
    """A conversation of a `person` is to be deleted, as requested `by` somebody: its sessions, the attachments named there,
    and, if `facts` is True, the facts that came from it alone."""

    deletion: str
    person: str
    by: str
    sessions: tuple[DeletedJournal, ...]
    attachments: tuple[str, ...] = ()
    facts: bool = False

    @property
    def ids(self) -> tuple[str, ...]:
        """The ids of the sessions."""
        return tuple(each.session for each in self.sessions)


class DeletionFinished(msgspec.Struct, frozen=True, kw_only=True, tag_field="kind", tag="deletion_finished"):
    """Everything was removed."""

    deletion: str


Deletion: TypeAlias = SessionDeleted | DeletionFinished
Unfinished: TypeAlias = Mapping[str, SessionDeleted]


def fold_deletion(unfinished: Unfinished, event: Deletion, *, seq: int, at: str, turn: int | None, size: int) -> Unfinished:
    """Return the unfinished deletions after one more event."""
    others = {id_: each for id_, each in unfinished.items() if id_ != event.deletion}
    return {**others, event.deletion: event} if isinstance(event, SessionDeleted) else others


DELETIONS: LogFormat[Deletion, Unfinished] = LogFormat(
    name="deletions", events=(SessionDeleted, DeletionFinished), empty={}, fold=fold_deletion
)


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
        for session in deletion.ids:
            await store.remove(session)
            await asyncio.to_thread(forget, (session,))
