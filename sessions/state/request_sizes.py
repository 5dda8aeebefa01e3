"""`RequestSizes`: what a session knows of the size of its requests, folded from `request_sent` and `model_replied`.

The provider's count of the last request is the truth for all that is still as it was then. What has come since is added and
what has left is taken off, both as the model's calibration has it; where more has left than stayed, or another model is
asked, the whole request is estimated. Only sums are compared, never positions: so it does not matter whether a message was
added, shortened by pruning, cut off by a compaction or brought back.
"""

from __future__ import annotations

import msgspec

from sessions.events.messages import Usage
from sessions.events.token_features import TokenFeatures
from sessions.state.calibration import Calibration

MODELS = 8
"""The models of which a session remembers a calibration: those that replied last."""

MOST_HIDDEN = 1_000_000
"""Tokens of reasoning that one reply can have: more than any model writes at once; some servers count nonsense."""


class CountedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request with the reply to it: the `model` as `provider:model`, its `units`, the `tokens` that the provider counted,
    and those of its reasoning that nothing shows (`hidden`), which may come back or not."""

    model: str
    units: TokenFeatures
    tokens: int
    hidden: int = 0


class SentRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request that is not answered yet."""

    model: str
    units: TokenFeatures


class RequestSizes(msgspec.Struct, frozen=True, kw_only=True):
    """The `last` request that a provider counted, the one that is `asked`, and what is known of each model."""

    last: CountedRequest | None = None
    asked: SentRequest | None = None
    models: dict[str, Calibration] = {}

    def estimate(self, units: TokenFeatures, model: str) -> int:
        """The tokens of a request of these units to a `provider:model`; never negative."""
        calibration = self.calibration(model)
        if (last := self._comparable(units, model)) is None:
            return max(0, round(calibration.tokens(units, whole=True)))
        return max(0, round(last.tokens + calibration.tokens(units - last.units, hidden=last.hidden)))

    def calibration(self, model: str) -> Calibration:
        """What is known of a model; what is believed of all where it never replied."""
        return self.models.get(model, _UNKNOWN)

    def after_asking(self, units: TokenFeatures, model: str) -> RequestSizes:
        """After a request was sent."""
        return msgspec.structs.replace(self, asked=SentRequest(model=model, units=units))

    def after_reply(
        self, said: TokenFeatures, usage: Usage | None, *, opaque: bool, compacted: bool = False
    ) -> RequestSizes:
        """After the reply to it: `said` is what it adds to the conversation, `opaque` whether it has reasoning that is sent
        back, `compacted` whether the service was sent less than the request holds: then its count is what the next one
        grows from, and nothing is learnt about texts."""
        asked = self.asked
        if asked is None or usage is None or not _believable(usage.input, asked.units, compacted):
            return msgspec.structs.replace(self, asked=None)
        calibration = self.calibration(asked.model)
        last = self._comparable(asked.units, asked.model)
        if last is None and not compacted:
            calibration = calibration.learnt(asked.units, usage.input, whole=True)
        elif last is not None and not compacted:
            calibration = calibration.learnt(asked.units - last.units, usage.input - last.tokens, hidden=last.hidden)
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
        """The last counted request, if most of it is still there."""
        last = self.last
        if last is None or last.model != model:
            return None
        left = sum(before - now for before, now in zip(last.units.numbers, units.numbers, strict=True) if before > now)
        return last if 2 * left <= last.units.total else None


_UNKNOWN = Calibration()


def _believable(counted: int, units: TokenFeatures, compacted: bool) -> bool:
    """Whether so many tokens can have been counted for all of a request, or for what a service had `compacted` of it. Some
    servers say 0, or leave out what they had in their cache, and one that was read as an almost empty request would never be
    compacted."""
    if not 0 < counted <= 8 * units.total + 50_000:
        return False
    return compacted or 6 * counted >= units.total - units.head - units.pictures


def _reply(estimate: float, output: int) -> tuple[int, int]:
    """The tokens of what a reply shows, and of the reasoning that it does not, by an estimate of the former and the count of
    both."""
    if 3 * output < estimate or output > 1.3 * estimate + 32:
        return round(estimate), max(0, output - round(estimate))
    return output, 0
