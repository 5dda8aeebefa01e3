"""Ranking: the seeds' worked examples, and what must hold for any candidates."""

from __future__ import annotations

import random
from collections.abc import Sequence
from datetime import date

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from plugins.api.memory_settings import DecayKeys, Fusion, SearchKeys
from plugins.memory.search.candidates import Candidate, Part, Rules, ranked
from plugins.memory.search.fusion import fuse, phrase_score
from plugins.memory.search.ranking import ALIKE, decay_of, diverse, jaccard, rank
from plugins.memory.search.relevance import Asked, answering, asked
from plugins.memory.search.search import rules_of
from plugins.memory.search.weighted_fusion import WEIGHTS
from plugins.support.text.words import sought, word_set

TODAY = date(2026, 11, 21)

FUSIONS: tuple[Fusion, ...] = ("measured", "openclaw", "copaw", "rrf")


def fused(candidates: Sequence[Candidate], rules: Rules) -> dict[int, float]:
    """The scores before decay, by key."""
    return {key: sum(part.worth for part in parts) for key, parts in fuse(candidates, rules).items()}


def test_the_seeds_fusion_table_comes_out_from_its_leg_scores() -> None:
    legs = [(0.85, 1.0), (0.78, 0.0), (0.40, 0.5)]
    candidates = [Candidate(key=key, cosine=cosine, phrase=phrase) for key, (cosine, phrase) in enumerate(legs)]
    scores = fused(candidates, Rules(fusion="copaw"))
    assert [round(scores[key], 3) for key in range(3)] == [0.895, 0.546, 0.430]


def test_copaws_keyword_score_is_the_share_of_the_terms_and_a_phrase_is_worth_more() -> None:
    text = "The websocket drops its connection"
    assert phrase_score(["websocket", "connection", "reconnect"], "websocket connection reconnect", text) == pytest.approx(
        2 / 3
    )
    assert phrase_score(["its", "CONNECTION"], "its CONNECTION", text) == 1.0
    assert phrase_score(["handlewebsocketreconnect"], "handleWebSocketReconnect", "handleWebSocketReconnect fails") == 1.0
    assert phrase_score([], "", text) == 0.0


def test_openclaws_keyword_score_grows_with_the_rank_and_stays_below_one() -> None:
    scores = fused([Candidate(key=1, keywords=3.0), Candidate(key=2, keywords=1.0, cosine=0.5)], Rules(fusion="openclaw"))
    assert scores == {1: pytest.approx(0.3 * 0.75), 2: pytest.approx(0.7 * 0.5 + 0.3 * 0.5)}


def test_reciprocal_rank_fusion_counts_places() -> None:
    candidates = [Candidate(key=1, keywords=9, cosine=0.1), Candidate(key=2, keywords=1, cosine=0.2)]
    scores = fused(candidates, Rules(fusion="rrf", vector_weight=1, text_weight=1))
    assert scores[1] == pytest.approx(scores[2])
    assert scores[1] == pytest.approx(0.5 / 61 + 0.5 / 62)


@pytest.mark.parametrize(("days", "left"), [(0, 1.0), (7, 0.851), (30, 0.5), (90, 0.125), (-3, 1.0)])
def test_decay_halves_every_thirty_days(days: int, left: float) -> None:
    assert decay_of(date.fromordinal(TODAY.toordinal() - days), TODAY, 30) == pytest.approx(left, abs=0.0005)


def test_what_has_no_date_never_grows_old() -> None:
    assert decay_of(None, TODAY, 30) == 1.0
    assert decay_of(date(2020, 1, 1), TODAY, None) == 1.0


def test_the_minimum_score_is_compared_before_decay_so_that_last_years_note_is_found() -> None:
    old = Candidate(key=1, cosine=0.9, phrase=1.0, day=date(2025, 11, 21))
    (found,) = rank([old], Rules(fusion="copaw", min_score=0.5), TODAY)
    assert found.score < 0.01
    assert found.fused > 0.5


