"""What has nothing in common with a question is no hit, and neither is the question itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from plugins.api.memory.chunks import Chunk
from plugins.api.memory.memory_backend import Document, Identity
from plugins.api.memory.source import Reading
from plugins.api.memory_settings import Fusion, SearchKeys
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.search.search import Question, found_for, rules_of, search
from plugins.providers.local import installable_models
from plugins.testing.memory_backend_checks import document
from tests.memory.places import TODAY

BUNDLED = Identity(provider="local", model="all-minilm-l6-v2-int8", dimensions=2)
OTHER = Identity(provider="p", model="nobody-knows-it", dimensions=2)

NOTES = {
    "memory/tea.md": "Ana drinks tea.",
    "memory/boat.md": "We sail on Sundays.",
    "memory/cat.md": "The cat is called Mia.",
}
FUSIONS: tuple[Fusion, ...] = ("measured", "openclaw", "copaw", "rrf")


def found(
    index: MemoryIndex, question: str, cosine: dict[str, float] | None, by: Identity = BUNDLED, **keys: Any
) -> list[str]:
    """The paths that a search finds where the question has these cosines with the notes."""
    asked = Question(text=question)
    if cosine is not None:
        for digest, text in index.unembedded(by, 100).items():
            near = next(value for path, value in cosine.items() if NOTES[path] in text)
            index.store_vectors(by, {digest: [near, (1 - near * near) ** 0.5]})
        asked = msgspec.structs.replace(asked, identity=by, vector=[1.0, 0.0])
    hits = search(index, asked, rules_of(msgspec.convert(keys, SearchKeys)), multiplier=4, today=TODAY)
    return [hit.chunk.path for hit in hits]


@pytest.fixture
def index(tmp_path: Path) -> Any:
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        index.store(document(path, text) for path, text in NOTES.items())
        yield index


def test_of_two_turns_the_one_with_a_time_answers_when(tmp_path: Path) -> None:
    turns = {"memory/a.md": "We painted the boat with Ana.", "memory/b.md": "We painted the boat last week."}
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        index.store(document(path, text) for path, text in turns.items())
        assert found(index, "When did we paint the boat?", None) == ["memory/b.md", "memory/a.md"]
        assert found(index, "Where did we paint the boat?", None) == ["memory/a.md", "memory/b.md"]


@pytest.mark.parametrize("fusion", ["measured", "openclaw", "rrf"])
def test_what_has_neither_a_word_nor_the_meaning_of_the_question_is_no_hit(index: MemoryIndex, fusion: Fusion) -> None:
    far = {"memory/tea.md": 0.13, "memory/boat.md": 0.1, "memory/cat.md": -0.1}
    assert found(index, "zzzqqq", far, fusion=fusion) == []
    assert found(index, "tea", far, fusion=fusion) == ["memory/tea.md"]
    assert found(index, "zzzqqq", None, fusion=fusion) == []


@pytest.mark.parametrize("fusion", FUSIONS)
def test_what_has_its_meaning_alone_is_one(index: MemoryIndex, fusion: Fusion) -> None:
    near = {"memory/tea.md": 0.35, "memory/boat.md": -0.1, "memory/cat.md": -0.2}
    assert found(index, "zzzqqq", near, fusion=fusion) == ["memory/tea.md"]


def test_of_a_model_that_is_not_known_only_what_points_away_is_no_hit(index: MemoryIndex) -> None:
    far = {"memory/tea.md": 0.2, "memory/boat.md": 0.1, "memory/cat.md": -0.1}
    assert found(index, "zzzqqq", far, OTHER) == ["memory/tea.md", "memory/boat.md"]


def test_what_stands_beside_a_hit_still_may_be_one(tmp_path: Path) -> None:
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        index.store([document("memory/a.md", "# Where\n\nWhere is the key?\n\n# There\n\nBehind the barometer.\n")])
        hits = search(index, Question(text="key"), rules_of(SearchKeys()), multiplier=4, today=TODAY)
    assert [hit.chunk.first for hit in hits] == [3, 7]


def said(number: int, text: str, *senders: str) -> Document:
    """An exchange of a session."""
    path = f"sessions/{number}.jsonl"
    chunk = Chunk(path=path, first=2, last=4, headings=("main",), text=text, owner="ana", senders=senders, source="sessions")
    return Document(path=path, source="sessions", stamp="1", reading=Reading(chunks=[chunk]))


def test_lines_that_begin_with_a_speaker_are_turns(tmp_path: Path) -> None:
    talk = "ana: Where is the key?\n**Ben:** Behind the barometer.\n小明：在门后面。\nIt is not."
    code = "try:\n    x = 1\nelse:\n    key = 2"
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        index.store([document("memory/a.md", talk), document("memory/b.md", code)])
        _, candidates = found_for(index, Question(text="key"), results=6, multiplier=4, today=TODAY)
    assert {each.note: each.turns for each in candidates} == {"memory/a.md": 3, "memory/b.md": 0}


@pytest.mark.parametrize("fusion", FUSIONS)
def test_a_question_that_nobody_answered_is_no_answer(fusion: Fusion, tmp_path: Path) -> None:
    question = "Where does the spare key\nof the boathouse hang?"
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        index.store(
            [
                said(1, f"ana: {question}", "ana"),
                said(2, f"ana: {question}\nassistant: Behind the barometer.", "ana", "assistant"),
                said(3, f"ana: {question} It is not in the drawer.", "ana"),
                said(4, f"ana: {question} And the spare key of the boat?", "ana"),
                said(5, "ana: Who has the spare key? And the boathouse?", "ana"),
                document("memory/keys.md", question),
            ]
        )
        rules = rules_of(SearchKeys(fusion=fusion))
        hits = search(index, Question(text=f" {question.upper()} "), rules, multiplier=4, today=TODAY)
    assert {hit.chunk.path for hit in hits} == {"sessions/2.jsonl", "sessions/3.jsonl", "memory/keys.md"}


@pytest.mark.skipif(installable_models.BUNDLED.weights() is None, reason="the bundled model, an extra, is not installed")
def test_what_a_made_up_word_is_near_to_is_little_and_the_seeds_examples_are_found(tmp_path: Path) -> None:
    from plugins.providers.local.minilm_model import MiniLM

    weights = installable_models.BUNDLED.weights()
    assert weights
    model, real = MiniLM(weights), msgspec.structs.replace(BUNDLED, dimensions=384)
    examples = {
        "Database choice for the project": "Finally decided to replace MySQL with PostgreSQL",
        "How to reduce unnecessary rebuilds": "Configured incremental compilation to avoid full builds",
        "Performance issue discussed last time": "Optimized P99 latency from 800ms to 200ms",
    }
    notes = (*examples.values(), *NOTES.values(), "Rust is her language.", "The code of the door is 4711.")
    with MemoryIndex(tmp_path / "memory.sqlite") as index:
        index.store([document("MEMORY.md", "\n\n".join(f"# {at}\n\n{text}" for at, text in enumerate(notes)))])
        texts = index.unembedded(real, 100)
        index.store_vectors(real, dict(zip(texts, model.embed(list(texts.values())), strict=True)))

        def texts_found(question: str, **keys: Any) -> list[str]:
            asked = Question(text=question, identity=real, vector=model.embed([question])[0])
            hits = search(index, asked, rules_of(SearchKeys(**keys)), multiplier=4, today=TODAY)
            return [hit.chunk.text for hit in hits]

        assert {question: texts_found(question, fusion="copaw")[0] for question in examples} == examples
        assert {question: texts_found(question)[:1] for question in examples} == {
            "Database choice for the project": [],  # a cosine of 0.14, that of an invented word is 0.19
            "How to reduce unnecessary rebuilds": ["Configured incremental compilation to avoid full builds"],
            "Performance issue discussed last time": ["Optimized P99 latency from 800ms to 200ms"],
        }
        assert len(texts_found("zzzqqq", fusion="openclaw")) <= 2
        assert [texts_found(question) for question in ("zzzqqq", "Where is my passport?", "Fix the router!")] == [[], [], []]
        assert texts_found("cat") == ["The cat is called Mia."]
