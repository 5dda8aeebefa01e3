"""Retrieval metrics of a question whose answers are known. Pure.

A result may contain several answers, and several results the same one; an answer counts for the first result that contains
it. Recall is the share of the answers among the first k results. The gain of nDCG (Järvelin and Kekäläinen, 2002) is 1 for
each result with a new answer; in the ideal order every result has one until no answers are left.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from typing import TypeVar

import msgspec

Place = TypeVar("Place")


class EvalMetrics(msgspec.Struct, frozen=True, kw_only=True):
    """Metrics between 0 and 1: `recall` by cutoff, `ndcg` at the largest cutoff, and the reciprocal rank of the first
    answer."""

    recall: dict[int, float]
    ndcg: float
    reciprocal: float


def judge(held: Sequence[Collection[Place]], answers: Collection[Place], cutoffs: Sequence[int]) -> EvalMetrics:
    """Compute the metrics of results, best first.

    Args:
        held: The answers that each result contains.
        answers: The question's answers, at least one.
        cutoffs: The numbers of results for recall.
    """
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
    """Return the mean of the metrics of at least one question."""
    count = len(judged)
    return EvalMetrics(
        recall={cutoff: sum(each.recall[cutoff] for each in judged) / count for cutoff in judged[0].recall},
        ndcg=sum(each.ndcg for each in judged) / count,
        reciprocal=sum(each.reciprocal for each in judged) / count,
    )
