"""Whether the weights of the fusion "measured" hold for conversations that they were not fitted to: each is left out once.

The weights are those that make the answers most likely in a softmax over each question's candidates, minus a price on their
squares: found by gradient descent (Adam: Kingma and Ba, 2015) from nothing, so what was chosen by hand has no part in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import msgspec

from plugins.memory.search.fusion import Parts

np: Any = import_module("numpy")  # part of an extra: whoever checks types need not have it

STEPS, RATE, PRICE = 60, 0.6, 10.0


class Seen(msgspec.Struct, frozen=True):
    """The candidates of a question: a row of parts each, and whether it is an answer."""

    parts: Any
    answers: Any


def fitted(questions: Sequence[Seen]) -> Any:
    """The weights of the parts that rank the answers of these questions best, the first of them 1."""
    known = [each for each in questions if each.answers.any()]
    rows = np.concatenate([each.parts for each in known])
    goal = np.concatenate([each.answers / each.answers.sum() for each in known])
    sizes = np.array([len(each.answers) for each in known])
    starts, of = np.concatenate([[0], np.cumsum(sizes)[:-1]]), np.repeat(np.arange(len(known)), sizes)
    wanted = rows.T @ goal
    weights, slope, square = (np.zeros(rows.shape[1]) for _ in range(3))
    for step in range(1, STEPS + 1):
        scores = rows @ weights
        likely = np.exp(scores - np.maximum.reduceat(scores, starts)[of])
        likely /= np.add.reduceat(likely, starts)[of]
        gradient = (wanted - rows.T @ likely - PRICE * weights) / len(known)
        slope, square = 0.9 * slope + 0.1 * gradient, 0.99 * square + 0.01 * gradient**2
        weights += RATE * 0.96**step * (slope / (1 - 0.9**step)) / (np.sqrt(square / (1 - 0.99**step)) + 1e-8)
    return weights / weights[0]


def seen(parts: Parts, answers: Sequence[bool], keys: Sequence[int]) -> Seen:
    """A question's candidates in the order of the keys."""
    return Seen(np.array([[part.value for part in parts[key]] for key in keys]), np.array(answers))
