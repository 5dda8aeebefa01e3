"""In-memory `PluginServices` for tests: an empty memory, a list of facts, canned replies, simple vectors, and a log."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from plugins.api.fact_values import Fact, FactDraft, new_id
from plugins.api.memory.scope import Scope
from plugins.api.plugin_services import (
    LogEntry,
    LogUnusable,
    MemoryHit,
    MemoryResults,
    ModelAnswer,
    PluginLog,
    PluginServices,
    Purpose,
)
from sessions.events.messages import Usage

NOW = "2026-11-21T12:00:00.000Z"
DIMENSIONS = 8


class NoResults:
    """The `MemoryResults` of a search that found nothing."""

    hits: Sequence[MemoryHit] = ()
    remarks: Sequence[str] = ()


class EmptyMemory:
    """A `WorkspaceMemory` without documents."""

    async def search(self, text: str, scope: Scope, *, results: int | None = None) -> MemoryResults:
        """Find nothing."""
        return NoResults()

    async def excerpt(self, path: str, first: int, lines: int, scope: Scope) -> str | None:
        """Return an empty text, as for a document that does not exist."""
        return ""


class FactList:
    """`WorkspaceFacts` that keep what was written in `written`."""

    def __init__(self) -> None:
        self.written: list[Fact] = []

    async def write(self, drafts: Iterable[FactDraft], by: str, *, owner: str = "") -> Sequence[Fact]:
        """Append the facts to `written`."""
        facts = [
            Fact(id=new_id(), created=NOW, source="manual", layer="longterm", owner=owner, **msgspec.structs.asdict(each))
            for each in drafts
        ]
        self.written += facts
        return facts


class EntryList:
    """A `PluginLog` in memory."""

    def __init__(self) -> None:
        self._entries: list[LogEntry] = []

    async def append(self, entry: Any) -> int:
        """Append a copy of the entry."""
        try:
            value = msgspec.json.decode(msgspec.json.encode(entry))
        except (TypeError, ValueError, RecursionError) as error:
            raise LogUnusable("The entry is not JSON.") from error
        self._entries.append(LogEntry(seq=len(self._entries) + 1, at=NOW, entry=value))
        return len(self._entries)

    async def entries(self, after: int = 0, limit: int = 1000) -> Sequence[LogEntry]:
        """Return entries, oldest first."""
        return self._entries[after : after + limit]


async def echo(*, system: str, text: str, limit: int) -> ModelAnswer:
    """An `AskModel` that returns the beginning of the text."""
    return ModelAnswer(text=text[: 4 * limit], model="test:echo", usage=Usage(input=len(text) // 4, output=limit))


async def hashed(texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
    """An `EmbedTexts` that derives vectors from a hash: equal texts get equal vectors."""
    return [[1.0 + byte for byte in hashlib.sha256(text.encode("utf-8", "replace")).digest()[:DIMENSIONS]] for text in texts]


def in_memory_services(**replaced: Any) -> PluginServices:
    """Return new services that share nothing with others; `replaced` are fields of `PluginServices` to set instead."""
    log: PluginLog = EntryList()
    fields: dict[str, Any] = {"memory": EmptyMemory(), "facts": FactList(), "ask": echo, "embed": hashed, "log": log}
    return PluginServices(**fields | replaced)
