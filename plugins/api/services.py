"""The services of the gateway that plugins may use: its model, its vectors, a log, the memory and the facts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

import msgspec

from plugins.support.errors import PluginError
from sessions.events.messages import Usage

if TYPE_CHECKING:
    from plugins.api.facts.fact_values import Draft, Fact
    from plugins.api.memory.chunks import Chunk
    from plugins.api.memory.scope import Scope

Purpose: TypeAlias = Literal["note", "query"]
"""What a text is: something to be found, or what is looked for. Some models differ; send what the service calls them."""


class ModelAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """What a model answered to an `AskModel`. `model` is its `provider:model`."""

    text: str
    model: str
    usage: Usage | None = None


class AskModel(Protocol):
    """One text-only request to a model (for a compaction, the one that they use), without tools and shown to nobody."""

    async def __call__(self, *, system: str, text: str, limit: int) -> ModelAnswer:
        """Ask with `system` as instructions and `text` as the message; `limit` is how many tokens the answer may have, as a
        wish. Raises ProviderError, ContextOverflow among them."""
        ...


class EmbedTexts(Protocol):
    """The way to the memory's own provider, whichever the operator chose."""

    async def __call__(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        """A vector for each of up to 256 texts; see `EmbeddingProvider.embed`. Raises a ProviderError, also where nobody
        makes vectors."""
        ...


class LogUnusable(PluginError):
    """An entry cannot be kept or read: it is no JSON or too large, the log is full or damaged, the storage failed."""


class LogEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Something that a plugin wrote down: its number (1, 2, …), when (RFC 3339), and what, as JSON has it."""

    seq: int
    at: str
    entry: Any


class PluginLog(Protocol):
    """One file of JSON lines in the plugin's folder, in the form of the journals; it is opened by whoever first uses it."""

    async def append(self, entry: Any) -> int:
        """Write an entry down, JSON of 64 KiB at most, and return its number once it is durable. Raises LogUnusable."""
        ...

    async def entries(self, after: int = 0, limit: int = 1000) -> Sequence[LogEntry]:
        """The durable entries behind that number, oldest first, so many at most. Raises LogUnusable."""
        ...


class MemoryHit(Protocol):
    """A passage that a search found."""

    @property
    def chunk(self) -> Chunk:
        """The passage and its place in its document."""
        ...

    @property
    def score(self) -> float:
        """The score by which the hits are ordered, from 0 to 1."""
        ...

    @property
    def citation(self) -> str:
        """The passage's place, such as `memory/2026-11-21.md#L3-L7`."""
        ...


class MemoryResults(Protocol):
    """The results of one search."""

    @property
    def hits(self) -> Sequence[MemoryHit]:
        """The passages, best first."""
        ...

    @property
    def remarks(self) -> Sequence[str]:
        """Sentences about the state of the index, such as that it is still being built; empty if there is nothing to say."""
        ...


class WorkspaceMemory(Protocol):
    """The memory of the workspace."""

    async def search(self, text: str, scope: Scope, *, results: int | None = None) -> MemoryResults:
        """Search the notes and conversations in a scope.

        Args:
            text: The question; the first 2,000 characters count.
            scope: Whose documents, of which days and sources, may be found.
            results: The largest number of hits; None for `memory.search.max_results`.

        Raises:
            IndexUnusable: The index cannot be used now.
        """
        ...

    async def excerpt(self, path: str, first: int, lines: int, scope: Scope) -> str | None:
        """Return lines of a document, beginning with line `first` (from 1), or None if no document can have that path."""
        ...


class WorkspaceFacts(Protocol):
    """The facts that are kept for the workspace."""

    async def write(self, drafts: Iterable[Draft], by: str, *, owner: str = "") -> Sequence[Fact]:
        """Store facts for the long term and return them once they are durable.

        Args:
            drafts: The facts.
            by: Who stores them, for the log.
            owner: The person whose facts they are; "" for everybody's.

        Raises:
            FactsUnavailable: The facts cannot be written now.
        """
        ...
