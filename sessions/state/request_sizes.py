"""The size of a session's requests, folded from `request_sent` and `model_replied`.

The provider's count of the last request is exact for everything that has not changed since. What was added or removed is
estimated with the model's calibration; if more was removed than stayed, or another model is used, the whole request is
estimated. Only sums are compared, never positions: it does not matter whether a message was added, shortened by pruning,
removed by a compaction or restored.

A calibration learns the tokenizer of a model. A provider's count of a request is modelled as a sum: a factor for each token
feature, a constant that the vendor adds (`base`), and the share of hidden reasoning that is sent back with the next request
(`echo`). The usage of each reply is one observation of it. The factors are updated with a Kalman filter ("A New Approach to
Linear Filtering and Prediction Problems", 1960): factors that are uncertain and have a large part in the request absorb most
of the error. An error is limited to three standard deviations and each factor to a range, so that implausible counts from a
server cannot distort the next estimate.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from operator import mul

import msgspec

from sessions.events.messages import Usage
from sessions.events.tokens import TokenFeatures

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

MODELS = 8
"""Maximum number of models whose calibrations a session remembers: those that replied last."""

MOST_HIDDEN = 1_000_000
"""Limit of a reply's reasoning tokens, more than any model produces; some servers report implausible counts."""


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


class CountedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request and its reply: the `model` as `provider:model`, the token features (`units`), the `tokens` that the provider
    counted, and those of its reasoning that is not visible (`hidden`) and may be sent back or not."""

    model: str
    units: TokenFeatures
    tokens: int
    hidden: int = 0


class SentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request without a reply yet."""

    model: str
    units: TokenFeatures


class RequestSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The `last` request that a provider counted, the pending one (`asked`), and the calibration of each model."""

    last: CountedRequest | None = None
    asked: SentRequest | None = None
    models: dict[str, Calibration] = {}

    def estimate(self, units: TokenFeatures, model: str) -> int:
        """Return the estimated tokens of a request with these features to a `provider:model`; never negative."""
        calibration = self.calibration(model)
        if (last := self._comparable(units, model)) is None:
            return max(0, round(calibration.tokens(units, whole=True)))
        return max(0, round(last.tokens + calibration.tokens(units - last.units, hidden=last.hidden)))

    def calibration(self, model: str) -> Calibration:
        """Return the calibration of a model; the default if it never replied."""
        return self.models.get(model, _UNKNOWN)

    def after_request(self, units: TokenFeatures, model: str) -> RequestSizes:
        """Return the state after a request was sent."""
        return msgspec.structs.replace(self, asked=SentRequest(model=model, units=units))

    def after_reply(
        self, said: TokenFeatures, usage: Usage | None, *, opaque: bool, compacted: bool = False
    ) -> RequestSizes:
        """Return the state after the reply to the pending request.

        Args:
            said: The token features of what the reply adds to the conversation.
            usage: The provider's count, if any.
            opaque: Whether the reply has reasoning that is sent back.
            compacted: Whether the service was sent less than the request holds. Then the count is only the base for the next
                estimate, and the calibration is not updated.
        """
        asked = self.asked
        if asked is None or usage is None or not _is_plausible(usage.input, asked.units, compacted):
            return msgspec.structs.replace(self, asked=None)
        calibration = self.calibration(asked.model)
        last = self._comparable(asked.units, asked.model)
        if last is None and not compacted:
            calibration = calibration.updated(asked.units, usage.input, whole=True)
        elif last is not None and not compacted:
            calibration = calibration.updated(asked.units - last.units, usage.input - last.tokens, hidden=last.hidden)
        shown, hidden = _reply(calibration.tokens(said), usage.output)
        counted = CountedRequest(
            model=asked.model,
            units=asked.units + said,
            tokens=usage.input + shown,
            hidden=min(hidden, MOST_HIDDEN) if opaque else 0,
        )
        others = {name: known for name, known in self.models.items() if name != asked.model}
        latest = dict([*others.items(), (asked.model, calibration)][-MODELS:])
        return RequestSizes(last=counted, models=latest)

    def _comparable(self, units: TokenFeatures, model: str) -> CountedRequest | None:
        """Return the last counted request if most of it is still part of the request."""
        last = self.last
        if last is None or last.model != model:
            return None
        left = sum(before - now for before, now in zip(last.units.numbers, units.numbers, strict=True) if before > now)
        return last if 2 * left <= last.units.total else None


_UNKNOWN = Calibration()


def _is_plausible(counted: int, units: TokenFeatures, compacted: bool) -> bool:
    """Return True if a count is plausible for a request, or for the part of it that a service had `compacted`.

    Some servers report 0, or leave out cached tokens; a request taken for almost empty would never be compacted.
    """
    if not 0 < counted <= 8 * units.total + 50_000:
        return False
    return compacted or 6 * counted >= units.total - units.head - units.pictures


def _reply(estimate: float, output: int) -> tuple[int, int]:
    """Split a reply's count into visible tokens and hidden reasoning, given an estimate of the visible part."""
    if 3 * output < estimate or output > 1.3 * estimate + 32:
        return round(estimate), max(0, output - round(estimate))
    return output, 0
