"""The memory as a slash command sees it and may change it, with the rights of its sender in that chat; and reports on it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime

from gateway.conversations.commands.command_services import CommandServices
from gateway.conversations.notes.appending import NoteNotWritten
from gateway.conversations.routing.conversation import Conversation
from gateway.conversations.turn.inbox import WaitingCommand
from gateway.support.errors import GatewayError, sentence_of
from gateway.support.session_status import count_of, span
from plugins.api.command import CommandFailed, MemoryMatches, MemoryReport, NoteEntry
from plugins.api.fact_values import FactsError
from plugins.api.memory.scope import Scope
from plugins.api.plugin_services import IndexUnusable
from plugins.facts.facts import Facts
from plugins.facts.persons_facts import PersonsFacts
from plugins.memory.memory import Memory
from plugins.memory.memory_tools import LINES
from plugins.memory.search.diagnostics import found_without_vectors, how_found, remarks_on
from plugins.memory.sources.notes import Notes
from plugins.memory.sources.transcripts import Transcripts, document_of
from plugins.support.errors import ProviderError
from plugins.support.workspace import own_note

LATEST = 5
"""Notes that are listed, the most recently changed ones."""


@contextmanager
def as_command_failure() -> Iterator[None]:
    """Raise expected errors as CommandFailed, for the person who typed the command."""
    try:
        yield
    except (FactsError, GatewayError, IndexUnusable, NoteNotWritten, ProviderError) as error:
        raise CommandFailed(sentence_of(error)) from error


class MemoryView:
    """The memory part of a `ConversationView`."""

    def __init__(self, services: CommandServices, waiting: WaitingCommand, conversation: Conversation) -> None:
        self._services = services
        self._waiting = waiting
        self._conversation = conversation

    @property
    def person(self) -> str:
        return self._waiting.message.sender

    async def remember(self, text: str) -> str:
        with as_command_failure():
            return await self._services.memory_writer.remember(text, self.person, group=self._group)

    async def forget_lines(self, place: str) -> str:
        with as_command_failure():
            return await self._services.memory_writer.forget(place, self.person, group=self._group)

    async def memory(self) -> MemoryReport:
        services = self._services
        now = services.clock.now().astimezone(services.settings.zone)
        return await memory_report(services.memory, services.memory_writer.notes, now, self._scope)

    async def search_memory(self, query: str) -> MemoryMatches:
        with as_command_failure():
            found = await self._services.memory.search(query, self._scope)
        return MemoryMatches(
            hits=tuple((hit.citation, hit.chunk.text) for hit in found.hits),
            remarks=found.remarks,
            conversations=tuple(
                hit.chunk.headings[0] if hit.chunk.source == Transcripts.name and hit.chunk.headings else ""
                for hit in found.hits
            ),
        )

    async def excerpt(self, path: str, first: int, lines: int) -> str:
        found = await self._services.memory.excerpt(own_note(self.person, path), first, min(lines, LINES), self._scope)
        return found or ""

    @property
    def facts(self) -> PersonsFacts:
        return PersonsFacts(self._services.facts, self.person, group=self._group)

    async def distill(self) -> tuple[int, int]:
        extraction, conversation = self._services.fact_extraction, self._conversation
        with as_command_failure():
            return await extraction.distill(self.person, conversation.models.choice, conversation.session)

    async def message(self, session: str, seq: int) -> str:
        return await self._services.memory.excerpt(document_of(session), seq, 1, self._scope) or ""

    @property
    def _scope(self) -> Scope:
        notes = self._services.settings.rights_of(self.person).notes
        return Scope.of_person(self.person, group=self._group, notes=notes)

    @property
    def _group(self) -> bool:
        return self._waiting.message.chat == "group"


async def memory_report(memory: Memory, notes: Notes, now: datetime, scope: Scope) -> MemoryReport:
    """Return the state of the memory for a scope; `now` is in the configured time zone."""
    await memory.refresh()
    state, provider = memory.state, memory.provider()
    entries = await asyncio.to_thread(_entries, notes, now, scope)
    return MemoryReport(
        notes=(len(entries) if Notes.name in state.by_source else 0) + state.by_source.get("extra", 0),
        sessions=state.by_source.get("sessions", 0),
        chunks=state.chunks,
        how=how_found(f"{provider.name}:{provider.model()}" if provider else "", by_words=memory.by_words),
        latest=tuple(entries[:LATEST]),
        remarks=tuple(remarks_on(state, scope, by_vectors=provider is not None, missed="", by_words=memory.by_words)),
        today=now.date(),
    )


def memory_in_short(memory: Memory) -> str:
    """Return the size of the memory and its search methods, in one line."""
    state, provider = memory.state, memory.provider()
    if state.checked_at is None:
        return "not indexed yet"
    sessions = state.by_source.get("sessions", 0)
    what = f"{count_of(state.documents - sessions, 'note')} and {count_of(sessions, 'session')}"
    chunks = count_of(state.chunks, "chunk")
    if provider is None:
        return f"{what} in {chunks}, {found_without_vectors(by_words=memory.by_words)}"
    some = f"{state.chunks - state.unembedded:,} of " if state.unembedded else ""
    return f"{what} in {some}{chunks} with vectors by {provider.name}:{provider.model()}"


def facts_in_short(facts: Facts, owner: str, why_not: str) -> str:
    """Return the number of this person's facts, and why no more are extracted, in one line."""
    listed = facts.listed_if_open(owner)
    if listed is None:
        return "not read yet"
    daily, pins = sum(fact.layer == "daily" for fact in listed), sum(fact.pinned for fact in listed)
    counts = f"{daily:,} daily, {len(listed) - daily:,} long-term, {pins:,} pinned" if listed else "none yet"
    return f"{counts}; no facts are extracted: {why_not}" if why_not else counts


def _entries(notes: Notes, now: datetime, scope: Scope) -> list[NoteEntry]:
    """Return the notes in the scope, the most recently changed first."""
    entries = []
    for path, stamp in notes.list_documents({}).stamps.items():
        nanoseconds, size = map(int, stamp.split(".")[:2])
        if scope.reads(path):
            entries.append((nanoseconds, path, size))
    return [
        NoteEntry(path=path, bytes=size, changed=f"{span(_seconds_since(nanoseconds, now))} ago")
        for nanoseconds, path, size in sorted(entries, reverse=True)
    ]


def _seconds_since(nanoseconds: int, now: datetime) -> float:
    return (now - datetime.fromtimestamp(nanoseconds / 1e9, UTC)).total_seconds()
