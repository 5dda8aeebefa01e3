"""Pauses after failures of extraction and distillation: of one session, one model or one person, never of all."""

from __future__ import annotations

from plugins.api.context import Clock

FIRST_PAUSE, LONGEST_PAUSE = 300.0, 6 * 3600.0
"""Seconds of the first pause and of the longest; each further consecutive failure doubles the pause."""

SHOWN, STALE = 3, 3600.0
"""The most sentences that are shown to people, and the seconds after a pause for which each is."""


class FactPauses:
    """Pauses by the name of what failed (`session …`, `model …`, `person …`), each with a sentence for people."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._failed: dict[str, tuple[int, float, str]] = {}
        """The number of consecutive failures, the end of the pause, and the sentence."""

    def fail(self, name: str, sentence: str, *, least: float = 0.0) -> float:
        """Begin a pause of at least `least` seconds, and return its length."""
        failures, _, _ = self._failed.get(name, (0, 0.0, ""))
        pause: float = max(least, min(FIRST_PAUSE * 2**failures, LONGEST_PAUSE))
        self._failed[name] = min(failures + 1, 16), self._clock.monotonic() + pause, sentence
        return pause

    def succeed(self, name: str) -> None:
        """Clear the failures of this name."""
        self._failed.pop(name, None)

    def end(self, name: str) -> float:
        """Return the monotonic time at which the pause of this name ends; 0 if it has none."""
        return self._failed[name][1] if name in self._failed else 0.0

    def is_paused(self, name: str) -> bool:
        """Return True while the pause of this name lasts."""
        return self.end(name) > self._clock.monotonic()

    def sentences(self) -> list[str]:
        """Return the current problems, the newest first."""
        since = self._clock.monotonic() - STALE
        newest = sorted((failed for failed in self._failed.values() if failed[1] > since), key=lambda failed: -failed[1])
        return list(dict.fromkeys(sentence for _, _, sentence in newest))[:SHOWN]
