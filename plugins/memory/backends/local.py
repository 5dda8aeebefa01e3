"""The backend `local`: one file, held completely in memory. It depends on neither SQLite nor any library.

It suits thousands of notes, not hundreds of thousands: a chunk takes some kilobytes of memory, each query is compared with
every vector, and the file is read completely when opened.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from operator import mul
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self, TypeAlias

import msgspec

from plugins.api.memory.chunks import Chunk
from plugins.api.memory.memory_backend import Document, Identity
from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.api.memory.source import Reading
from plugins.memory.backends.postings import Postings, best, inverse_frequency, saturated
from plugins.memory.backends.record_file import RecordFile

MIN_SUBSTRING = 3
"""Minimum characters of a substring search, as in SQLite's trigram index."""


class StoredDocument(msgspec.Struct, frozen=True, kw_only=True, tag="taken", omit_defaults=True):
    """A document as passed to `store`, with the words of each chunk."""

    document: Document
    words: tuple[str, ...]


class DeletedDocument(msgspec.Struct, frozen=True, kw_only=True, tag="forgotten"):
    """A deleted document."""

    path: str


class StoredVectors(msgspec.Struct, frozen=True, kw_only=True, tag="embedded"):
    """Vectors of one identity: those of all digests, concatenated as 32-bit floats."""

    identity: Identity
    digests: tuple[str, ...]
    vectors: bytes


Record: TypeAlias = StoredDocument | DeletedDocument | StoredVectors


