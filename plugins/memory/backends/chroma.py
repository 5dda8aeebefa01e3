"""The backend `chroma`, which stores and searches vectors in Chroma (the extra `chroma`); the rest is as in `local`.

Chroma gets vectors under the digests of their texts, in one collection per identity, but no texts, and none of its embedding
models is used. It runs in this process, with telemetry disabled.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

import msgspec

from plugins.api.memory.memory_backend import Identity
from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.memory.backends.local import LocalBackend
from plugins.memory.backends.postings import best

SEARCH_EF = 400
"""Vectors that Chroma keeps in view during a search (`hnsw:search_ef`), enough for all results."""

CALL_LIMIT = 5000
"""Maximum vectors per call, since Chroma limits it."""


class ChromaBackend(LocalBackend):
    """A `MemoryBackend` that stores its vectors in Chroma."""

    name: ClassVar[str] = "chroma"

    @classmethod
    def why_not(cls) -> str:
        return "" if find_spec("chromadb") else "chromadb is not installed (pip install 'exuvia[chroma]')"

    def __init__(self, place: Path) -> None:
        super().__init__(place / "chunks")
        self._place = place
        self._client: Any = None
        self._collections: dict[Identity, tuple[Any, set[str]]] = {}

    def __enter__(self) -> Self:
        self._place.mkdir(mode=0o700, exist_ok=True)
        chromadb = import_module("chromadb")
        settings = import_module("chromadb.config").Settings(anonymized_telemetry=False)
        try:
            self._client = chromadb.PersistentClient(str(self._place / "vectors"), settings)
            super().__enter__()
            self._load()
        except BaseException:
            # Chroma caches a failed client and would keep failing.
            import_module("chromadb.api.client").Client.clear_system_cache()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        super().__exit__(kind, error, trace)
        self._client.close()

    def _collection(self, identity: Identity) -> tuple[Any, set[str]]:
        """Return the collection of an identity and the digests in it, None and an empty set for none."""
        alike = [each for each in self._collections if (each.provider, each.model) == (identity.provider, identity.model)]
        exact = [each for each in alike if identity.dimensions in (0, each.dimensions)]
        return self._collections[exact[-1]] if exact else (None, set())

    def _get_or_create(self, identity: Identity) -> tuple[Any, set[str]]:
        if identity not in self._collections:
            identity_fields = {**msgspec.to_builtins(identity), "number": len(self._collections)}
            metadata = {"hnsw:space": "cosine", "hnsw:search_ef": SEARCH_EF, **identity_fields}
            name = f"vectors-{_collection_name(identity)}"
            collection = self._client.get_or_create_collection(name, metadata=metadata, embedding_function=None)
            self._collections[identity] = collection, set(collection.get(include=[])["ids"])
        return self._collections[identity]

    def _load(self) -> None:
        """Load the collections, deleting vectors that no chunk uses."""
        used = set(self._digests.values())
        for collection in sorted(self._client.list_collections(), key=lambda each: each.metadata["number"]):
            stored = set(collection.get(include=[])["ids"])
            for some in _batches(sorted(stored - used)):
                collection.delete(ids=some)
            self._collections[msgspec.convert(collection.metadata, Identity)] = collection, stored & used

    def unembedded(self, identity: Identity, limit: int) -> dict[str, str]:
        return self._without_vector(self._collection(identity)[1], limit)

    def count_unembedded(self, identity: Identity) -> int:
        return len(set(self._digests.values()).difference(self._collection(identity)[1]))

    def store_vectors(self, identity: Identity, vectors: Mapping[str, Sequence[float]]) -> None:
        self._check(identity, vectors)
        collection, stored = self._get_or_create(identity)
        for some in _batches(list(vectors)):
            collection.upsert(ids=some, embeddings=[list(vectors[digest]) for digest in some])
            stored.update(some)

    def nearest(
        self, identity: Identity, vector: Sequence[float], limit: int, scope: Scope = EVERYTHING
    ) -> dict[int, float]:
        collection, stored = self._collection(identity)
        allowed = self._allowed(scope)
        inside = {digest for key, digest in self._digests.items() if digest in stored and allowed(key)}
        if not inside:
            return {}
        asked: dict[str, Any] = {"query_embeddings": [list(vector)], "n_results": limit, "include": ["distances"]}
        if len(inside) < len(stored):
            asked["ids"] = sorted(inside)
        answer = collection.query(**asked)
        near = {digest: 1 - away for digest, away in zip(answer["ids"][0], answer["distances"][0], strict=True)}
        if len(near) < min(limit, len(inside)):  # its graph does not reach every one of many equal vectors
            near = _exact(collection, vector, inside)
        return best({key: near[it] for key, it in self._digests.items() if it in near and allowed(key)}, limit)

    def cosines(self, identity: Identity, vector: Sequence[float], keys: Collection[int]) -> dict[int, float]:
        collection, stored = self._collection(identity)
        digests = {key: it for key in keys if (it := self._digests.get(key, "")) in stored}
        if not digests:
            return {}
        near = _exact(collection, vector, set(digests.values()))
        return {key: near[digest] for key, digest in digests.items()}


def _collection_name(identity: Identity) -> str:
    """Return a name for an identity of letters and digits only."""
    return hashlib.sha256(msgspec.json.encode(identity)).hexdigest()[:32]


def _batches(digests: list[str]) -> Iterator[list[str]]:
    yield from (digests[at : at + CALL_LIMIT] for at in range(0, len(digests), CALL_LIMIT))


def _exact(collection: Any, vector: Sequence[float], digests: Collection[str]) -> dict[str, float]:
    """Return the cosine of a vector and each vector of `digests`."""
    np: Any = import_module("numpy")  # a dependency of Chroma
    cosines: dict[str, float] = {}
    for some in _batches(sorted(digests)):
        answer = collection.get(ids=some, include=["embeddings"])
        lengths = np.linalg.norm(answer["embeddings"], axis=1) * np.linalg.norm(vector)
        near = (answer["embeddings"] @ np.asarray(vector) / np.maximum(lengths, 1e-12)).tolist()
        cosines.update(zip(answer["ids"], near, strict=True))
    return cosines
