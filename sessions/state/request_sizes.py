"""The size of a session's requests, folded from `request_sent` and `model_replied`.

The provider's count of the last request is exact for everything that has not changed since. What was added or removed is
estimated with the model's calibration; if more was removed than stayed, or another model is used, the whole request is
estimated. Only sums are compared, never positions: it does not matter whether a message was added, shortened by pruning,
removed by a compaction or restored.
"""

from __future__ import annotations

import msgspec

from sessions.events.messages import Usage
from sessions.events.token_features import TokenFeatures
from sessions.state.calibration import Calibration

MODELS = 8
"""Maximum number of models whose calibrations a session remembers: those that replied last."""

MOST_HIDDEN = 1_000_000
"""Limit of a reply's reasoning tokens, more than any model produces; some servers report implausible counts."""


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
