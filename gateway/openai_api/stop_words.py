"""Stop words: where a client wants an answer to end. It ends there whatever the model's service makes of them."""

from __future__ import annotations

from collections.abc import Sequence


class StopWords:
    """Watches an answer as it streams. `feed` gives what may be shown; what could be the beginning of a stop word waits
    until it is known. Once one has come, `met` is true and nothing more is given."""

    def __init__(self, words: Sequence[str]) -> None:
        self.met = False
        self._words = [word for word in words if word]
        self._held = ""

    def feed(self, text: str) -> str:
        """The text that may be shown after this piece."""
        if self.met:
            return ""
        held = self._held + text
        # Of several, the one that is whole first, however the text is cut into pieces; of those the longest.
        found = [(at + len(word), at) for word in self._words if (at := held.find(word)) >= 0]
        if found:
            self.met, self._held = True, ""
            return held[: min(found)[1]]
        keep = max((_overlap(held, word) for word in self._words), default=0)
        self._held = held[len(held) - keep :]
        return held[: len(held) - keep]

    def end(self) -> str:
        """What was held when the answer ended, which is no stop word any more."""
        held, self._held = self._held, ""
        return held


def _overlap(text: str, word: str) -> int:
    """How long the longest end of a text is with which the word begins, without being all of it."""
    longest = min(len(text), len(word) - 1)
    return next((size for size in range(longest, 0, -1) if text.endswith(word[:size])), 0)
