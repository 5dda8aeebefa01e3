"""Where the index rests: the contract of a memory backend.

A backend keeps the chunks of documents and finds them, by words and by vectors. Everything that it keeps is derived and may
be taken away. Which documents there are, when they are read, who makes vectors and how what is found is ranked is not its
concern. `plugins.memory.index.sqlite_backend` is the one that is always there; `memory.backend` names the one in use.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Protocol, Self, runtime_checkable

import msgspec

from plugins.api.memory.chunks import Chunk
from plugins.api.memory.scope import Scope
from plugins.api.memory.source import Reading


class Identity(msgspec.Struct, frozen=True, kw_only=True):
    """What made vectors. Vectors of two identities are never compared. Where only a server knows the dimensions and has not
    said them yet they are 0: then what a model made last is meant."""

    provider: str
    model: str
    dimensions: int


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document as it was just read: what is known of it from now on. `source` is the name of where it comes from, `stamp`
    and `reading.state` are for those who look whether it changed."""

    path: str
    source: str
    stamp: str
    reading: Reading


@runtime_checkable
class MemoryBackend(Protocol):
    """Chunks and their vectors. Methods block and are called in one thread at a time.

    What is raised: ValueError for what cannot be meant, OSError where the disk refuses; at anything else what it keeps is
    taken for harmed, is removed and made anew, and at the second time the memory rests in SQLite instead. `str(error)` is
    shown to people.
    """

    name: ClassVar[str]
    """The word that `memory.backend` chooses it by."""

    @classmethod
    def why_not(cls) -> str:
        """Why it cannot be used here (something is not installed), as the end of a sentence; empty where it can. Quick."""
        ...

    def __init__(self, place: Path) -> None:
        """`place` is the file or the folder for all that it keeps, for the eyes of the owner alone; it need not exist. It
        makes it when it is entered. Another process may do so too: what it keeps then may be kept by either, or by both,
        but what is found must be right."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def searches_vectors(self) -> bool:
        """Whether `nearest` can find anything here."""
        ...

    # --- documents ----------------------------------------------------------------------------------------------------

    def known(self) -> Mapping[str, tuple[str, str]]:
        """The stamp and the state of each document, by its path."""
        ...

    def take(self, documents: Iterable[Document]) -> None:
        """Have these be what is known of their documents, chunks before `reading.since` excepted, which stay. After a crash
        each is known as it was before or as it is now. What is taken from the iterable is read at that moment, and slowly.

        Each chunk gets a key that no other ever had: chunks of a document that follow each other have keys that do."""
        ...

    def forget(self, paths: Sequence[str]) -> None:
        """These documents are gone."""
        ...

    def settle(self) -> None:
        """Much was taken in, and no more is to come for now: the time to do what makes searching faster."""
        ...

    def chunks(self, keys: Collection[int], scope: Scope) -> dict[int, Chunk]:
        """The chunks with these keys, of those that exist and are in the scope; each says the name of its source."""
        ...

    def beside(self, keys: Collection[int], away: int) -> set[int]:
        """The keys of the chunks that stand at most so far before or after one of these in its document, with these
        themselves: keys are as far from each other as their chunks."""
        ...

    def size(self) -> tuple[int, int]:
        """How many documents and how many chunks there are."""
        ...

    # --- words --------------------------------------------------------------------------------------------------------

    def keywords(self, words: Sequence[str], limit: int, scope: Scope) -> dict[int, float]:
        """The chunks in the scope that have the most telling of these words, best first, and how well: larger is better,
        more than 0. A word that no chunk in the scope has is looked for inside of words. The words are those of
        `words.sought`, and what they are looked for in is `words.indexed` of what a chunk's `embedded` gives."""
        ...

    def counts(self, words: Collection[str]) -> tuple[int, dict[str, int]]:
        """How many chunks there are, and how many of them have each of these words; nothing else than numbers of what is out
        of somebody's scope."""
        ...

    def pieces(self, keys: Collection[int]) -> dict[int, str]:
        """The words by which these chunks are found, as `words.indexed` gives them, in lower case, a space around each."""
        ...

    # --- vectors ------------------------------------------------------------------------------------------------------

    def unembedded(self, identity: Identity, limit: int) -> Mapping[str, str]:
        """Texts (`Chunk.embedded`) that have no vector of this identity yet, the newest first, by their digests."""
        ...

    def count_unembedded(self, identity: Identity) -> int:
        """How many texts `unembedded` would give without a limit."""
        ...

    def embed(self, identity: Identity, vectors: Mapping[str, Sequence[float]]) -> None:
        """Keep vectors by the digests of what was embedded. ValueError if one has not the identity's dimensions. A chunk
        that comes back within a while, wherever it stands then, has its vector."""
        ...

    def bound(self, identity: Identity | None, most: int) -> None:
        """Nobody wants more than so many vectors kept that no chunk needs by this identity, who makes them now: the others
        may go, those first that were used longest ago. What a chunk needs stays."""
        ...

    def nearest(self, identity: Identity, vector: Sequence[float], limit: int, scope: Scope) -> dict[int, float]:
        """The chunks in the scope that are nearest to a vector, nearest first, with their cosines."""
        ...

    def cosines(self, identity: Identity, vector: Sequence[float], keys: Collection[int]) -> dict[int, float]:
        """The cosines of these chunks, of those that have a vector."""
        ...