def test_age_takes_a_fiftieth_of_what_measured_says_and_all_of_what_the_seeds_say() -> None:
    assert [SearchKeys(fusion=fusion).temporal_decay.taken(fusion) for fusion in FUSIONS] == [0.02, 1.0, 1.0, 1.0]
    assert DecayKeys(share=0.5).taken("measured") == DecayKeys(share=0.5).taken("rrf") == 0.5


def test_of_two_notes_that_say_the_same_the_newer_comes_first_and_the_old_one_is_still_found() -> None:
    old = Candidate(key=1, note="a", cosine=0.9, day=date(2023, 5, 8))
    new = Candidate(key=9, note="b", cosine=0.9, day=TODAY)
    other = Candidate(key=20, note="c", cosine=0.5, day=TODAY)
    found = rank([old, new, other], Rules(decay_share=0.05, mmr_lambda=None), TODAY)
    assert [each.candidate.key for each in found] == [9, 1, 20]


def test_the_seeds_example_of_diversity_comes_out_on_the_raw_scores() -> None:
    near = "the router has vlan ten and twenty for a lab"
    lines = [
        (0.92, near),
        (0.89, f"{near} again"),
        (0.85, "network reference of all addresses"),
        (0.78, "adguard dns filters advertisements"),
    ]
    found = [ranked(Candidate(key=key, text=text), (Part("given", score, 1.0),)) for key, (score, text) in enumerate(lines)]
    assert [each.candidate.key for each in diverse(found, 3, 0.7, scaled=False)] == [0, 2, 3]
    assert [each.candidate.key for each in diverse(found, 3, 1.0)] == [0, 1, 2]
    assert [each.candidate.key for each in diverse(found, 3, None)] == [0, 1, 2]


def test_what_is_noted_twice_is_found_once_among_the_first() -> None:
    texts = ["The router is at 10.0.0.1", "The router is at 10.0.0.1.", "The switch stands below the stairs", "Cats sleep"]
    candidates = [
        Candidate(key=10 * key, note=str(key), text=text, cosine=cosine)
        for key, (text, cosine) in enumerate(zip(texts, [0.9, 0.89, 0.7, 0.1], strict=True))
    ]
    assert [each.candidate.key for each in rank(candidates, Rules(results=2), TODAY)] == [0, 20]
    assert [each.candidate.key for each in rank(candidates, Rules(results=2, mmr_lambda=None), TODAY)] == [0, 10]


def test_sections_about_one_subject_are_no_repetitions_for_measured_alone() -> None:
    about = "to change the admin site override its template"
    texts = [f"{about} of every page in this project", f"{about} for login and set another name", "Cats sleep", "Dogs bark"]
    assert 0.25 < jaccard(word_set(texts[0]), word_set(texts[1])) < ALIKE
    candidates = [
        Candidate(key=10 * key, note=str(key), text=text, cosine=cosine, keywords=keywords)
        for key, (text, cosine, keywords) in enumerate(zip(texts, [0.9, 0.7, 0.68, 0.1], [3, 2, 2, 0], strict=True))
    ]
    first = {
        fusion: [each.candidate.key for each in rank(candidates, Rules(results=2, fusion=fusion), TODAY)]
        for fusion in ("measured", "openclaw")
    }
    assert first == {"measured": [0, 10], "openclaw": [0, 20]}


def test_a_turn_with_a_time_answers_when_and_a_section_not_for_that_reason() -> None:
    def worth(text: str) -> float:
        candidates = [Candidate(key=key, note="a", text=text, cosine=0.5, timed=key == 9) for key in (1, 5, 9)]
        scores = fused(candidates, Rules())
        return scores[9] - scores[1]

    assert worth("We painted it last week.") == pytest.approx(0.067, abs=0.01)
    assert worth("We painted it last week. " * 20) == 0.0


