"""The importance of facts, their ranking for a message, and their retention."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.api.fact_values import (
    Fact,
    InvalidFact,
    validate_content,
    validate_importance,
    validate_tags,
    validate_type,
    workspace_tag,
)
from plugins.api.memory_settings import FactKeys, Formula
from plugins.facts.fact_events import FactForgotten, FactPinned, FactsWritten, LoggedFactEvent
from plugins.facts.fact_recall import Recaller
from plugins.facts.retention import drop_beyond_cap, drop_duplicates, drop_outdated, pin_refusal
from plugins.facts.scoring import RecallStats, current_importance, duplicates, similarity
from tests.facts.samples import NOW, ago, build_book, fact


def recall(message: str, facts: list[Fact], formula: Formula = "measured") -> list[RecallStats]:
    book = build_book([FactsWritten(entries=tuple(facts), by="ann")], ago(0))
    return Recaller(book).recall(message, NOW, lambda _: True, formula=formula)


def test_importance_holds_for_thirty_days_without_use_then_halves_in_thirty_more() -> None:
    assert current_importance(fact("x", importance=0.8, created=ago(30)), NOW) == pytest.approx(0.8)
    assert current_importance(fact("x", importance=0.8, created=ago(60)), NOW) == pytest.approx(0.4)
    assert current_importance(fact("x", importance=0.8, created=ago(90)), NOW) == pytest.approx(0.2)
    assert current_importance(fact("x", importance=0.8, created=ago(1000)), NOW) == pytest.approx(0.1)
    assert current_importance(fact("x", importance=0.8, created=ago(1000), used=ago(5)), NOW) == pytest.approx(0.8)
    assert current_importance(fact("x", importance=0.8, created=ago(1000), pinned=True), NOW) == pytest.approx(0.8)


def test_the_formula_of_the_reference_is_overlap_by_importance_by_recency_and_staleness() -> None:
    (found,) = recall("which port does the API use", [fact("API runs on port 3000", importance=0.8)], "coclaw")
    assert found.overlap == pytest.approx(2 / 3)  # port and API of port, API and use
    assert found.score == pytest.approx(2 / 3 * 0.8)
    (old,) = recall("port", [fact("API runs on port 3000", importance=0.8, created=ago(14))], "coclaw")
    assert old.score == pytest.approx(0.8 * (0.5 + 0.5 * 0.25))
    (stale,) = recall("port", [fact("API runs on port 3000", importance=0.8, created=ago(21))], "coclaw")
    assert stale.score == pytest.approx(0.8 * (0.5 + 0.5 * 0.125) * 0.5)


def test_what_shares_no_word_is_not_recalled_and_a_rare_word_decides() -> None:
    facts = [fact(f"the server of customer {name}") for name in ("Ada", "Bob", "Cy")]
    assert recall("good morning", facts) == []
    assert recall("", facts) == []
    assert recall("the server of Bob", facts)[0].fact == facts[1]


def test_words_of_every_script_are_recalled() -> None:
    for content, message in (
        ("用户喜欢喝咖啡", "咖啡"),
        ("Мой любимый язык Rust", "какой мой любимый язык"),
        ("ポートは三千番です", "ポート"),
    ):
        assert [found.fact.content for found in recall(message, [fact(content)])] == [content]


def test_two_facts_say_the_same_above_sixty_percent_of_the_union() -> None:
    assert similarity(frozenset("abcde"), frozenset("abc")) == pytest.approx(0.6)
    long, short = fact("alpha beta gamma delta epsilon zeta"), fact("alpha beta")
    assert duplicates([long, short], NOW) == {}  # a short fact inside a long one is none
    older = fact("Alpha beta gamma delta", created=ago(3), importance=0.5)
    newer = fact("alpha beta gamma delta.", created=ago(1), importance=0.5)
    assert duplicates([older, newer], NOW) == {older.id: newer.id}


def test_pins_and_other_peoples_facts_are_no_duplicates() -> None:
    one, two = fact("alpha beta gamma", pinned=True, id="1"), fact("alpha beta gamma", pinned=True, id="2")
    assert duplicates([one, two], NOW) == {}
    anns, bobs = fact("alpha beta gamma", owner="ann", id="3"), fact("alpha beta gamma", owner="bob", id="4")
    assert duplicates([anns, bobs], NOW) == {}


def test_daily_facts_leave_after_thirty_days_and_pins_stay() -> None:
    old, pinned, fresh = fact("a", created=ago(31)), fact("b", created=ago(31), pinned=True), fact("c", created=ago(29))
    book = build_book([FactsWritten(entries=(old, pinned, fresh), by="ann")], ago(0))
    gone = drop_outdated(book, FactKeys(), NOW)
    assert gone is not None
    assert gone.ids == (old.id,)
    assert drop_outdated(book, FactKeys(), NOW - timedelta(days=2)) is None


def test_of_too_many_long_term_facts_the_least_important_leave_and_never_a_pin() -> None:
    facts = [fact(f"fact {n}", importance=0.3 + n / 200, layer="longterm", pinned=n == 0) for n in range(103)]
    book = build_book([FactsWritten(entries=tuple(facts), by="ann")], ago(0))
    gone = drop_beyond_cap(book, FactKeys(cap=100), NOW)
    assert gone is not None
    assert gone.ids == (facts[1].id, facts[2].id, facts[3].id)
    assert drop_beyond_cap(book, FactKeys(cap=103), NOW) is None


def test_a_pin_beyond_the_cap_is_refused_with_a_sentence() -> None:
    facts = [fact(f"fact {n}", layer="longterm", pinned=n < 2) for n in range(3)]
    book = build_book([FactsWritten(entries=tuple(facts), by="ann")], ago(0))
    assert pin_refusal(book, facts[2], FactKeys(cap=3)) == ""
    assert pin_refusal(book, facts[2], FactKeys(cap=2)).startswith("2 facts are pinned")


def test_what_is_said_twice_leaves_with_the_name_of_what_stays() -> None:
    one, two = fact("the port is 3000", layer="longterm", id="1"), fact("The port is 3000!", layer="longterm", id="2")
    gone = drop_duplicates(build_book([FactsWritten(entries=(one, two), by="ann")], ago(0)), NOW)
    assert gone is not None
    assert (gone.ids, gone.kept, gone.why) == (("2",), ("1",), "duplicate")


@given(st.lists(st.text("ab c", max_size=12), max_size=8), st.text("ab c", max_size=12))
def test_scores_are_numbers_in_order_and_say_what_they_are_made_of(contents: list[str], message: str) -> None:
    facts = [fact(content, id=str(n)) for n, content in enumerate(contents)]
    found = recall(message, facts)
    assert [each.score for each in found] == sorted((each.score for each in found), reverse=True)
    for each in found:
        assert 0 < each.score <= 1
        assert each.score == pytest.approx(each.overlap * each.importance * (0.5 + 0.5 * each.recency) * each.staleness)


def test_a_fact_is_one_line_of_words_with_a_known_type_and_bounded_tags() -> None:
    assert validate_content("  two\nlines\x00 \ud800") == "two lines \ufffd"
    assert validate_importance(7) == 1.0
    assert validate_importance(0.1) == 0.3
    assert validate_tags(["a ", "a", "", "b"]) == ("a", "b")
    assert validate_type("pattern") == "pattern"
    for refused in (
        lambda: validate_content(" \n"),
        lambda: validate_content("x" * 2001),
        lambda: validate_importance(float("nan")),
        lambda: validate_tags(["x" * 81]),
        lambda: validate_tags([f"tag {number}" for number in range(17)]),
        lambda: validate_type("opinion"),
    ):
        with pytest.raises(InvalidFact):
            refused()


def test_a_fact_of_another_workspace_is_hidden_and_one_of_none_is_known_everywhere(tmp_path: Path) -> None:
    here, elsewhere = workspace_tag(tmp_path / "a"), workspace_tag(tmp_path / "b")
    assert here != elsewhere
    assert here == workspace_tag(tmp_path / "b" / ".." / "a")
    assert fact("x", tags=(here, "y")).is_known_in(here)
    assert not fact("x", tags=(elsewhere,)).is_known_in(here)
    assert fact("x", tags=("y",)).is_known_in(here)


def test_the_words_follow_the_book_when_facts_come_change_and_leave() -> None:
    book = build_book([FactsWritten(entries=(fact("likes tea", id="1"), fact("likes coffee", id="2")), by="ann")], ago(0))
    recaller = Recaller(book)
    assert [each.fact.id for each in recaller.recall("coffee", NOW, lambda _: True)] == ["2"]
    book.apply(LoggedFactEvent(seq=2, at=ago(0), event=FactForgotten(id="2", by="ann")))
    assert recaller.recall("coffee", NOW, lambda _: True) == []
    book.apply(LoggedFactEvent(seq=3, at=ago(0), event=FactPinned(id="1", pinned=True, by="ann")))
    (found,) = recaller.recall("tea", NOW, lambda _: True)
    assert found.fact.pinned
    assert recaller.recall("tea", NOW, lambda _: False) == []


def test_another_number_is_another_fact_however_many_words_are_the_same() -> None:
    one = fact("the flight to Oslo leaves on the 3rd of December at 7", layer="longterm", id="1")
    two = fact("the flight to Oslo leaves on the 5th of December at 11", layer="longterm", id="2")
    more = fact("the flight to Oslo leaves on the 5th of December at 11 gate 4", layer="longterm", id="3")
    assert duplicates([one, two], NOW) == {}
    assert list(duplicates([two, more], NOW).values()) in (["2"], ["3"])


@given(st.lists(st.lists(st.sampled_from("abcdefgh"), min_size=1, max_size=6), max_size=12), st.sampled_from("abcdefgh"))
def test_recall_from_a_part_on_is_recall_and_then_the_part(facts: list[list[str]], asked: str) -> None:
    there = tuple(fact(" ".join(f"w{word}" for word in words), id=str(n)) for n, words in enumerate(facts))
    recaller = Recaller(build_book([FactsWritten(entries=there, by="ann")], ago(0)))
    question = f"w{asked} wa wb wc"
    formulas: tuple[Formula, ...] = ("measured", "coclaw")
    for formula in formulas:
        every = recaller.recall(question, NOW, lambda _: True, formula=formula)
        some = recaller.recall(question, NOW, lambda _: True, formula=formula, least=0.34)
        assert some == [each for each in every if each.overlap >= 0.34]