class LocalBackend:
    """A `MemoryBackend` in memory, with a file of records."""

    name: ClassVar[str] = "local"

    @classmethod
    def why_not(cls) -> str:
        return ""

    def __init__(self, place: Path) -> None:
        self._file = RecordFile(place, self._records)
        self._documents: dict[str, tuple[Document, list[int]]] = {}
        self._chunks: dict[int, Chunk] = {}
        self._digests: dict[int, str] = {}
        self._pieces: dict[int, str] = {}
        self._words = Postings()
        self._vectors: dict[Identity, VectorMatrix] = {}
        self._record_sizes: dict[str, int] = {}
        self._last = 0

    def __enter__(self) -> Self:
        decoder = msgspec.msgpack.Decoder(Record)
        for record in self._file.read():
            self._apply(decoder.decode(record), len(record))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._file.close()

    @property
    def searches_vectors(self) -> bool:
        return True

    def _append(self, record: Record) -> None:
        encoded = msgspec.msgpack.encode(record)
        self._apply(record, len(encoded))
        vectors = sum(4 * each.dimensions * min(len(each), len(self._digests)) for each in self._vectors.values())
        self._file.append(encoded, sum(self._record_sizes.values()) + vectors)

    def _apply(self, record: Record, size: int) -> None:
        match record:
            case StoredDocument(document=document, words=words):
                self._store(document, words)
                counted = self._record_sizes.get(document.path, 0) if document.reading.since > 1 else 0
                self._record_sizes[document.path] = counted + size
            case DeletedDocument(path=path):
                self._drop(path, 0)
                self._documents.pop(path, None)
                self._record_sizes.pop(path, None)
            case StoredVectors(identity=identity, digests=digests, vectors=vectors):
                self._store_vectors(identity, digests, vectors)

    def _records(self) -> Iterator[bytes]:
        """Yield all current records, without vectors that no chunk uses."""
        for path, (document, keys) in self._documents.items():
            reading = Reading(chunks=[self._chunks[key] for key in keys], state=document.reading.state)
            whole = msgspec.structs.replace(document, reading=reading)
            encoded = msgspec.msgpack.encode(StoredDocument(document=whole, words=tuple(self._pieces[key] for key in keys)))
            self._record_sizes[path] = len(encoded)
            yield encoded
        used = set(self._digests.values())
        for identity, vectors in self._vectors.items():
            kept = self._vectors[identity] = vectors.of(used)
            packed = b"".join(vector.tobytes() for _, vector in kept.items())
            digests = tuple(digest for digest, _ in kept.items())
            yield msgspec.msgpack.encode(StoredVectors(identity=identity, digests=digests, vectors=packed))

    # --- documents ----------------------------------------------------------------------------------------------------

    def known(self) -> dict[str, tuple[str, str]]:
        return {path: (document.stamp, document.reading.state) for path, (document, _) in self._documents.items()}

    def store(self, documents: Iterable[Document]) -> None:
        for document in documents:
            self._append(StoredDocument(document=document, words=tuple(map(_words_of, document.reading.chunks))))

    def remove(self, paths: Sequence[str]) -> None:
        for path in paths:
            self._append(DeletedDocument(path=path))

    def _store(self, document: Document, words: Sequence[str]) -> None:
        keys = self._drop(document.path, document.reading.since)
        for chunk, pieces in zip(document.reading.chunks, words, strict=True):
            self._last += 1
            self._chunks[self._last] = msgspec.structs.replace(chunk, source=document.source)
            self._digests[self._last] = chunk.digest()
            self._pieces[self._last] = pieces
            self._words.add(self._last, pieces.split())
            keys.append(self._last)
        # The chunks are stored by key; keep only the state here.
        kept = Reading(chunks=(), state=document.reading.state)
        self._documents[document.path] = (msgspec.structs.replace(document, reading=kept), keys)

    def _drop(self, path: str, since: int) -> list[int]:
        """Drop a document's chunks from a line on, and return the keys of the others."""
        _, keys = self._documents.get(path, (None, []))
        kept = [key for key in keys if self._chunks[key].first < since]
        for key in set(keys).difference(kept):
            self._words.drop(key, self._pieces.pop(key).split())
            del self._chunks[key], self._digests[key]
        return kept

    def optimize(self) -> None:
        """Write the file again, without what was removed."""
        self._file.rewrite()

    def chunks(self, keys: Collection[int], scope: Scope = EVERYTHING) -> dict[int, Chunk]:
        allowed = self._allowed(scope)
        return {key: self._chunks[key] for key in keys if key in self._chunks and allowed(key)}

    def neighbours(self, keys: Collection[int], distance: int) -> set[int]:
        near = {(key, key + by) for key in keys if key in self._chunks for by in range(-distance, distance + 1)}
        return {it for key, it in near if it in self._chunks and self._chunks[it].path == self._chunks[key].path}

    def size(self) -> tuple[int, int]:
        return len(self._documents), len(self._chunks)

    def _allowed(self, scope: Scope) -> Callable[[int], bool]:
        if scope == EVERYTHING:
            return lambda key: True
        return lambda key: scope.admits(self._chunks[key])

    # --- words --------------------------------------------------------------------------------------------------------

    def keywords(self, words: Sequence[str], limit: int, scope: Scope = EVERYTHING) -> dict[int, float]:
        allowed = self._allowed(scope)
        there = [word for word in words if self._words.has(word, allowed)]
        found = self._words.ranked(there, limit, allowed)
        parts = [word for word in words if len(word) >= MIN_SUBSTRING and word not in there]
        if parts:
            for key, score in best(self._substring_scores(parts, allowed), limit).items():
                found[key] = found.get(key, 0.0) + score
        return best(found, limit)

    def word_counts(self, words: Collection[str]) -> tuple[int, dict[str, int]]:
        return len(self._chunks), {word: self._words.count(word) for word in words}

    def indexed_words(self, keys: Collection[int]) -> dict[int, str]:
        return {key: self._pieces[key] for key in keys if key in self._pieces}

    def _substring_scores(self, parts: Sequence[str], allowed: Callable[[int], bool]) -> dict[int, float]:
        """Return the chunks that contain one of these substrings, scored like words."""
        texts = {key: chunk.embedded().lower() for key, chunk in self._chunks.items()}
        average = sum(max(0, len(text) - MIN_SUBSTRING + 1) for text in texts.values()) / max(1, len(texts))
        scores: dict[int, float] = {}
        for part in parts:
            having = {key: times for key, text in texts.items() if (times := text.count(part.lower()))}
            weight = inverse_frequency(len(texts), len(having))
            for key, times in having.items():
                if allowed(key):
                    length = (len(texts[key]) - MIN_SUBSTRING + 1) / average
                    scores[key] = scores.get(key, 0.0) + weight * saturated(times, length)
        return scores

    # --- vectors ------------------------------------------------------------------------------------------------------

    def unembedded(self, identity: Identity, limit: int) -> dict[str, str]:
        return self._without_vector(self._of(identity), limit)

    def _without_vector(self, there: Container[str], limit: int) -> dict[str, str]:
        """Return the texts to embed, given the digests that have a vector."""
        found: dict[str, str] = {}
        for key in reversed(self._digests):
            if len(found) == limit:
                break
            if self._digests[key] not in there:
                found.setdefault(self._digests[key], self._chunks[key].embedded())
        return found

    def count_unembedded(self, identity: Identity) -> int:
        there = self._of(identity)
        return sum(digest not in there for digest in set(self._digests.values()))

    def store_vectors(self, identity: Identity, vectors: Mapping[str, Sequence[float]]) -> None:
        self._check(identity, vectors)
        packed = b"".join(array("f", vector).tobytes() for vector in vectors.values())
        self._append(StoredVectors(identity=identity, digests=tuple(vectors), vectors=packed))

    @staticmethod
    def _check(identity: Identity, vectors: Mapping[str, Sequence[float]]) -> None:
        for vector in vectors.values():
            if len(vector) != identity.dimensions:
                raise ValueError(f"{identity.model} gave {len(vector)} dimensions instead of {identity.dimensions}")

    def _store_vectors(self, identity: Identity, digests: Sequence[str], packed: bytes) -> None:
        vectors, size = self._of(identity), 4 * identity.dimensions
        for at, digest in enumerate(digests):
            vectors.put(digest, array("f", packed[at * size : (at + 1) * size]))

    def trim_cache(self, identity: Identity | None, limit: int) -> None:
        """Do nothing: unused vectors are dropped when the file is rewritten."""

    def nearest(
        self, identity: Identity, vector: Sequence[float], limit: int, scope: Scope = EVERYTHING
    ) -> dict[int, float]:
        allowed, near = self._allowed(scope), self._of(identity).cosines(vector)
        return best({key: near[it] for key, it in self._digests.items() if it in near and allowed(key)}, limit)

    def cosines(self, identity: Identity, vector: Sequence[float], keys: Collection[int]) -> dict[int, float]:
        near = self._of(identity).cosines(vector)
        return {key: near[it] for key in keys if (it := self._digests.get(key, "")) in near}

    def _of(self, identity: Identity) -> VectorMatrix:
        """Return the vectors of an identity; if its dimensions are unknown, the latest of that model."""
        for each in () if identity.dimensions else reversed(self._vectors):
            if (each.provider, each.model) == (identity.provider, identity.model):
                return self._vectors[each]
        if not identity.dimensions:
            return VectorMatrix(0)
        return self._vectors.setdefault(identity, VectorMatrix(identity.dimensions))