def test_words_count_less_with_each_chunk_between_and_only_in_their_own_note() -> None:
    candidates = [
        Candidate(key=key, note="b" if key == 5 else "a", closest=(0.7, 0.3) if key == 2 else (0.0, 0.0))
        for key in range(1, 6)
    ]
    assert _values(candidates, "words around it") == pytest.approx({1: 0.8, 2: 1.0, 3: 0.8, 4: 0.64, 5: 0.0})


def test_words_that_two_neighbours_share_out_count_in_both() -> None:
    candidates = [Candidate(key=1, note="a", closest=(0.7, 0.0)), Candidate(key=2, note="a", closest=(0.0, 0.3))]
    assert _values(candidates, "words around it") == pytest.approx({1: 0.7 + 0.8 * 0.3, 2: 0.8 * 0.7 + 0.3})


def test_a_chunk_means_more_if_its_neighbours_in_its_note_mean_the_same() -> None:
    cosines = {1: 0.1, 2: 0.5, 3: 0.5, 4: 0.9}
    candidates = [Candidate(key=key, note="b" if key == 4 else "a", cosine=cosine) for key, cosine in cosines.items()]
    assert _values(candidates, "meaning around it") == pytest.approx({1: 0.25, 2: 1 / 3, 3: 1 / 3, 4: 1.0})


def test_a_turn_answers_the_question_before_it_as_far_as_that_has_the_words() -> None:
    asked = Candidate(key=1, note="a", text="Any plans for the weekend?", closest=(0.7, 0.0), asks=1)
    candidates = [asked, *(Candidate(key=key, note="a", text="I go camping.", closest=(0.0, 0.0)) for key in (2, 3))]
    assert _values(candidates, "answers") == pytest.approx({1: 0.0, 2: 0.7, 3: 0.0})


def _values(candidates: list[Candidate], name: str) -> dict[int, float]:
    parts = fuse(candidates, Rules())
    return {key: part.value for key, each in parts.items() for part in each if part.name == name}


@pytest.mark.parametrize("told", [{"named": True}, {"dated": True}])
def test_what_the_question_names_comes_before_what_it_does_not(told: dict[str, bool]) -> None:
    candidates = [Candidate(key=1, note="a", cosine=0.5), Candidate(key=9, note="b", cosine=0.5, **told)]  # type: ignore[arg-type]
    assert [each.candidate.key for each in rank(candidates, Rules(), TODAY)] == [9, 1]


def test_a_question_is_no_answer() -> None:
    candidates = [Candidate(key=1, note="a", cosine=0.5, asks=True), Candidate(key=9, note="b", cosine=0.5)]
    assert [each.candidate.key for each in rank(candidates, Rules(), TODAY)] == [9, 1]


def test_the_weights_of_measured_are_together_one_with_vectors_and_without() -> None:
    for candidate in (Candidate(key=1, keywords=1.0), Candidate(key=1, cosine=0.5)):
        (parts,) = fuse([candidate], Rules()).values()
        assert sum(part.weight for part in parts) == pytest.approx(1.0)
        assert len(parts) == len(WEIGHTS) - (2 if candidate.cosine is None else 0)


@pytest.mark.parametrize(
    ("model", "meaning"),
    [
        ("all-minilm-l6-v2-int8", 1.0),
        ("text-embedding-3-large", 1.32),
        ("/models/Nomic-Embed-Text-v1.5.gguf", 1.26),
        ("x", 1.0),
    ],
)
def test_what_the_vectors_of_a_model_count_is_known_by_its_name_unless_it_is_said(model: str, meaning: float) -> None:
    assert rules_of(SearchKeys(), model=model).meaning == pytest.approx(meaning, abs=0.01)
    assert rules_of(SearchKeys(meaning=0.5), model=model).meaning == 0.5


