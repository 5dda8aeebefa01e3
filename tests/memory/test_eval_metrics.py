"""How good results are, for questions whose answers are known."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plugins.memory.search.eval_metrics import judge, mean


def test_figures_worked_out_by_hand() -> None:
    judged = judge([{"x"}, {"a"}, {"y"}, {"b"}], {"a", "b", "c"}, (1, 2, 4))
    assert judged.recall == {1: 0.0, 2: pytest.approx(1 / 3), 4: pytest.approx(2 / 3)}
    assert judged.reciprocal == 0.5
    ideal = 1 + 1 / math.log2(3) + 1 / math.log2(4)
    assert judged.ndcg == pytest.approx((1 / math.log2(3) + 1 / math.log2(5)) / ideal)


def test_an_answer_that_two_results_hold_counts_once_and_a_result_may_hold_two() -> None:
    judged = judge([{"a", "b"}, {"a"}], {"a", "b"}, (1, 2))
    assert judged.recall == {1: 1.0, 2: 1.0}
    assert judge([{"a"}, {"a"}], {"a", "b"}, (2,)).recall == {2: 0.5}


def test_nothing_found_is_nought_and_each_question_counts_the_same() -> None:
    nothing, all_of_it = judge([], {"a"}, (5,)), judge([{"a"}], {"a"}, (5,))
    assert (nothing.recall, nothing.ndcg, nothing.reciprocal) == ({5: 0.0}, 0.0, 0.0)
    assert (all_of_it.recall, all_of_it.ndcg, all_of_it.reciprocal) == ({5: 1.0}, 1.0, 1.0)
    assert mean([nothing, all_of_it]).recall == {5: 0.5}


@given(st.lists(st.frozensets(st.integers(0, 9), max_size=3), max_size=12), st.frozensets(st.integers(0, 9), min_size=1))
def test_every_figure_lies_between_nought_and_one_and_recall_grows(
    held: list[frozenset[int]], answers: frozenset[int]
) -> None:
    judged = judge(held, answers, (1, 5, 10))
    assert all(0 <= figure <= 1 + 1e-9 for figure in (*judged.recall.values(), judged.ndcg, judged.reciprocal))
    assert judged.recall[1] <= judged.recall[5] <= judged.recall[10]
