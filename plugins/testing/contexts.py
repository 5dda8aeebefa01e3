"""Contexts for tests, with a manual clock, an HTTP client that does not pause between attempts, and services in memory."""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from plugins.api.context import NoSettings, PluginContext, ProviderAccount, ProviderContext
from plugins.api.fact_values import Fact, FactDraft, new_id
from plugins.api.memory.scope import Scope
from plugins.api.models import ModelList
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
from plugins.http.client import Timeouts, Transport
from sessions.events.messages import Usage

NORMAL = Timeouts(connect=5.0, first=5.0, between=5.0, whole=20.0, attempts=2)
"""Timeouts for servers that respond."""

SHORT = Timeouts(connect=2.0, first=0.2, between=0.2, whole=2.0, attempts=2)
"""Timeouts for servers that do not respond."""

NOON = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)


NOW = "2026-11-21T12:00:00.000Z"

DIMENSIONS = 8


class ManualClock:
    """A clock that only changes when it is moved."""

    def __init__(self, now: datetime = NOON) -> None:
        self._now = now
        self._seconds = 0.0

    def now(self) -> datetime:
        """Return the time of day."""
        return self._now

    def monotonic(self) -> float:
        """Return the seconds by which the clock was moved."""
        return self._seconds

    def move(self, seconds: float) -> None:
        """Move the clock forward."""
        self._now += timedelta(seconds=seconds)
        self._seconds += seconds


@asynccontextmanager
async def make_context(
    folder: Path,
    settings: Any = None,
    *,
    environment: Mapping[str, str] | None = None,
    timeouts: Timeouts = NORMAL,
    services: PluginServices | None = None,
    name: str = "test",
) -> AsyncIterator[PluginContext]:
    """Provide the context of a tool, channel or `gateway_started` hook in a `with` block.

    Args:
        folder: A folder for the test. The workspace is `workspace` in it.
        settings: The plugin's settings; None if it has none.
        environment: The environment variables; empty by default.
        timeouts: The timeouts of the HTTP client. It does not pause between attempts.
        services: The services; by default an empty memory, and facts, a log, a model and embeddings in memory.
        name: The name of the plugin or of the channel.
    """
    async with _transport(timeouts) as transport:
        yield PluginContext(
            settings=NoSettings() if settings is None else settings,
            folder=folder / "plugin",
            workspace=_workspace(folder),
            clock=ManualClock(),
            transport=transport,
            environment=environment or {},
            services=services or in_memory_services(),
            name=name,
        )


@asynccontextmanager
async def make_provider_context(
    folder: Path,
    settings: Any,
    *,
    environment: Mapping[str, str] | None = None,
    timeouts: Timeouts = NORMAL,
    reported_models: ModelList | None = None,
    account: ProviderAccount | None = None,
) -> AsyncIterator[ProviderContext]:
    """Provide the context of a chat or embedding provider in a `with` block.

    Args:
        folder: A folder for the test. The workspace is `workspace` in it.
        settings: The provider's settings: its own `Settings`, or `EmbeddingKeys` for an embedding provider.
        environment: The environment variables; empty by default.
        timeouts: The timeouts of the HTTP client. It does not pause between attempts.
        reported_models: The model list that the server reported earlier.
        account: For embedding providers, the account of the chat provider with the same name.
    """
    async with _transport(timeouts) as transport:
        yield ProviderContext(
            settings=settings,
            folder=folder / "plugin",
            workspace=_workspace(folder),
            clock=ManualClock(),
            transport=transport,
            environment=environment or {},
            reported_models=reported_models,
            account=account or ProviderAccount(),
        )


def _transport(timeouts: Timeouts) -> Transport:
    async def no_pause(_: float) -> None:
        await asyncio.sleep(0)

    return Transport(sleep=no_pause, chance=lambda: 1.0, timeouts=timeouts)


def _workspace(folder: Path) -> Path:
    workspace = folder / "workspace"
    workspace.mkdir(parents=True, exist_ok=True)
    return workspace


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
