"""Words that mean nearly the same, and what they do for a search."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from plugins.memory.index.indexer import refresh
from plugins.memory.index.sqlite_backend import MemoryIndex
from plugins.memory.search.related_words import RelatedWords, closeness, related_words
from plugins.memory.search.search import Question, found_for
from plugins.memory.sources.notes import Notes
from plugins.support.text.stemming import ENGLISH
from tests.memory.places import TODAY


def test_of_a_word_the_nearest_come_first_and_of_others_nothing() -> None:
    table = related_words()
    assert list(table.of("kids"))[:2] == ["children", "kid"]
    assert table.of("kids")["children"] > table.of("kids")["boys"] > 0
    for unknown in ("", "zzzqqq", "Kids", "the", "детей", "a" * 20_000, "kids\nchildren"):
        assert table.of(unknown) == {}


def test_the_table_is_whole() -> None:
    table = related_words()
    words = table._words
    assert words == sorted(set(words))
    for word in random.Random(1).sample(words, 500):
        related = table.of(word)
        assert word not in related
        assert related.keys() <= set(words)
        assert all(0 < close <= 1 for close in related.values())


def test_a_table_is_read_at_both_of_its_ends() -> None:
    table = RelatedWords(b"\x03\0\0\0\x08\0\0\0aa\nbb\ncc\x01\x00\x02\x02\0\x00\0\x01\0\xff\x80\x01")
    assert table.of("aa") == {"cc": 1.0}
    assert table.of("bb") == {}
    assert table.of("cc") == {"aa": pytest.approx(0.502, abs=0.001), "bb": pytest.approx(0.004, abs=0.001)}


def test_a_word_as_typed_or_inflected_counts_fully_and_a_related_one_in_part() -> None:
    shares = {"kids": 0.6, "adopt": 0.4}
    texts = {1: "two children", 2: "they adopted a dog", 3: "kids", 4: "nothing"}
    found = closeness(shares, texts, {1: (), 2: (), 3: (("kids", 0.6),), 4: ()}, ENGLISH)
    assert 0 < found[1][0] < 0.6
    assert found[1][1] == 0
    assert found[2] == (0, 0.4)
    assert found[3] == (0.6, 0)
    assert found[4] == (0, 0)


def test_in_another_language_only_the_words_as_typed_count() -> None:
    """ "die" and "war" are words of two languages."""
    found = closeness({"war": 1.0}, {1: "peace battle", 2: "war"}, {1: (), 2: (("war", 1.0),)}, "german")
    assert found == {1: (0.0,), 2: (1.0,)}


def test_a_search_knows_how_close_each_chunk_is(tmp_path: Path) -> None:
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "2026-11-01.md").write_text(
        "# Day\n\n## Ana, 9:00\n\nI fetch the kids.\n\n## Ben, 9:01\n\nYour children are big.\n\n## Ana, 9:02\n\nYes!\n"
    )
    index = MemoryIndex(tmp_path / "memory.sqlite")
    with index:
        refresh(index, [Notes(tmp_path)])
        _, found = found_for(index, Question(text="kids"), results=6, multiplier=4, today=TODAY)
    closest = {each.text.strip(): sum(each.closest) for each in found}
    assert closest["I fetch the kids."] == pytest.approx(1.0)
    assert closest["I fetch the kids."] > closest["Your children are big."] > closest["Yes!"] == 0
