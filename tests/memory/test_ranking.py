"""Ranking: the seeds' worked examples, and what must hold for any candidates."""

from __future__ import annotations

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.memory.ranking import Candidate, Ranked, Rules, decay_of, diverse, fuse, phrase_score, rank
from plugins.memory.settings import Fusion

TODAY = date(2026, 11, 21)


def test_the_seeds_fusion_table_comes_out_from_its_leg_scores() -> None:
    legs = [(0.85, 1.0), (0.78, 0.0), (0.40, 0.5)]
    candidates = [Candidate(key=key, cosine=cosine, phrase=phrase) for key, (cosine, phrase) in enumerate(legs)]
    fused = fuse(candidates, Rules(fusion="copaw"))
    assert [round(fused[key], 3) for key in range(3)] == [0.895, 0.546, 0.430]


def test_copaws_keyword_score_is_the_share_of_the_terms_and_a_phrase_is_worth_more() -> None:
    text = "The websocket drops its connection"
    assert phrase_score(["websocket", "connection", "reconnect"], "websocket connection reconnect", text) == pytest.approx(
        2 / 3
    )
    assert phrase_score(["its", "CONNECTION"], "its CONNECTION", text) == 1.0
    assert phrase_score(["handlewebsocketreconnect"], "handleWebSocketReconnect", "handleWebSocketReconnect fails") == 1.0
    assert phrase_score([], "", text) == 0.0


def test_openclaws_keyword_score_grows_with_the_rank_and_stays_below_one() -> None:
    fused = fuse([Candidate(key=1, keywords=3.0), Candidate(key=2, keywords=1.0, cosine=0.5)], Rules(fusion="openclaw"))
    assert fused == {1: pytest.approx(0.3 * 0.75), 2: pytest.approx(0.7 * 0.5 + 0.3 * 0.5)}


def test_reciprocal_rank_fusion_counts_places() -> None:
    candidates = [Candidate(key=1, keywords=9, cosine=0.1), Candidate(key=2, keywords=1, cosine=0.2)]
    fused = fuse(candidates, Rules(fusion="rrf", vector_weight=1, text_weight=1))
    assert fused[1] == pytest.approx(fused[2])
    assert fused[1] == pytest.approx(0.5 / 61 + 0.5 / 62)


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


def test_the_seeds_example_of_diversity_comes_out_on_the_raw_scores() -> None:
    near = frozenset(["the", "router", "has", "vlan", "ten", "and", "twenty", "for", "the", "lab"])
    lines = [
        (0.92, near),
        (0.89, near | {"again"}),
        (0.85, frozenset(["network", "reference", "of", "all", "addresses"])),
        (0.78, frozenset(["adguard", "dns", "filters", "advertisements"])),
    ]
    ranked = [
        Ranked(candidate=Candidate(key=key, words=words), score=score, fused=score)
        for key, (score, words) in enumerate(lines)
    ]
    assert [each.candidate.key for each in diverse(ranked, 3, 0.7, scaled=False)] == [0, 2, 3]
    assert [each.candidate.key for each in diverse(ranked, 3, 1.0)] == [0, 1, 2]
    assert [each.candidate.key for each in diverse(ranked, 3, None)] == [0, 1, 2]


def test_what_stands_beside_a_hit_is_lifted_only_in_its_own_note() -> None:
    candidates = [
        Candidate(key=1, note="a", keywords=5, cosine=0.9),
        Candidate(key=2, note="a", cosine=0.1),
        Candidate(key=4, note="b", cosine=0.1),
    ]
    fused = fuse(candidates, Rules())
    assert fused[1] > fused[2] > fused[4] == 0.0


def test_who_is_named_by_the_heading_comes_before_who_is_not() -> None:
    candidates = [Candidate(key=1, cosine=0.5), Candidate(key=9, cosine=0.5, named=True)]
    assert [each.candidate.key for each in rank(candidates, Rules(), TODAY)] == [9, 1]


candidate_lists = st.lists(
    st.builds(
        Candidate,
        key=st.integers(0, 30),
        note=st.sampled_from(["a", "b"]),
        named=st.booleans(),
        keywords=st.floats(0, 50),
        phrase=st.floats(0, 1),
        cosine=st.none() | st.floats(-1, 1),
        day=st.none() | st.dates(),
        words=st.frozensets(st.sampled_from("abcdef")),
    ),
    max_size=12,
    unique_by=lambda each: each.key,
)


@given(candidate_lists, st.sampled_from(["measured", "openclaw", "copaw", "rrf"]), st.none() | st.floats(0, 1))
def test_a_ranking_invents_nothing_repeats_nothing_and_stays_between_nought_and_one(
    candidates: list[Candidate], fusion: Fusion, mmr: float | None
) -> None:
    rules = Rules(results=5, fusion=fusion, mmr_lambda=mmr)
    found = rank(candidates, rules, TODAY)
    keys = [each.candidate.key for each in found]
    assert len(set(keys)) == len(keys) == min(5, len(candidates))
    assert all(-1e-9 <= each.score <= each.fused <= 1 + 1e-9 for each in found)
    assert found == rank(list(reversed(candidates)), rules, TODAY) or mmr is not None
