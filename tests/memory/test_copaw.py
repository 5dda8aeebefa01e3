"""The fusion "copaw": what CoPaw's documentation says that a search finds, on a real index."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from plugins.api.memory.memory_backend import Identity
from plugins.api.memory_settings import Fusion, SearchKeys
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.search.search import MOST_CANDIDATES, Hit, Question, found_for, rules_of, search
from plugins.testing.memory_backend_checks import document
from tests.memory.places import TODAY

MODEL = Identity(provider="p", model="m", dimensions=2)


def found(
    folder: Path, notes: dict[str, str], question: str, vectors: dict[str, list[float]] | None = None, **keys: Any
) -> dict[str, Hit]:
    """Return the results of a search by path, best first. A note has the vector that `vectors` gives to its path, and the
    question that of ""."""
    with MemoryIndex(folder / "memory.sqlite") as index:
        index.store(document(path, text) for path, text in notes.items())
        asked = Question(text=question)
        if vectors is not None:
            texts = index.unembedded(MODEL, 1_000)
            of = {digest: next(path for path, text in notes.items() if text in known) for digest, known in texts.items()}
            index.store_vectors(MODEL, {digest: vectors[path] for digest, path in of.items()})
            asked = msgspec.structs.replace(asked, identity=MODEL, vector=vectors[""])
        settings = msgspec.convert({"fusion": "copaw", **keys}, SearchKeys)
        hits = search(index, asked, rules_of(settings), multiplier=settings.candidate_multiplier, today=TODAY)
    return {hit.chunk.path: hit for hit in hits}


def error_text(hit: Hit) -> float:
    """The keyword score of a hit."""
    (score,) = [part.value for part in hit.ranked.parts if part.name == "share of the words"]
    return score


@pytest.mark.parametrize(
    ("question", "text", "score"),
    [
        ("database connection timeout", "The database went away after a timeout.", 2 / 3),
        ("database connection timeout", "It was a database connection timeout.", 1.0),
        ("database connection timeout", "A timeout of the connection to the database.", 1.0),
        ("database connection timeout?", "A Database Connection Timeout.", 1.0),
        ("connection DATABASE", "the DataBase", 0.5),
        ("reconnect socket", "a disconnection, a reconnection", 0.5),
        ("the database is gone", "It is gone with the wind.", 3 / 4),
        ("the database is gone", "the database is not gone", 1.0),
    ],
)
def test_the_keyword_score_is_the_share_of_the_terms_as_they_were_typed(
    question: str, text: str, score: float, tmp_path: Path
) -> None:
    hits = found(tmp_path, {"memory/a.md": text}, question)
    assert error_text(hits["memory/a.md"]) == pytest.approx(score)
    assert hits["memory/a.md"].ranked.score == pytest.approx(0.3 * score)  # found by its words alone


HITS_AND_MISSES = [
    (
        "handleWebSocketReconnect",
        "Fixed null pointer exception in handleWebSocketReconnect",
        "WebSocket disconnection reconnection handling logic",
    ),
    ("ECONNREFUSED", "The log says: connect ECONNREFUSED 10.0.0.7:5432", "Database connection refused"),
]


@pytest.mark.parametrize(("question", "hit", "miss"), HITS_AND_MISSES)
def test_the_words_hit_and_miss_what_the_seeds_say(question: str, hit: str, miss: str, tmp_path: Path) -> None:
    notes = {"memory/hit.md": hit, "memory/miss.md": miss}
    assert list(found(tmp_path, notes, question)) == ["memory/hit.md"]


@pytest.mark.parametrize(("question", "hit", "miss"), HITS_AND_MISSES)
def test_what_the_words_miss_is_found_by_its_vector_alone(question: str, hit: str, miss: str, tmp_path: Path) -> None:
    notes = {"memory/hit.md": hit, "memory/miss.md": miss}
    vectors = {"": [1.0, 0.0], "memory/hit.md": [0.6, 0.8], "memory/miss.md": [0.8, 0.6]}
    hits = found(tmp_path, notes, question, vectors)
    assert list(hits) == ["memory/hit.md", "memory/miss.md"]
    assert hits["memory/miss.md"].ranked.score == pytest.approx(0.7 * 0.8, abs=0.001)
    assert hits["memory/hit.md"].ranked.score == pytest.approx(0.7 * 0.6 + 0.3, abs=0.001)


def test_what_only_the_words_recall_has_three_tenths_of_their_score_whatever_its_vector_is(tmp_path: Path) -> None:
    notes = {"memory/words.md": "the timeout of the database", "memory/far.md": "it went away", "memory/farther.md": "gone"}
    vectors = {
        "": [1.0, 0.0],
        "memory/words.md": [0.1, 0.995],
        "memory/far.md": [0.3, 0.954],
        "memory/farther.md": [0.2, 0.98],
    }
    # Two candidates for each leg: the vectors' are the other two notes.
    hits = found(tmp_path, notes, "database timeout", vectors, max_results=2, candidate_multiplier=1)
    assert {path: round(hit.ranked.score, 2) for path, hit in hits.items()} == {
        "memory/words.md": 0.3,
        "memory/far.md": 0.21,
    }
    hits = found(tmp_path, notes, "database timeout", vectors, max_results=2, candidate_multiplier=2)
    assert round(hits["memory/words.md"].ranked.score, 2) == 0.37


def test_what_stands_beside_a_hit_is_none(tmp_path: Path) -> None:
    sections = "".join(
        f"# {number}\n\n{text}\n\n" for number, text in enumerate(["alpha " * 90, "the timeout", "beta " * 90])
    )
    (hit,) = found(tmp_path, {"memory/a.md": sections}, "timeout").values()
    assert "the timeout" in hit.chunk.text


OLD = f"memory/{TODAY - timedelta(days=60)}.md"
NEAR_DUPLICATES = {
    OLD: "the timeout again and again",
    "memory/b.md": "the timeout again and again",
    "memory/c.md": "a timeout",
}


def test_age_and_likeness_count_nothing_unless_somebody_asks_for_it(tmp_path: Path) -> None:
    def scores(**keys: Any) -> dict[str, float]:
        hits = found(tmp_path, NEAR_DUPLICATES, "the timeout", **keys)
        return {path: round(hit.ranked.score, 3) for path, hit in hits.items()}

    assert scores() == {OLD: 0.3, "memory/b.md": 0.3, "memory/c.md": 0.15}
    assert scores(temporal_decay={"enabled": True}) == {"memory/b.md": 0.3, "memory/c.md": 0.15, OLD: 0.075}
    diverse = scores(mmr={"enabled": True, "lambda": 0.1}, max_results=2)
    assert list(diverse) == [OLD, "memory/c.md"]


@pytest.mark.parametrize(("fusion", "asked_for"), [("measured", True), ("openclaw", True), ("rrf", True), ("copaw", False)])
def test_the_other_fusions_have_both_unless_somebody_switches_them_off(fusion: Fusion, asked_for: bool) -> None:
    rules = rules_of(SearchKeys(fusion=fusion))
    assert (rules.half_life_days is not None, rules.mmr_lambda is not None) == (asked_for, asked_for)
    off = msgspec.convert({"fusion": fusion, "temporal_decay": {"enabled": False}, "mmr": {"enabled": False}}, SearchKeys)
    assert (rules_of(off).half_life_days, rules_of(off).mmr_lambda) == (None, None)


@pytest.mark.parametrize("fusion", ["measured", "copaw"])
def test_each_leg_gives_two_hundred_candidates_and_never_more(fusion: Fusion, tmp_path: Path) -> None:
    keys = SearchKeys(fusion=fusion, max_results=50, candidate_multiplier=50)
    # The vectors find the first kind of notes, the words the second.
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        index.store(document(f"memory/near{number}.md", f"near number {number}") for number in range(230))
        index.store(document(f"memory/word{number}.md", f"tea {number}") for number in range(230))
        texts = index.unembedded(MODEL, 1_000)
        index.store_vectors(MODEL, {digest: [1.0, 0.1] if "near" in text else [-1.0, 0.1] for digest, text in texts.items()})
        asked = Question(text="tea", identity=MODEL, vector=[1.0, 0.0])
        _, candidates = found_for(
            index, asked, results=keys.max_results, multiplier=keys.candidate_multiplier, today=TODAY, fusion=fusion
        )
        hits = search(index, asked, rules_of(keys), multiplier=keys.candidate_multiplier, today=TODAY)
    near = sum("near" in each.text for each in candidates)
    words = sum("tea" in each.text for each in candidates)
    assert (near, words, MOST_CANDIDATES) == (200, 200, 200)
    assert len(hits) == 50
