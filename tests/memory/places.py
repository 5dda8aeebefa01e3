"""A workspace with notes, its memory, and an embedding provider that counts what it is asked."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from datetime import date
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self, TypeAlias

import msgspec

from exuvia import ContextOverflow, ProviderContext, Purpose, Unreachable
from plugins.api.embedding import EmbeddingProvider
from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.api.memory.source import Listing, Reading, Source, WatchedFolders
from plugins.api.memory_settings import EmbeddingKeys, MemoryKeys, SearchKeys
from plugins.memory.memory import Memory
from plugins.memory.sources.notes import Notes
from tests.waiting import DEADLINE

TODAY = date(2026, 11, 21)

Counts: TypeAlias = Callable[[Purpose, EmbeddingProvider, int], None]


def _nobody(purpose: Purpose, provider: EmbeddingProvider, tokens: int) -> None:
    """Is told what was embedded."""


class Counted:
    """An embedding provider whose vectors are made of the last letters of a text, and that counts what it is asked."""

    name: ClassVar[str] = "counted"

    def __init__(self, context: ProviderContext | None = None) -> None:
        self.texts: list[str] = []
        self.fails = False
        self.letters = 1
        self.size = 32
        self.longest = 0
        self.at_once: list[int] = []
        self.named = "letters"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def model(self) -> str | None:
        return self.named

    def explain_default(self) -> str:
        return "it is always there"

    def dimensions(self) -> int:
        return self.size

    async def embed(self, texts: Sequence[str], purpose: Purpose) -> Sequence[Sequence[float]]:
        if self.fails:
            raise Unreachable("The server is away.")
        if self.longest and any(len(text) > self.longest for text in texts):
            raise ContextOverflow("That is too long.")
        self.at_once.append(len(texts))
        self.texts += texts if purpose == "note" else []
        return [
            [byte / 255 for byte in hashlib.sha256(text[-self.letters :].encode()).digest()[: self.size]] for text in texts
        ]


class FakeSource:
    """A source without documents, folders to watch and excerpts, from which other sources of tests derive."""

    name = "fake"

    def watched(self) -> WatchedFolders:
        return WatchedFolders()

    def list_documents(self, known: Mapping[str, str]) -> Listing:
        return Listing(stamps={})

    def read(self, path: str, state: str) -> Reading | None:
        return None

    def excerpt(self, path: str, first: int, lines: int, scope: Scope) -> str | None:
        return None


class Place:
    """A workspace with notes, and its memory."""

    def __init__(self, folder: Path) -> None:
        self.workspace = folder / "workspace"
        self.file = folder / "memory.sqlite"
        self.provider = Counted()
        (self.workspace / "memory").mkdir(parents=True, exist_ok=True)

    def put(self, path: str, text: str) -> None:
        (self.workspace / path).write_text(text)

    def stamp(self, path: str) -> tuple[int, int, int, int]:
        """Return the identity, length and times of a file, which differ after a write but not after a read."""
        stat = (self.workspace / path).stat()
        return stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns

    def memory(
        self, provider: str = "none", *others: Source, keywords: bool = True, counted: Counts = _nobody, **embedding: int
    ) -> Memory:
        """Return the memory with this provider and further sources; `embedding` are more keys of that section."""
        said = {"provider": provider, **embedding}
        keys = MemoryKeys(embedding=msgspec.convert(said, EmbeddingKeys), search=SearchKeys(keywords=keywords))
        sources = [Notes(self.workspace), *others]
        for each in others:
            each.name = "notes"  # as if it were chosen
        there = {"counted": self.provider}
        return Memory(self.file, sources, keys=lambda: keys, providers=there, today=lambda: TODAY, counted=counted)


async def citations(memory: Memory, question: str) -> list[str]:
    """Return the citations of the search results, once the index has all changes."""
    return [hit.citation for hit in (await memory.search(question, EVERYTHING, patience=DEADLINE)).hits]
