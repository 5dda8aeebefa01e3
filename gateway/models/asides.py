"""Models that stand aside, remembered between turns: for how long one asked to be left alone, and whether that is news."""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from plugins.errors import ProviderError, RateLimited
from plugins.refusals import in_short

LONGEST_PAUSE = 3600.0
"""Seconds for which a model is left alone at most: whoever raises a limit at the vendor need not restart the gateway."""

REMEMBERED = 256
"""Models that are remembered: people may name any with `/model`."""


class Aside(msgspec.Struct, frozen=True, kw_only=True):
    """A model that could not answer when it was asked last: it is left alone until `until`; `why` says in a word or two
    what was wrong, to whichever session asks next."""

    until: float
    why: str


class Asides:
    """Of all models, by `provider:model`. `now` is a clock in seconds that never goes back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._aside: dict[str, Aside] = {}

    def step(self, name: str, error: ProviderError) -> bool:
        """A model could not answer, or was not asked, for this reason; True if it is the first time since it answered. One
        that said when it takes requests again is left alone until then."""
        known = self._aside.pop(name, None)
        pause = min(error.retry_after or 0.0, LONGEST_PAUSE) if isinstance(error, RateLimited) else 0.0
        self._aside[name] = Aside(until=self._now() + pause, why=in_short(error))
        if len(self._aside) > REMEMBERED:
            del self._aside[next(iter(self._aside))]
        return known is None

    def rest(self, name: str) -> tuple[float, str] | None:
        """How many seconds a model is still to be left alone, and why; None if it may be asked."""
        aside = self._aside.get(name)
        if aside is None or (left := aside.until - self._now()) <= 0:
            return None
        return left, aside.why

    def answered(self, name: str) -> bool:
        """A model answered; True if it had stepped aside before."""
        return self._aside.pop(name, None) is not None

    def forget(self, provider: str) -> None:
        """A provider was opened anew, perhaps with another key."""
        self._aside = {name: aside for name, aside in self._aside.items() if name.partition(":")[0] != provider}
