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
        return super().keywords([word for word in words if self.counts([word])[1][word]], limit, scope)


class TakesQuotesForCommands(LocalBackend):
    def keywords(self, words: Sequence[str], limit: int, scope: Scope = EVERYTHING) -> dict[int, float]:
        if any('"' in word for word in words):
            raise OSError("syntax error")
        return super().keywords(words, limit, scope)


class ForgetsNothing(LocalBackend):
    def forget(self, paths: Sequence[str]) -> None:
        """Do nothing."""


class LooksBesideEverything(LocalBackend):
    def beside(self, keys: Collection[int], away: int) -> set[int]:
        return {near for key in keys for near in range(key - away, key + away + 1) if near in self._chunks}


class ReadsFromTheBeginning(LocalBackend):
    def take(self, documents: Iterable[Document]) -> None:
        super().take(msgspec.structs.replace(each, reading=_whole(each)) for each in documents)


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
    def embed(self, identity: Identity, vectors: Mapping[str, Sequence[float]]) -> None:
        super().embed(identity, {it: (*vector, 0.0, 0.0)[: identity.dimensions] for it, vector in vectors.items()})


class TellsTheOldestFirst(LocalBackend):
    def unembedded(self, identity: Identity, limit: int) -> dict[str, str]:
        return dict(list(reversed(super().unembedded(identity, 999).items()))[:limit])


class KeepsNoVectors(LocalBackend):
    def embed(self, identity: Identity, vectors: Mapping[str, Sequence[float]]) -> None:
        self._check(identity, vectors)
        self._embed(identity, tuple(vectors), b"".join(array.array("f", it).tobytes() for it in vectors.values()))


class WritesOnlyAtTheEnd(LocalBackend):
    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self._later: list[Document] = []

    def take(self, documents: Iterable[Document]) -> None:
        self._later.extend(documents)
        for each in self._later:
            self._take(each, ["" for _ in each.reading.chunks])


class ShowsEverybody(LocalBackend):
    def take(self, documents: Iterable[Document]) -> None:
        super().take(documents)
        for file in self.place.parent.iterdir():
            file.chmod(0o644)

    def __init__(self, place: Path) -> None:
        super().__init__(place)
        self.place = place


BROKEN = {
    "test_notes_are_found_by_their_words": KnowsNoStems,
    "test_a_rare_word_tells_more_than_a_common_one": WeighsAllAlike,
    "test_a_word_that_nobody_has_is_looked_for_inside_of_words": LooksInsideNothing,
    "test_nothing_in_a_question_is_taken_for_a_command": TakesQuotesForCommands,
    "test_an_edit_replaces_the_whole_note_and_one_that_is_gone_is_not_found": ForgetsNothing,
    "test_chunks_that_follow_each_other_have_keys_that_do": LooksBesideEverything,
    "test_a_document_that_grew_keeps_what_was_read_before": ReadsFromTheBeginning,
    "test_a_chunk_comes_back_as_it_was": LosesSenders,
    "test_a_scope_is_kept_by_words_by_vectors_and_by_keys": KeepsNoScope,
    "test_a_narrow_scope_gives_as_many_as_are_asked_for": NarrowsTooLate,
    "test_the_nearest_come_first_with_their_cosines": Multiplies,
    "test_vectors_of_two_models_stand_side_by_side_and_never_meet": TakesAnyLength,
    "test_only_what_has_no_vector_is_to_be_embedded": TellsTheOldestFirst,
    "test_everything_is_there_again_after_a_restart": KeepsNoVectors,
    "test_two_may_be_open_at_once_and_both_find_what_is_right": WritesOnlyAtTheEnd,
    "test_nobody_else_may_read_what_it_keeps": ShowsEverybody,
}


def test_each_check_has_what_fails_it() -> None:
    assert BROKEN.keys() == checks_of(MemoryBackendConformance)


@pytest.mark.parametrize("check", BROKEN)
def test_what_is_broken_fails_the_check_for_it(check: str, tmp_path: Path) -> None:
    for folder in ("sound", "broken"):
        (tmp_path / folder).mkdir()
    bites(MemoryBackendConformance, check, {"backend": LocalBackend}, {"backend": BROKEN[check]}, tmp_path)
