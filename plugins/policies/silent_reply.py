"""The silent answer: a model that has nothing to say answers `NO_REPLY`, and nobody is shown a letter of it.

Only the token by itself is silent, with white space around it at most: an answer "NO" is an answer.
"""

from __future__ import annotations

NO_REPLY = "NO_REPLY"


def is_silent(text: str) -> bool:
    """Whether this whole answer is the token and nothing else."""
    return text.strip() == NO_REPLY


class SilenceFilter:
    """What may be shown of an answer while it streams: nothing for as long as it may yet turn out to be silent, from then on
    everything. Each character is looked at once, however the answer comes in pieces."""

    def __init__(self) -> None:
        self._held: list[str] = []
        self._matched = 0
        self._speaks = False

    def feed(self, delta: str) -> str:
        """What may be shown now that this piece has come; "" while it is held back."""
        if self._speaks:
            return delta
        self._held.append(delta)
        if self._may_be_silent(delta):
            return ""
        self._speaks = True
        return self._release()

    def end(self) -> str:
        """What is still to be shown of an answer that ends here; "" of a silent one."""
        return "" if self._matched == len(NO_REPLY) else self._release()

    def _may_be_silent(self, delta: str) -> bool:
        rest = delta if self._matched else delta.lstrip()
        expected = NO_REPLY[self._matched : self._matched + len(rest)]
        if not rest.startswith(expected):
            return False
        self._matched += len(expected)
        return not rest[len(expected) :].strip()

    def _release(self) -> str:
        text = "".join(self._held)
        self._held.clear()
        return text
