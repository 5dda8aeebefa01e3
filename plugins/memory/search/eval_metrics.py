"""How good a list of results is for a question whose answers are known. Pure.

An answer is a place that was named beforehand; a result may hold several, and several results the same one. It is found by
the first result that holds it. Recall is the share of a question's answers among the first k results. The gain of nDCG
(Järvelin and Kekäläinen, 2002) is 1 for each result that holds an answer which none before it held; in the ideal order every
result does, until there are no answers left.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TypeVar

import msgspec

Place = TypeVar("Place")


class EvalMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of results is worth, each figure between 0 and 1: `recall` by how many results are looked at, `ndcg` over
    the most of these, `reciprocal` of the place of the first result that holds an answer, over all."""

    recall: dict[int, float]
    ndcg: float
    reciprocal: float


def judge(held: Sequence[Collection[Place]], answers: Collection[Place], cutoffs: Sequence[int]) -> EvalMetrics:
    """Judge results, best first, by which of the question's `answers`, one at least, each of them holds."""
    wanted = set(answers)
    new = []
    for each in held:
        new.append(len(wanted.intersection(each)))
        wanted.difference_update(each)
    whole, depth = len(set(answers)), max(cutoffs)
    gain = sum(1 / math.log2(at + 2) for at, found in enumerate(new[:depth]) if found)
    ideal = sum(1 / math.log2(at + 2) for at in range(min(depth, whole)))
    first = next((at for at, found in enumerate(new, 1) if found), None)
    return EvalMetrics(
        recall={cutoff: sum(new[:cutoff]) / whole for cutoff in cutoffs},
        ndcg=gain / ideal,
        reciprocal=1 / first if first else 0.0,
    )


def mean(judged: Sequence[EvalMetrics]) -> EvalMetrics:
    """The mean of several questions, one at least: each counts the same."""
    count = len(judged)
    return EvalMetrics(
        recall={cutoff: sum(each.recall[cutoff] for each in judged) / count for cutoff in judged[0].recall},
        ndcg=sum(each.ndcg for each in judged) / count,
        reciprocal=sum(each.reciprocal for each in judged) / count,
    )