def _words_of(chunk: Chunk) -> str:
    from plugins.support.text.words import indexed  # noqa: PLC0415 - not at the start, where this class is only named

    return f" {indexed(chunk.embedded()).casefold()} "


# --- vectors of one identity ---------------------------------------------------------------------------------------------


class VectorMatrix:
    """Normalised vectors of `dimensions` numbers, by digest."""

    def __init__(self, dimensions: int) -> None:
        self.dimensions = dimensions
        self._rows: dict[str, int] = {}
        self._numbers = array("f")

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, digest: object) -> bool:
        return digest in self._rows

    def put(self, digest: str, vector: Sequence[float]) -> None:
        """Store a vector.

        Raises:
            ValueError: It has the wrong length.
        """
        if len(vector) != self.dimensions:
            raise ValueError(f"a vector has {len(vector)} dimensions instead of {self.dimensions}")
        scaled = _normalized(vector)
        if digest in self._rows:
            begin = self._rows[digest] * self.dimensions
            self._numbers[begin : begin + self.dimensions] = scaled
        else:
            self._rows[digest] = len(self._rows)
            self._numbers += scaled

    def items(self) -> Iterator[tuple[str, array[float]]]:
        """Yield each digest with its vector."""
        for digest, row in self._rows.items():
            yield digest, self._numbers[row * self.dimensions : (row + 1) * self.dimensions]

    def of(self, digests: Collection[str]) -> VectorMatrix:
        """Return the vectors of these digests only."""
        kept = VectorMatrix(self.dimensions)
        for digest, vector in self.items():
            if digest in digests:
                kept.put(digest, vector)
        return kept

    def cosines(self, vector: Sequence[float]) -> dict[str, float]:
        """Return the cosine of each vector with this one, from -1 to 1."""
        if len(vector) != self.dimensions:
            return {}
        products = _products(self._numbers, self.dimensions, _normalized(vector))
        return dict(zip(self._rows, products, strict=True))


def _normalized(vector: Sequence[float]) -> array[float]:
    length = math.sqrt(sum(map(mul, vector, vector))) or 1.0
    return array("f", [number / length for number in vector])


def _products(rows: array[float], dimensions: int, vector: array[float]) -> list[float]:
    try:
        np: Any = import_module("numpy")
    except ImportError:
        return [sum(map(mul, rows[at : at + dimensions], vector)) for at in range(0, len(rows), dimensions)]
    matrix = np.frombuffer(rows, np.float32).reshape(-1, dimensions) if rows else np.empty((0, dimensions), np.float32)
    products: list[float] = (matrix @ np.frombuffer(vector, np.float32)).tolist()
    return products
