"""Notes in many scripts are found by keywords only."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.api.memory.scope import EVERYTHING
from plugins.support.text.words import indexed, quoted, sought, word_set
from sessions.catalog.sqlite import in_memory
from tests.memory.languages.notes import read_notes
from tests.memory.places import Place

OPERATORS = "\"'*^():{}[]+-~,.;|&!=<>\0\ud800\udfff\u200b\u202e%_\\/@# \n\tANDORNOTNEAR"


@pytest.fixture
def place(tmp_path: Path) -> Place:
    there = Place(tmp_path)
    there.put("MEMORY.md", "something\n")
    return there


def test_there_are_enough_notes_and_questions_of_each_kind() -> None:
    notes = read_notes()
    assert len(notes) >= 120
    assert len({note.note for note in notes}) == len(notes)
    assert len({note.note[:2] for note in notes}) >= 12
    assert min(sum(bool(note.exact) for note in notes), sum(bool(note.cross) for note in notes)) >= 60


async def test_words_alone_find_the_note_that_answers_in_every_script(tmp_path: Path) -> None:
    notes = read_notes()
    place = Place(tmp_path)
    for note in notes:
        place.put(note.path, note.text + "\n")
    asked, missed = 0, []
    async with place.memory() as memory:
        for note in notes:
            if note.exact:
                asked += 1
                found = [hit.chunk.path for hit in (await memory.search(note.exact, EVERYTHING, results=5)).hits]
                if note.path not in found:
                    missed.append((note.note, note.exact, found))
    assert len(missed) <= 0.1 * asked, missed


@pytest.mark.parametrize(
    ("note", "question"),
    [
        ("ＡＢＣ－１２０", "abc-120"),
        ("ﾌﾟﾘﾝﾀｰ", "プリンター"),
        ("STRASSE", "Straße"),
        ("Cafe\u0301", "CAFÉ"),
        ("Café", "cafe"),
        ("Müller", "Mueller"),
        ("Müller", "muller"),
        ("œuvre", "oeuvre"),
        ("Łódź", "lodz"),
        ("İstanbul'daki", "istanbul"),
        ("ёлка", "елка"),
        ("المُدَرِّسَة", "مدرسة"),
        ("بالمكتب", "المكتب"),
        ("٢٠٢٥", "2025"),
        ("שָׁלוֹם", "שלום"),
        ("दवाइयाँ", "दवाई"),
        ("차를", "차"),
        ("昨天带猫去看了医生", "猫吃什么？"),
        ("借りた本を返す", "本"),
        ("reserve-tokens", "reserveTokens"),
        ("reserve_tokens", "reserve tokens"),
        ("handleWebSocket", "handle_web_socket"),
        ("HTTP502", "http 502"),
        ("src/app/db/pool_config.py", "pool_config"),
        ("a.person@example.org", "A.Person@example.org"),
        ("v2.10.0-rc.1", "2.10.0"),
        ("ORA-00942", "ora 00942"),
        ("soft\u00adware", "software"),
        ("0123456789abcdef" * 40, "0123456789ABCDEF" * 40),
    ],
)
def test_one_word_is_found_however_it_is_written(note: str, question: str) -> None:
    assert not word_set(note).isdisjoint(sought(question))


@pytest.mark.parametrize(
    ("question", "words"),
    [
        ("Where did I put the violin?", ["put", "violin"]),
        ("Wo ist die Karte?", ["karte", "kart"]),
        ("who wanted to die?", ["wanted", "die"]),
        ("Где ключи от дачи?", ["ключ", "дач"]),
        ("متى الاجتماع في القاهرة؟", ["اجتماع", "قاهر"]),
    ],
)
def test_what_questions_are_made_of_is_left_out_by_their_language(question: str, words: list[str]) -> None:
    assert sought(question) == words


@pytest.mark.parametrize("question", ["Who is it?", "Was ist das?", "什么时候", "что это", "ما هذا", "どこ", "언제"])
def test_a_question_of_nothing_else_keeps_its_words(question: str) -> None:
    assert sought(question)


@settings(deadline=None)
@given(st.text(st.one_of(st.characters(exclude_categories=()), st.sampled_from(OPERATORS))))
def test_every_text_has_words_that_a_query_can_hold(text: str) -> None:
    words = sought(text)
    assert set(words) <= word_set(text)
    db = in_memory()
    db.execute("CREATE VIRTUAL TABLE words USING fts5 (text)")
    db.execute("INSERT INTO words (text) VALUES (?)", (indexed(text),))
    for word in [*words, text.encode("utf-8", "replace").decode()]:
        db.execute("SELECT bm25(words) FROM words WHERE words MATCH ?", (quoted(word),)).fetchall()
    db.close()


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.text(st.one_of(st.characters(exclude_categories=()), st.sampled_from(OPERATORS))), max_size=10))
def test_no_question_breaks_a_search(place: Place, questions: list[str]) -> None:
    async def ask() -> None:
        async with place.memory() as memory:
            for question in [*questions, "something"]:
                found = await memory.search(question, EVERYTHING)
            assert [hit.citation for hit in found.hits] == ["MEMORY.md#L1-L1"]

    asyncio.run(ask())
