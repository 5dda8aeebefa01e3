"""Cross-validation of the weights of the fusion `measured`: each conversation is ranked by weights fitted to the others.

The weights maximise the likelihood of the answers in a softmax over each question's candidates, with an L2 penalty. They are
found by Adam (Kingma and Ba, 2015) from zero, independently of the configured weights.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import msgspec

from plugins.memory.search.fusion import Parts

np: Any = import_module("numpy")  # an optional dependency, which need not be installed for type checks

STEPS, RATE, PENALTY = 60, 0.6, 10.0


class Candidates(msgspec.Struct, frozen=True):
    """The candidates of a question: one row of parts each, and whether it is an answer."""

    parts: Any
    answers: Any


def fitted(questions: Sequence[Candidates]) -> Any:
    """Return the weights that rank the answers of these questions best, scaled so that the first is 1."""
    answered = [each for each in questions if each.answers.any()]
    rows = np.concatenate([each.parts for each in answered])
    goal = np.concatenate([each.answers / each.answers.sum() for each in answered])
    sizes = np.array([len(each.answers) for each in answered])
    starts, of = np.concatenate([[0], np.cumsum(sizes)[:-1]]), np.repeat(np.arange(len(answered)), sizes)
    wanted = rows.T @ goal
    weights, slope, square = (np.zeros(rows.shape[1]) for _ in range(3))
    for step in range(1, STEPS + 1):
        scores = rows @ weights
        likely = np.exp(scores - np.maximum.reduceat(scores, starts)[of])
        likely /= np.add.reduceat(likely, starts)[of]
        gradient = (wanted - rows.T @ likely - PENALTY * weights) / len(answered)
        slope, square = 0.9 * slope + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        weights += RATE * 0.96**step * (slope / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
    return weights / weights[0]


def candidates(parts: Parts, answers: Sequence[bool], keys: Sequence[int]) -> Candidates:
    """Return the candidates of a question in the order of the keys."""
    return Candidates(np.array([[part.value for part in parts[key]] for key in keys]), np.array(answers))
