"""The kit for memory backends: what is broken in one way fails the check for it. The built-ins run it in tests/memory."""

from __future__ import annotations

import array
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec
import pytest

from exuvia import MemoryBackendConformance
from plugins.api.memory.chunks import Chunk
from plugins.api.memory.memory_backend import Document, Identity
from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.memory.backends.local import LocalBackend
from tests.conformance.biting import bites, checks_of


class KnowsNoStems(LocalBackend):
    def keywords(self, words: Sequence[str], limit: int, scope: Scope = EVERYTHING) -> dict[int, float]:
        return super().keywords([word for word in words if word in ("milk", "tea")], limit, scope)


class WeighsAllAlike(LocalBackend):
    def keywords(self, words: Sequence[str], limit: int, scope: Scope = EVERYTHING) -> dict[int, float]:
        return dict.fromkeys(sorted(super().keywords(words, 99, scope))[:limit], 1.0)


class LooksInsideNothing(LocalBackend):
    def keywords(self, words: Sequence[str], limit: int, scope: Scope = EVERYTHING) -> dict[int, float]:
        return super().keywords([word for word in words if self.word_counts([word])[1][word]], limit, scope)


class TakesQuotesForCommands(LocalBackend):
    def keywords(self, words: Sequence[str], limit: int, scope: Scope = EVERYTHING) -> dict[int, float]:
        if any('"' in word for word in words):
            raise OSError("syntax error")
        return super().keywords(words, limit, scope)


class ForgetsNothing(LocalBackend):
    def remove(self, paths: Sequence[str]) -> None:
        """Do nothing."""


class LooksBesideEverything(LocalBackend):
    def neighbours(self, keys: Collection[int], distance: int) -> set[int]:
        return {near for key in keys for near in range(key - distance, key + distance + 1) if near in self._chunks}


class ReadsFromTheBeginning(LocalBackend):
    def store(self, documents: Iterable[Document]) -> None:
        super().store(msgspec.structs.replace(each, reading=_whole(each)) for each in documents)


def _whole(document: Document) -> msgspec.Struct:
    return msgspec.structs.replace(document.reading, since=1)


class LosesSenders(LocalBackend):
    def chunks(self, keys: Collection[int], scope: Scope = EVERYTHING) -> dict[int, Chunk]:
        return {key: msgspec.structs.replace(it, senders=()) for key, it in super().chunks(keys, scope).items()}


class KeepsNoScope(LocalBackend):
    def nearest(
        self, identity: Identity, vector: Sequence[float], limit: int, scope: Scope = EVERYTHING
    ) -> dict[int, float]:
        return super().nearest(identity, vector, limit)


class NarrowsTooLate(LocalBackend):
    def keywords(self, words: Sequence[str], limit: int, scope: Scope = EVERYTHING) -> dict[int, float]:
        best = super().keywords(words, limit)
        return {key: best[key] for key in self.chunks(best, scope)}


class Multiplies(LocalBackend):
    def nearest(
        self, identity: Identity, vector: Sequence[float], limit: int, scope: Scope = EVERYTHING
    ) -> dict[int, float]:
        return {key: 2 * score for key, score in super().nearest(identity, vector, limit, scope).items()}


class TakesAnyLength(LocalBackend):
    def store_vectors(self, identity: Identity, vectors: Mapping[str, Sequence[float]]) -> None:
        super().store_vectors(identity, {it: (*vector, 0.0, 0.0)[: identity.dimensions] for it, vector in vectors.items()})


class TellsTheOldestFirst(LocalBackend):
    def unembedded(self, identity: Identity, limit: int) -> dict[str, str]:
        return dict(list(reversed(super().unembedded(identity, 999).items()))[:limit])


class KeepsNoVectors(LocalBackend):
    def store_vectors(self, identity: Identity, vectors: Mapping[str, Sequence[float]]) -> None:
        self._check(identity, vectors)
        self._store_vectors(identity, tuple(vectors), b"".join(array.array("f", it).tobytes() for it in vectors.values()))


class WritesOnlyAtTheEnd(LocalBackend):
    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._later: list[Document] = []

    def store(self, documents: Iterable[Document]) -> None:
        self._later.extend(documents)
        for each in self._later:
            self._store(each, ["" for _ in each.reading.chunks])


class ShowsEverybody(LocalBackend):
    def store(self, documents: Iterable[Document]) -> None:
        super().store(documents)
        for file in self.place.parent.iterdir():
            file.chmod(0o644)

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.place = place


BROKEN = {
    "test_keywords_find_notes": KnowsNoStems,
    "test_rare_words_weigh_more": WeighsAllAlike,
    "test_unknown_words_match_inside_words": LooksInsideNothing,
    "test_words_are_not_query_syntax": TakesQuotesForCommands,
    "test_documents_are_replaced_and_removed": ForgetsNothing,
    "test_consecutive_chunks_have_consecutive_keys": LooksBesideEverything,
    "test_a_grown_document_keeps_its_earlier_chunks": ReadsFromTheBeginning,
    "test_chunks_are_stored_unchanged": LosesSenders,
    "test_every_method_respects_the_scope": KeepsNoScope,
    "test_the_scope_applies_before_the_limit": NarrowsTooLate,
    "test_nearest_chunks_come_first": Multiplies,
    "test_vectors_of_different_models_are_separate": TakesAnyLength,
    "test_unembedded_returns_texts_without_a_vector": TellsTheOldestFirst,
    "test_everything_survives_a_restart": KeepsNoVectors,
    "test_two_processes_may_use_it": WritesOnlyAtTheEnd,
    "test_files_are_private": ShowsEverybody,
}


def test_every_check_has_a_backend_that_fails_it() -> None:
    assert BROKEN.keys() == checks_of(MemoryBackendConformance)


@pytest.mark.parametrize("check", BROKEN)
def test_a_broken_backend_fails_the_check_for_it(check: str, tmp_path: Path) -> None:
    for folder in ("sound", "broken"):
        (tmp_path / folder).mkdir()
    bites(MemoryBackendConformance, check, {"backend": LocalBackend}, {"backend": BROKEN[check]}, tmp_path)
