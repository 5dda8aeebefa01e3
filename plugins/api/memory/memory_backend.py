"""The protocol of memory backends, which store the index of the memory.

A backend stores the chunks of documents and finds them by keywords and by vectors. All its data is derived and can be
deleted. It does not read documents, compute vectors, or rank results. `plugins.memory.index.sqlite_backend` is the default;
`memory.backend` selects one.
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
    """The model that computed a vector. Vectors with different identities are never compared.

    `dimensions` is 0 while only the server knows it; then the last vectors of the model are meant.
    """

    provider: str
    model: str
    dimensions: int


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was just read.

    Attributes:
        path: The path of the document.
        source: The name of its source.
        stamp: Changes whenever the document must be read again.
        reading: The chunks and the state of the source.
    """

    path: str
    source: str
    stamp: str
    reading: Reading


@runtime_checkable
class MemoryBackend(Protocol):
    """A store for chunks and their vectors. Methods block and are called from one thread at a time.

    Methods raise `ValueError` for invalid arguments and `OSError` if the disk fails. After any other error the data is
    assumed to be damaged, deleted and rebuilt; after a second such error the memory uses SQLite instead. `str(error)` is
    shown to people.
    """

    name: ClassVar[str]
    """The backend's name in `memory.backend`."""

    @classmethod
    def why_not(cls) -> str:
        """Return why the backend is not available (something is not installed), as the end of a sentence; "" if it is."""
        ...

    def __init__(self, place: Path) -> None:
        """Create the backend, which creates its files on entry.

        Another process may use the same files at the same time. Then either one may win, but results must be correct.

        Args:
            place: The file or folder for all its data. It may not exist. Only its owner may read it.
        """
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    @property
    def searches_vectors(self) -> bool:
        """True if `nearest` can find anything."""
        ...

    # --- documents ----------------------------------------------------------------------------------------------------

    def known(self) -> Mapping[str, tuple[str, str]]:
        """Return the stamp and the source's state of each document by path."""
        ...

    def store(self, documents: Iterable[Document]) -> None:
        """Store documents, replacing their chunks from line `reading.since` on.

        The iterable reads documents lazily and slowly. After a crash each document has either its old or its new chunks.
        Each chunk gets a key that was never used before; consecutive chunks of a document have consecutive keys.
        """
        ...

    def remove(self, paths: Sequence[str]) -> None:
        """Remove documents."""
        ...

    def optimize(self) -> None:
        """Optimize the index for searching. Called after many documents were stored, and after documents were deleted on
        request: nothing of those should remain in the backend's files."""
        ...

    def chunks(self, keys: Collection[int], scope: Scope) -> dict[int, Chunk]:
        """Return the chunks with these keys that exist and are in the scope."""
        ...

    def neighbours(self, keys: Collection[int], distance: int) -> set[int]:
        """Return these keys and those of chunks up to `distance` positions before or after them in the same document."""
        ...

    def size(self) -> tuple[int, int]:
        """Return the number of documents and of chunks."""
        ...

    # --- words --------------------------------------------------------------------------------------------------------

    def keywords(self, words: Sequence[str], limit: int, scope: Scope) -> dict[int, float]:
        """Find the chunks in the scope that match the most significant of these words.

        A word that occurs in no chunk of the scope is searched inside other words.

        Args:
            words: The words of the query, from `words.sought`. They match `words.indexed` of `Chunk.embedded`.
            limit: The maximum number of chunks.
            scope: The scope of the search.

        Returns:
            Positive scores by key, best first. Higher is better.
        """
        ...

    def word_counts(self, words: Collection[str]) -> tuple[int, dict[str, int]]:
        """Return the number of chunks, and for each word the number of chunks that contain it, regardless of scope."""
        ...

    def indexed_words(self, keys: Collection[int]) -> dict[int, str]:
        """Return the indexed words of these chunks (`words.indexed`) in lower case, each surrounded by spaces."""
        ...

    # --- vectors ------------------------------------------------------------------------------------------------------

    def unembedded(self, identity: Identity, limit: int) -> Mapping[str, str]:
        """Return texts (`Chunk.embedded`) that have no vector of this identity, by digest, newest first."""
        ...

    def count_unembedded(self, identity: Identity) -> int:
        """Return the number of texts that `unembedded` would return without a limit."""
        ...

    def store_vectors(self, identity: Identity, vectors: Mapping[str, Sequence[float]]) -> None:
        """Store vectors by digest. A chunk that is removed and added again within a while keeps its vector.

        Raises:
            ValueError: A vector has the wrong number of dimensions.
        """
        ...

    def trim_cache(self, identity: Identity | None, limit: int) -> None:
        """Limit the number of cached vectors that no chunk needs.

        Args:
            identity: The current embedding model. Vectors that its chunks need are kept.
            limit: The maximum number of other vectors; the least recently used may be dropped.
        """
        ...

    def nearest(self, identity: Identity, vector: Sequence[float], limit: int, scope: Scope) -> dict[int, float]:
        """Return the chunks in the scope that are nearest to a vector, with their cosine similarities, nearest first."""
        ...

    def cosines(self, identity: Identity, vector: Sequence[float], keys: Collection[int]) -> dict[int, float]:
        """Return the cosine similarities of those of these chunks that have a vector."""
        ...