def test_a_model_that_means_less_counts_less() -> None:
    asked = frozenset({("crab", 1.0)})
    candidates = [
        Candidate(key=1, note="a", cosine=0.9, keywords=1.0, bears=asked),
        Candidate(key=9, note="b", cosine=0.1, keywords=2.0, bears=asked),
    ]
    first = [rank(candidates, Rules(meaning=meaning, mmr_lambda=None), TODAY)[0].candidate.key for meaning in (0.2, 5.0)]
    assert first == [9, 1]


def test_words_count_little_where_hardly_any_of_the_question_is_found() -> None:
    """As when the question is in another language than the note that answers it."""

    def first(share: float) -> int:
        by_chance = Candidate(key=9, note="b", cosine=0.3, keywords=2.0, bears=frozenset({("3", share)}))
        return rank([Candidate(key=1, note="a", cosine=0.4), by_chance], Rules(mmr_lambda=None), TODAY)[0].candidate.key

    assert (first(0.05), first(0.9)) == (1, 9)


@pytest.mark.parametrize(
    ("text", "turns", "best"),
    [(100 * "y", 0, 2), (400 * "y", 0, 10), (400 * "y", 4, 2), ("return {name: size}; " * 5, 0, 10)],
    ids=["turns", "sections", "sections of turns", "code"],
)
def test_among_turns_what_is_around_counts_and_among_sections_the_own_vector(text: str, turns: int, best: int) -> None:
    asked = frozenset({("sunrise", 0.7), ("paint", 0.3)})
    candidates = [
        Candidate(
            key=key,
            note="a",
            text=key * "x" + text,
            turns=turns,
            cosine=cosine,
            keywords=words,
            bears=bears,
            closest=(0.7 * (bears == asked), 0.3 * bool(bears)),
        )
        for key, cosine, words, bears in (
            (1, 0.55, 5.0, asked),
            (2, 0.4, 0.0, frozenset()),
            (10, 0.6, 0.0, frozenset()),
            (11, 0.3, 0.0, frozenset({("paint", 0.3)})),
        )
    ]
    scores = fused(candidates, Rules())
    assert max((2, 10), key=lambda key: scores[key]) == best


def test_where_vectors_disagree_with_the_words_the_words_decide() -> None:
    """As in a language that the model does not know."""

    def first(agreement: float) -> int:
        candidates = [
            Candidate(
                key=3 * at,
                note=str(at),
                text="x" * 400,
                cosine=0.3 + agreement * at / 100,
                keywords=at / 2,
                bears=frozenset({("paint", 0.3), ("sunrise", 0.7)} if at > 20 else ()),
            )
            for at in range(25)
        ]
        near = Candidate(key=100, note="near", text="x" * 400, cosine=0.9, keywords=6.0)
        return rank([*candidates, near], Rules(mmr_lambda=None), TODAY)[0].candidate.key

    assert (first(1.0), first(-1.0)) == (100, 72)


def test_a_list_of_questions_answers_less_than_one_question() -> None:
    candidates = [Candidate(key=5 * asks, note=str(asks), cosine=0.5, asks=asks) for asks in (6, 1, 0)]
    assert [each.candidate.key for each in rank(candidates, Rules(), TODAY)] == [0, 5, 30]


MINILM = "all-minilm-l6-v2-int8"
KNOWN = Asked()
"""A question whose words are all in the notes."""


def may_answer(candidates: Sequence[Candidate], model: str = MINILM, size: int = 600, question: Asked = KNOWN) -> list[int]:
    """The keys of the results that answer the question."""
    found = rank(candidates, Rules(mmr_lambda=None), TODAY)
    return [each.candidate.key for each in answering(found, candidates, question, model, size)]


