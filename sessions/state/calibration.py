"""`Calibration`: how one model's tokens differ from our units, learnt from what its provider counts.

A model's count of a request is taken for a sum: a factor for each kind of unit, a constant that the vendor adds (`base`),
and the share of hidden reasoning that comes back with the next request (`echo`). Each reply's usage is one observation of
it. The factors follow as in a Kalman filter ("A New Approach to Linear Filtering and Prediction Problems", 1960): what
is unsure and has a large part in the request takes most of the surprise. A surprise is cut at three deviations, and each
factor stays within bounds, so that no nonsense that a server counts makes the next estimate absurd.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

import msgspec

from sessions.events.token_features import TokenFeatures

_BELIEFS = (
    # at first, its deviation, at least, at most
    (1.0, 0.4, 0.0, 3.0),  # head
    (1.0, 0.2, 0.3, 3.0),  # words
    (1.0, 0.25, 0.3, 3.0),  # marks
    (1.0, 0.4, 0.2, 4.0),  # unspaced
    (1.0, 0.4, 0.2, 4.0),  # scripts
    (1.0, 1.5, 0.0, 12.0),  # frames
    (1.0, 0.4, 0.0, 4.0),  # pictures
    (0.0, 600.0, -2_000.0, 20_000.0),  # base, in tokens
    (1.0, 0.5, 0.0, 1.0),  # echo
)

NOISE = 0.12
"""By what share a text's tokens deviate from the sum, whatever the factors; `SLACK` is that in tokens."""

SLACK = 8.0

DRIFT = 0.02
"""What becomes unsure again with each reply, as a share of the deviation at first: models change behind a name."""

DEVIATIONS = 3.0
"""Where a surprise is cut."""


def _unsure() -> tuple[tuple[float, ...], ...]:
    deviations = [deviation for _, deviation, _, _ in _BELIEFS]
    return tuple(tuple(d * d if i == j else 0.0 for j in range(len(deviations))) for i, d in enumerate(deviations))


class Calibration(msgspec.Struct, frozen=True):
    """What is believed of one model: a factor for each kind of unit, then base and echo; and their covariance."""

    factors: tuple[float, ...] = tuple(belief[0] for belief in _BELIEFS)
    covariance: tuple[tuple[float, ...], ...] = _unsure()

    def tokens(self, units: TokenFeatures, *, whole: bool = False, hidden: int = 0) -> float:
        """The tokens of a part of a request; of a `whole` one with what the vendor adds. `hidden` are tokens of reasoning
        that a provider is given back. May be negative, for a difference."""
        return _product(self.factors, _features(units, whole, hidden))

    def learnt(self, units: TokenFeatures, counted: int, *, whole: bool = False, hidden: int = 0) -> Calibration:
        """After a provider has counted so many tokens for what `tokens` takes."""
        features = _features(units, whole, hidden)
        weighty = math.fsum(abs(factor * x) for factor, x in zip(self.factors, features, strict=True))
        if not weighty:
            return self
        shares = [_product(row, features) for row in self.covariance]
        variance = _product(shares, features) + (NOISE * weighty) ** 2 + SLACK**2
        most = DEVIATIONS * math.sqrt(variance)
        surprise = min(max(counted - _product(self.factors, features), -most), most)
        factors = [f + share / variance * surprise for f, share in zip(self.factors, shares, strict=True)]
        bounded = (min(max(f, least), most) for f, (_, _, least, most) in zip(factors, _BELIEFS, strict=True))
        return Calibration(tuple(bounded), _surer(self.covariance, shares, variance))


def _features(units: TokenFeatures, whole: bool, hidden: int) -> tuple[float, ...]:
    return (*units.numbers, 1.0 if whole else 0.0, hidden)


def _product(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(map(mul, one, other), 0.0)


def _surer(
    covariance: tuple[tuple[float, ...], ...], shares: Sequence[float], variance: float
) -> tuple[tuple[float, ...], ...]:
    """The covariance after an observation, with the drift."""
    after = [
        [cell - share * other / variance for cell, other in zip(row, shares, strict=True)] if share else list(row)
        for row, share in zip(covariance, shares, strict=True)
    ]
    for i, (_, deviation, _, _) in enumerate(_BELIEFS):
        if after[i][i] < deviation**2:
            after[i][i] += (DRIFT * deviation) ** 2
    return tuple(map(tuple, after))
