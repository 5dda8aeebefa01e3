"""What `/memory` shows: what is remembered, and what was found."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from gateway.commands.status import count_of, span
from plugins.command_contract import MemoryFound, MemoryReport, NoteEntry
from plugins.facts.facts import Facts
from plugins.memory.memory import Memory
from plugins.memory.notes import MAIN, Notes
from plugins.memory.remarks import remarks_on
from plugins.memory.scope import Scope

LATEST = 5
"""Notes that are listed, those that changed last."""


async def memory_report(memory: Memory, notes: Notes, now: datetime, *, private: bool) -> MemoryReport:
    """What there is; `MEMORY.md` is listed in private chats only."""
    await memory.look()
    state, provider = memory.state, memory.provider()
    latest = await asyncio.to_thread(_latest, notes, now, private=private)
    sessions = state.by_source.get("sessions", 0)
    return MemoryReport(
        notes=state.documents - sessions,
        sessions=sessions,
        chunks=state.chunks,
        how=f"by words and by meaning ({provider.name}:{provider.model()})" if provider else "by words",
        latest=latest,
        remarks=tuple(remarks_on(state, by_vectors=provider is not None, missed="", by_words=True)),
    )


def memory_in_short(memory: Memory) -> str:
    """What can be found and how, in one line."""
    state, provider = memory.state, memory.provider()
    if state.at is None:
        return "not looked at yet"
    sessions = state.by_source.get("sessions", 0)
    what = f"{count_of(state.documents - sessions, 'note')} and {count_of(sessions, 'session')}"
    chunks = count_of(state.chunks, "chunk")
    if provider is None:
        return f"{what} in {chunks}, found by their words"
    some = f"{state.chunks - state.unembedded:,} of " if state.unembedded else ""
    return f"{what} in {some}{chunks} with vectors by {provider.name}:{provider.model()}"


def facts_in_short(facts: Facts, owner: str, why_not: str) -> str:
    """How many facts there are for this person, and why no more are looked for, in one line."""
    told = facts.told_now(owner)
    if told is None:
        return "not looked at yet"
    daily, pins = sum(fact.layer == "daily" for fact in told), sum(fact.pinned for fact in told)
    counts = f"{daily:,} in the daily log, {len(told) - daily:,} kept for long, {pins:,} pinned" if told else "none yet"
    return f"{counts}; turns are not looked through: {why_not}" if why_not else counts


async def memory_found(memory: Memory, query: str, scope: Scope) -> MemoryFound:
    """What a search has, best first, each with where it stands. Raises IndexUnusable."""
    found = await memory.search(query, scope)
    return MemoryFound(hits=tuple((hit.citation, hit.chunk.text) for hit in found.hits), remarks=found.remarks)


def _latest(notes: Notes, now: datetime, *, private: bool) -> tuple[NoteEntry, ...]:
    entries = []
    for path, stamp in notes.there({}).stamps.items():
        nanoseconds, size, _ = map(int, stamp.split("."))
        if private or path != MAIN:
            entries.append((nanoseconds, path, size))
    return tuple(
        NoteEntry(path=path, bytes=size, changed=f"{span(_seconds_since(nanoseconds, now))} ago")
        for nanoseconds, path, size in sorted(entries, reverse=True)[:LATEST]
    )


def _seconds_since(nanoseconds: int, now: datetime) -> float:
    return (now - datetime.fromtimestamp(nanoseconds / 1e9, UTC)).total_seconds()