@pytest.mark.parametrize(
    ("cosine", "share", "size", "answered"),
    [
        (0.38, 0.0, 600, True),
        (0.36, 0.0, 600, False),
        (0.36, 0.2, 600, True),
        (0.31, 0.0, 20, True),  # the largest of a few cosines is no chance
        (0.28, 0.0, 20, False),
        (0.38, 0.0, 1_000_000, True),
        (0.10, 0.9, 600, True),  # an identifier
    ],
)
def test_a_question_is_answered_from_some_evidence_on(cosine: float, share: float, size: int, answered: bool) -> None:
    bears = frozenset({("word", share)}) if share else frozenset()
    assert bool(may_answer([Candidate(key=1, cosine=cosine, bears=bears)], size=size)) == answered


@pytest.mark.parametrize("cosine", [0.42, None])
def test_words_that_no_note_has_speak_against_an_answer_and_names_even_more(cosine: float | None) -> None:
    some = Candidate(key=1, cosine=cosine, bears=frozenset({("trip", 0.2)}), closest=(0.2, 0.0))
    asked_for = [Asked(unseen=0.0), Asked(unseen=0.8, stranger=True)]
    assert [may_answer([some], question=each) for each in asked_for] == [[1], []]
    dated = msgspec.structs.replace(some, dated=True)
    assert [may_answer([dated], question=each) for each in (Asked(unseen=0.8), Asked(unseen=0.8, stranger=True))] == [
        [1],
        [],
    ]


@pytest.mark.parametrize(
    ("size", "length", "answered"),
    [(120, 90, True), (600, 90, False), (20, 600, False)],
    ids=["few short notes", "many short notes", "few sections"],
)
def test_a_word_that_few_short_notes_lack_speaks_less_against_an_answer(size: int, length: int, answered: bool) -> None:
    some = Candidate(key=1, text="x" * length, bears=frozenset({("heating", 0.33)}), closest=(0.33, 0.0))
    assert bool(may_answer([some], size=size, question=Asked(unseen=1.0))) == answered


@pytest.mark.parametrize(
    ("question", "named"),
    [
        ("When does Fatima fly?", True),
        ("Fatima's flight", False),  # the first word is always capitalised
        ("Is it there? Fly when?", False),
        ("WHEN DOES FATIMA FLY?", False),
        ("Wann ist der Flug von Ana?", False),
        ("When does Ana fly?", False),  # a note has her name
    ],
)
def test_a_name_is_a_word_with_a_capital_inside_a_sentence(question: str, named: bool) -> None:
    terms = sought(question)
    absent = frozenset(terms) - {"ana"}
    assert asked(question, {term: 1 / len(terms) for term in terms}, absent).stranger == named


def test_code_answers_with_less_evidence_than_a_text() -> None:
    code = Candidate(key=1, cosine=0.35, text="def area(radius):\n    return _PI * radius ** 2")
    assert [may_answer([each]) for each in (code, msgspec.structs.replace(code, text="The area of a circle"))] == [[1], []]


def test_what_has_much_less_evidence_than_the_best_is_left_out_unless_it_is_from_the_time_that_is_asked_for() -> None:
    candidates = [
        Candidate(key=1, note="a", cosine=0.6, bears=frozenset({("dog", 1.0)}), closest=(1.0,)),
        Candidate(key=2, note="a", cosine=0.2, closest=(0.0,)),
        Candidate(key=10, note="b", cosine=0.2),
        Candidate(key=20, note="c", cosine=0.2, dated=True),
        Candidate(key=30, note="d", cosine=0.5),
    ]
    assert sorted(may_answer(candidates)) == [1, 2, 20, 30]


@pytest.mark.parametrize(("words", "kept"), [(["dog"], [1]), (["where", "dog", "sleeps"], [1, 10])])
def test_a_word_that_is_found_leaves_out_more_than_a_sentence_that_is_found(words: list[str], kept: list[int]) -> None:
    bears = frozenset((word, 1 / len(words)) for word in words)
    whole = Candidate(key=1, note="a", cosine=0.5, bears=bears, closest=(1.0,))
    assert may_answer([whole, Candidate(key=10, note="b", cosine=0.21, closest=(0.0,))]) == kept


