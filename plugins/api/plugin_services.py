"""Services of the gateway that plugins can use: asking a model, embedding texts, a durable log, memory and facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

from plugins.support.errors import PluginError
from sessions.events.messages import Usage

if TYPE_CHECKING:
    from plugins.api.fact_values import Fact, FactDraft
    from plugins.api.memory.chunks import Chunk
    from plugins.api.memory.scope import Scope

Purpose: TypeAlias = Literal["note", "query"]
"""The purpose of an embedded text: `note` for text to be found, `query` for a search. Some models embed them differently."""


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The reply to an `AskModel` request. `model` has the form `provider:model`."""

    text: str
    model: str
    usage: Usage | None = None


class AskModel(Protocol):
    """Sends a text-only request to a model, without tools and outside of any conversation."""

    async def __call__(self, *, system: str, text: str, limit: int) -> ModelAnswer:
        """Send a request and return the reply.

        Args:
            system: The instructions.
            text: The message.
            limit: The requested maximum length of the reply in tokens. Models may exceed it.

        Raises:
            ProviderError: The model could not reply. `ContextOverflow` if the text was too long.
        """
        ...


class EmbedTexts(Protocol):
    """Embeds texts with the embedding provider that the memory uses."""

    async def __call__(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        """Embed texts, as `EmbeddingProvider.embed` does.

        Args:
            texts: Up to 256 texts.
            purpose: `note` or `query`.

        Returns:
            One vector for each text, in the same order.

        Raises:
            ProviderError: The texts could not be embedded, or no embedding provider is available.
        """
        ...


class LogUnusable(PluginError):
    """A log entry cannot be written or read: not JSON, too large, log full or damaged, or storage failed."""


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """An entry in a plugin's log: its number (from 1), the time it was written (RFC 3339) and its JSON value."""

    seq: int
    at: str
    entry: Any


class PluginLog(Protocol):
    """A durable JSON Lines log in the plugin's folder, opened on first use."""

    async def append(self, entry: Any) -> int:
        """Append an entry, wait until it is durable, and return its number.

        Args:
            entry: A JSON value of at most 64 KiB.

        Raises:
            LogUnusable: The entry cannot be written.
        """
        ...

    async def entries(self, after: int = 0, limit: int = 1000) -> Sequence[LogEntry]:
        """Return durable entries, oldest first.

        Args:
            after: Return only entries with a higher number.
            limit: The maximum number of entries.

        Raises:
            LogUnusable: The log cannot be read.
        """
        ...


class IndexUnusable(Exception):
    """The memory index can be neither read nor rebuilt; `str(error)` is a sentence. The notes are unaffected."""


class MemoryHit(Protocol):
    """A search result."""

    @property
    def chunk(self) -> Chunk:
        """The passage that was found."""
        ...

    @property
    def score(self) -> float:
        """The score that the results are sorted by, from 0 to 1."""
        ...

    @property
    def citation(self) -> str:
        """The location of the passage, such as `memory/2026-11-21.md#L3-L7`."""
        ...


class MemoryResults(Protocol):
    """The results of a search."""

    @property
    def hits(self) -> Sequence[MemoryHit]:
        """The results, best first."""
        ...

    @property
    def remarks(self) -> Sequence[str]:
        """Messages about the state of the index, for example that it is still being built."""
        ...


class WorkspaceMemory(Protocol):
    """The memory of the workspace: an index of notes and conversations."""

    async def search(self, text: str, scope: Scope, *, results: int | None = None) -> MemoryResults:
        """Search the notes and conversations in a scope.

        Args:
            text: The query. Only the first 2,000 characters are used.
            scope: Limits the results by owner, date, source and sender.
            results: The maximum number of results; None for `memory.search.max_results`.

        Raises:
            IndexUnusable: The index is not available.
        """
        ...

    async def excerpt(self, path: str, first: int, lines: int, scope: Scope) -> str | None:
        """Return some lines of a document, or None if no document can have that path.

        Args:
            path: The path of the document, as in a citation.
            first: The first line, counted from 1.
            lines: The maximum number of lines.
            scope: The documents that may be shown.
        """
        ...


class WorkspaceFacts(Protocol):
    """The facts of the workspace."""

    async def write(self, drafts: Iterable[FactDraft], by: str, *, owner: str = "") -> Sequence[Fact]:
        """Store long-term facts and return them once they are durable.

        Args:
            drafts: The facts, from `draft_fact`.
            by: Who stores them, for the log.
            owner: The id of the person they belong to; "" for shared facts.

        Raises:
            FactsUnavailable: The facts cannot be written now.
        """
        ...


class PluginServices(msgspec.Struct, frozen=True, kw_only=True):
    """Services of the gateway for one plugin. Token usage is counted as `plugin:NAME`.

    Attributes:
        memory: The memory of the workspace.
        facts: The facts of the workspace.
        ask: Sends a separate request to the configured model; times out after two minutes.
        embed: Embeds texts with the embedding provider of the memory; times out after one minute.
        log: A durable log of the plugin's own.
    """

    memory: WorkspaceMemory
    facts: WorkspaceFacts
    ask: AskModel
    embed: EmbedTexts
    log: PluginLog
