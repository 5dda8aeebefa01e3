"""Deletes conversations: records the deletion durably, then removes everything that they have left, in steps that can be
repeated after an interruption at any moment."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from functools import partial
from types import TracebackType
from typing import Self

import msgspec
import structlog

from gateway.conversations.deletion.deletion_log import (
    DELETIONS,
    DeletionFinished,
    ErasureOrdered,
    RemovalEnded,
    RemovalRequested,
    SessionDeleted,
    record_end,
    remove_journals,
)
from gateway.conversations.deletion.journal_findings import JournalFindings, planned_deletion, sessions_citing
from gateway.conversations.search.conversation_search import ConversationSearch, SearchUnavailable
from gateway.support.errors import Busy, error_fields, sentence_of
from gateway.support.session_status import count_of
from plugins.api.fact_values import FactsError, NoSuchFact
from plugins.api.plugin_services import IndexUnusable
from plugins.facts.facts import Facts
from plugins.memory.memory import Memory
from plugins.memory.sources.transcripts import document_of
from sessions.events.errors import SessionsError
from sessions.store.catalog import Catalog, SessionRow
from sessions.store.lazy_log import LazyLog
from sessions.store.protocols import Blobs, Store

UNKNOWN_COPIES = "Copies that were made of the gateway's home, such as backups, are unchanged."
"""The sentence about copies that the gateway does not know."""

NAMED = 5
"""The number of notes and forks that are named; the others are counted."""

log = structlog.get_logger("exuvia.deletions")


class RemovedCounts(msgspec.Struct, frozen=True, kw_only=True):
    """What was removed: sessions, bytes of journals and attachments, attachments, chunks of the index, and facts."""

    sessions: int
    bytes: int
    attachments: int
    chunks: int
    facts: int


class DeletedConversation(msgspec.Struct, frozen=True, kw_only=True):
    """A deleted conversation: what was removed, and what remains elsewhere, as sentences for the person."""

    removed: RemovedCounts
    remains: tuple[str, ...]


class BegunDeletion(msgspec.Struct, frozen=True, kw_only=True):
    """A recorded deletion, and what was found about other places before anything was removed."""

    event: SessionDeleted
    findings: JournalFindings = msgspec.field(default_factory=JournalFindings)
    remains: tuple[str, ...] = ()

    def removed(self, size: int = 0, *, attachments: int = 0, chunks: int = 0, facts: int = 0) -> RemovedCounts:
        """Return the counts; `size` is that of the removed attachments."""
        journals, sessions = self.findings.size, len(self.event.sessions)
        return RemovedCounts(sessions=sessions, bytes=journals + size, attachments=attachments, chunks=chunks, facts=facts)


class Deletions:
    """The deletions of a home, as an async context manager.

    Args:
        store: The logs of the sessions.
        root: The store of the deletions' log.
        catalog: The catalog of the sessions.
        attachments: The attachments.
        knowledge: Returns the memory of an agent, whose index has texts of the sessions, and its facts, some of which come
            from sessions.
        search: The search, whose index has the messages of the sessions.
        scheduled: Returns the number of schedules in a person's conversation with a key; may raise Busy.
        note_in_backups: Writes the log beside the backups, and returns what they have, as sentences. Blocks; may raise
            SessionsError or OSError.
        now: Returns the current time in UTC.
    """

    def __init__(
        self,
        store: Store,
        root: Store,
        catalog: Catalog,
        *,
        attachments: Blobs,
        knowledge: Callable[[str], Awaitable[tuple[Memory, Facts]]],
        search: ConversationSearch,
        scheduled: Callable[[str, str], Awaitable[int]],
        note_in_backups: Callable[[], tuple[str, ...]],
        now: Callable[[], datetime],
    ) -> None:
        self._store = store
        self._root = root
        self._catalog = catalog
        self._attachments = attachments
        self._knowledge = knowledge
        self._search = search
        self._scheduled = scheduled
        self._note_in_backups = note_in_backups
        self._log = LazyLog(DELETIONS, root, now, unusable="No conversation can be deleted")
        self._unfinished = 0

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._log.close()

    def problems(self) -> list[str]:
        """Return sentences about a log that cannot be used, and deletions that could not be finished."""
        found = [self._log.problem] if self._log.problem else []
        if self._unfinished:
            found.append("A deletion could not be finished; the next start tries again. The log has the reason.")
        return found

    async def begin(self, rows: Sequence[SessionRow], by: str, *, facts: bool, removal: str = "") -> BegunDeletion:
        """Record durably that the sessions of a conversation, which is closed, are to be deleted. `removal` is the request
        that this serves. Raises StorageFailed."""
        person, sessions = rows[0].person, [row.session for row in rows]
        plan = partial(planned_deletion, self._store, sessions, person=person, by=by, facts=facts)
        event, findings = await asyncio.to_thread(plan)
        event = msgspec.structs.replace(event, agents=tuple(sorted({row.agent for row in rows})), removal=removal)
        remains = _remains(findings, await self._catalog.every(person), rows) + await self._schedules(person, rows[0].key)
        async with self._log.writing() as writer:
            await writer.append_durable(event)
        log.info("conversation_deleted", deletion=event.deletion, sessions=len(rows), by=by)
        return BegunDeletion(event=event, findings=findings, remains=remains)

    async def remove_sessions(self, begun: BegunDeletion) -> bool:
        """Remove the journals, and everything that the catalog has of them. Return False if the conversation was continued
        after the deletion was recorded; then it is kept, and the deletion is over. Raises StorageFailed."""
        if await remove_journals(self._store, begun.event):
            await self._catalog.remove(begun.event.ids)
            return True
        async with self._log.writing() as writer:
            await writer.append_durable(DeletionFinished(deletion=begun.event.deletion, kept=True))
        log.warning("deletion_not_continued", deletion=begun.event.deletion, reason="The conversation goes on.")
        return False

    async def finish(self, begun: BegunDeletion) -> DeletedConversation:
        """Remove what others have of removed sessions, and record that the deletion is finished. Raises StorageFailed."""
        event, remains = begun.event, list(begun.remains)
        others = [row.session for row in await self._catalog.every(event.person)]
        try:
            attachments, size = await asyncio.to_thread(
                self._attachments.release, event.person, event.attachments, self._store, others
            )
            documents = [document_of(session) for session in event.ids]
            known = [await self._knowledge(agent) for agent in event.agents]
            chunks = sum([await memory.purge(documents) for memory, _ in known])
            await self._search.remove(event.ids)
            citing = await asyncio.to_thread(sessions_citing, self._store, others, documents)
            facts = sum([await _forget_facts(each, event, remains) for _, each in known])
        except (SessionsError, OSError, IndexUnusable, FactsError, SearchUnavailable) as error:
            self._unfinished += 1
            log.error("deletion_not_finished", deletion=event.deletion, reason=sentence_of(error))
            remains.append(
                f"The deletion could not be finished ({sentence_of(error).rstrip('.')}); the next start tries again."
            )
            return DeletedConversation(removed=begun.removed(), remains=tuple(remains))
        if citing:
            remains.append(f"Passages of it that the memory found for {count_of(citing, 'other session')}.")
        if not all(memory.erases for memory, _ in known):
            remains.append("The backend of the memory decides when removed texts leave its files.")
        async with self._log.writing() as writer:
            await writer.append_durable(DeletionFinished(deletion=event.deletion))
        remains += await self.in_copies()
        removed = begun.removed(size, attachments=attachments, chunks=chunks, facts=facts)
        return DeletedConversation(removed=removed, remains=tuple(remains))

    async def in_copies(self) -> tuple[str, ...]:
        """Write the log beside the known backups, and return what copies of the home have, as sentences."""
        try:
            known = await asyncio.to_thread(self._note_in_backups)
        except (SessionsError, OSError) as error:
            known = (f"The backups could not be told: {sentence_of(error)}",)
        return (*known, UNKNOWN_COPIES)

    @asynccontextmanager
    async def carrying_out(self, order: ErasureOrdered) -> AsyncIterator[None]:
        """Keep the other gateways of a database from carrying out an erasure while the block runs. Raises StorageFailed if
        one of them does so."""
        async with self._root.exclusive(f"{DELETIONS.name}/{order.erasure}"):
            yield

    async def is_unfinished(self, order: ErasureOrdered) -> bool:
        """Return True if a recorded erasure was not finished, here or by another gateway. Raises StorageFailed."""
        async with self._log.writing() as writer:
            return order.erasure in writer.state

    async def record(self, order: ErasureOrdered) -> None:
        """Record the order of an erasure durably. Raises StorageFailed."""
        async with self._log.writing() as writer:
            await writer.append_durable(order)

    async def erasure_finished(self, order: ErasureOrdered) -> None:
        """Record the end of an erasure durably. Raises StorageFailed."""
        await record_end(self._log, order)

    async def unfinished_erasures(self) -> list[ErasureOrdered]:
        """Return the erasures that were ordered and are not finished. Raises StorageFailed."""
        return [each for each in (await self._log.durable_state()).values() if isinstance(each, ErasureOrdered)]

    async def request(self, asked: RemovalRequested) -> None:
        """Record durably what a person has confirmed. Raises StorageFailed."""
        async with self._log.writing() as writer:
            await writer.append_durable(asked)

    async def request_ended(self, removal: str) -> None:
        """Record durably that a request is not to be carried out, unless it was. Raises StorageFailed."""
        async with self._log.writing() as writer:
            if removal in writer.state:
                await writer.append_durable(RemovalEnded(removal=removal))

    async def requests(self) -> dict[str, RemovalRequested]:
        """Return what is left to do of requests, by their ids. Raises StorageFailed."""
        state = await self._log.durable_state()
        return {removal: each for removal, each in state.items() if isinstance(each, RemovalRequested)}

    def not_finished(self, event: ErasureOrdered, error: Exception) -> None:
        """Report an erasure that could not be finished."""
        self._unfinished += 1
        log.error("erasure_not_finished", erasure=event.erasure, reason=sentence_of(error))

    async def resume(self) -> None:
        """Finish the deletions that the last stop interrupted."""
        with suppress(SessionsError):  # `problems` has the reason
            for event in tuple((await self._log.durable_state()).values()):
                if not isinstance(event, SessionDeleted):
                    continue
                try:
                    begun = BegunDeletion(event=event)
                    if await self.remove_sessions(begun):
                        await self.finish(begun)
                except Exception as error:  # the next start tries again
                    self._unfinished += 1
                    log.error("deletion_not_finished", deletion=event.deletion, **error_fields(error))

    async def _schedules(self, person: str, key: str) -> tuple[str, ...]:
        """Return a sentence about the schedules of a conversation, if there are any."""
        with suppress(Busy):  # `Problems` has the reason
            if count := await self._scheduled(person, key):
                return (f"{count_of(count, 'schedule')} with messages for it; `/schedule` lists them.",)
        return ()


async def _forget_facts(known: Facts, event: SessionDeleted, remains: list[str]) -> int:
    """Forget the facts that came from the sessions if that was requested, except pinned ones; return their number."""
    if known.is_empty:
        return 0
    facts = (await known.book()).facts.values()
    own = [fact for fact in facts if fact.origin is not None and fact.origin.session in event.ids]
    forgotten = 0
    for fact in own if event.facts else ():
        if not fact.pinned:
            with suppress(NoSuchFact):  # forgotten with another one
                await known.forget(fact.id, event.by, owner=None)
            forgotten += 1
    if kept := len(own) - forgotten:
        remains.append(f"{count_of(kept, 'fact')} that came from it; `/memory` lists them.")
    if forgotten:
        remains.append("The log of the facts keeps the history of those that were forgotten.")
    return forgotten


def _remains(findings: JournalFindings, every: Sequence[SessionRow], deleted: Sequence[SessionRow]) -> tuple[str, ...]:
    """Return what stays elsewhere, as sentences."""
    gone, by_id = {row.session for row in deleted}, {row.session: row for row in every}
    copies = sorted({row.key for row in every if row.session not in gone and _continues(row, gone, by_id)})
    parents = {row.origin.session for row in deleted if row.origin} & (by_id.keys() - gone)
    sentences = []
    if copies:
        sentences.append(f"Forks that hold a copy of its beginning: {_named(copies)}.")
    if parents:
        names = sorted({by_id[parent].key for parent in parents})
        sentences.append(f"It was forked from {_named(names)}, which holds the beginning that they share.")
    if findings.notes:
        sentences.append(f"Notes that were written from it: {_named(sorted(findings.notes))}.")
    if findings.tools:
        sentences.append("Files of the workspace that its tools have written.")
    if findings.rules:
        sentences.append("Approvals that were given for always; `/approvals` lists them.")
    if findings.channels:
        sentences.append(f"Answers that were delivered over {_named(sorted(findings.channels))}.")
    return tuple(sentences)


def _continues(row: SessionRow, gone: set[str], by_id: dict[str, SessionRow]) -> bool:
    """Return True if a session is a fork of a deleted one, or a fork of such a fork."""
    seen = set[str]()
    while row.origin is not None and row.session not in seen:
        if row.origin.session in gone:
            return True
        seen.add(row.session)
        if (parent := by_id.get(row.origin.session)) is None:
            return False
        row = parent
    return False


def _named(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMED} more" if len(names) > NAMED else ""
    return ", ".join(names[:NAMED]) + more