def test_chunks_without_a_vector_answer_by_the_words_in_them_and_around_them() -> None:
    few, some = (Candidate(key=1, bears=frozenset({("a", share)}), closest=(share,)) for share in (0.05, 0.3))
    assert [may_answer([each]) for each in (few, some)] == [[], [1]]
    unrelated = Candidate(key=10, note="b", cosine=0.2, closest=(0.0,))
    assert may_answer([some, unrelated]) == [1]


def test_inflected_forms_of_the_words_are_matches_too() -> None:
    herons, lake = Candidate(key=1, keywords=2.0), Candidate(key=10, note="b", bears=frozenset({("lake", 0.5)}))
    assert [may_answer(each) for each in ([herons], [lake])] == [[1], [10]]
    seen = [msgspec.structs.replace(each, cosine=0.2) for each in (herons, lake)]
    assert [may_answer(each) for each in (seen[:1], seen)] == [[1], []]


def test_cosines_of_other_models_are_not_judged() -> None:
    assert may_answer([Candidate(key=1, cosine=0.1)], model="nobody-knows-it") == [1]


HOSTILE = st.floats(allow_nan=True, allow_infinity=True)
TERMS = st.frozensets(st.sampled_from([("one", 0.5), ("two", 0.3), ("three", 0.2)]))

candidate_lists = st.lists(
    st.builds(
        Candidate,
        key=st.integers(0, 30),
        note=st.sampled_from(["a", "b"]),
        text=st.sampled_from(["", "one two", "one two three", "four", "five six"]),
        keywords=st.floats(0, 50) | HOSTILE,
        phrase=st.floats(0, 1) | HOSTILE,
        cosine=st.none() | st.floats(-1, 1) | HOSTILE,
        bears=TERMS,
        named=st.booleans(),
        dated=st.booleans(),
        turns=st.integers(0, 9),
        asks=st.integers(0, 9),
        day=st.none() | st.dates(),
    ),
    max_size=12,
    unique_by=lambda each: each.key,
)


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])  # a busy machine is no failure
@given(candidate_lists, st.sampled_from(FUSIONS), st.none() | st.floats(0, 1), st.randoms(use_true_random=False))
def test_a_ranking_invents_nothing_repeats_nothing_and_does_not_depend_on_the_order_or_on_what_is_no_number(
    candidates: list[Candidate], fusion: Fusion, mmr: float | None, order: random.Random
) -> None:
    rules = Rules(results=5, fusion=fusion, mmr_lambda=mmr)
    found = rank(candidates, rules, TODAY)
    keys = [each.candidate.key for each in found]
    assert len(set(keys)) == len(keys) == min(5, len(candidates))
    assert all(-1e-9 <= each.score <= each.fused <= 1 + 1e-9 for each in found)
    mixed = order.sample(candidates, len(candidates))
    assert [(each.candidate.key, each.score) for each in rank(mixed, rules, TODAY)] == [
        (each.candidate.key, each.score) for each in found
    ]


@settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.tuples(st.floats(-1, 1), st.floats(0, 50), st.floats(0, 1), TERMS), min_size=2, max_size=8),
    st.sampled_from(FUSIONS),
)
def test_what_is_better_in_every_way_never_comes_behind(
    found: list[tuple[float, float, float, frozenset[tuple[str, float]]]], fusion: Fusion
) -> None:
    candidates = [
        Candidate(key=10 * at, note=str(at), cosine=cosine, keywords=keywords, phrase=phrase, bears=bears)
        for at, (cosine, keywords, phrase, bears) in enumerate(found)
    ]
    scores = fused(candidates, Rules(fusion=fusion))
    for one in candidates:
        for other in candidates:
            if (
                (one.cosine or 0.0) > (other.cosine or 0.0)
                and one.keywords > other.keywords
                and one.phrase >= other.phrase
                and one.bears >= other.bears
            ):
                assert scores[one.key] >= scores[other.key] - 1e-9
