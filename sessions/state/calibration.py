"""Calibration of token estimates to the tokenizer of a model.

It is learned from the counts that the provider reports. A provider's count of a request is modelled as a sum: a factor for
each feature, a constant that the vendor adds (`base`), and the share of hidden reasoning that is sent back with the next
request (`echo`). The usage of each reply is one observation of it. The factors are updated with a Kalman filter ("A New
Approach to Linear Filtering and Prediction Problems", 1960): factors that are uncertain and have a large part in the request
absorb most of the error. An error is limited to three standard deviations and each factor to a range, so that implausible
counts from a server cannot distort the next estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

import msgspec

from sessions.events.token_features import TokenFeatures

_PRIORS = (
    # initial value, standard deviation, minimum, maximum
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
"""Relative deviation of a text's tokens from the model, whatever the factors; `SLACK` is an absolute one in tokens."""

SLACK = 8.0

DRIFT = 0.02
"""Uncertainty added after each reply, as a share of the initial deviation: a vendor may change the model behind a name."""

DEVIATIONS = 3.0
"""Limit of an error, in standard deviations."""


def _initial_covariance() -> tuple[tuple[float, ...], ...]:
    deviations = [deviation for _, deviation, _, _ in _PRIORS]
    return tuple(tuple(d * d if i == j else 0.0 for j in range(len(deviations))) for i, d in enumerate(deviations))


class Calibration(msgspec.Struct, frozen=True):
    """The estimated parameters of one model: a factor for each token feature, then base and echo; and their covariance."""

    factors: tuple[float, ...] = tuple(belief[0] for belief in _PRIORS)
    covariance: tuple[tuple[float, ...], ...] = _initial_covariance()

    def tokens(self, units: TokenFeatures, *, whole: bool = False, hidden: int = 0) -> float:
        """Return the estimated tokens of a part of a request; may be negative for a difference.

        Args:
            units: The token features of the part.
            whole: Whether it is a complete request, to which the vendor's constant is added.
            hidden: Tokens of reasoning that are sent back to the provider.
        """
        return _product(self.factors, _features(units, whole, hidden))

    def updated(self, units: TokenFeatures, counted: int, *, whole: bool = False, hidden: int = 0) -> Calibration:
        """Return the calibration updated by an observation: the provider `counted` so many tokens for a part
        as in `tokens`."""
        features = _features(units, whole, hidden)
        weighty = math.fsum(abs(factor * x) for factor, x in zip(self.factors, features, strict=True))
        if not weighty:
            return self
        shares = [_product(row, features) for row in self.covariance]
        variance = _product(shares, features) + (NOISE * weighty) ** 2 + SLACK**2
        most = DEVIATIONS * math.sqrt(variance)
        surprise = min(max(counted - _product(self.factors, features), -most), most)
        factors = [f + share / variance * surprise for f, share in zip(self.factors, shares, strict=True)]
        bounded = (min(max(f, least), most) for f, (_, _, least, most) in zip(factors, _PRIORS, strict=True))
        return Calibration(tuple(bounded), _updated_covariance(self.covariance, shares, variance))


def _features(units: TokenFeatures, whole: bool, hidden: int) -> tuple[float, ...]:
    return (*units.numbers, 1.0 if whole else 0.0, hidden)


def _product(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(map(mul, one, other), 0.0)


def _updated_covariance(
    covariance: tuple[tuple[float, ...], ...], shares: Sequence[float], variance: float
) -> tuple[tuple[float, ...], ...]:
    """Return the covariance after an observation, including the drift."""
    after = [
        [cell - share * other / variance for cell, other in zip(row, shares, strict=True)] if share else list(row)
        for row, share in zip(covariance, shares, strict=True)
    ]
    for i, (_, deviation, _, _) in enumerate(_PRIORS):
        if after[i][i] < deviation**2:
            after[i][i] += (DRIFT * deviation) ** 2
    return tuple(map(tuple, after))
