"""Detection of the silent reply: a model that has nothing to say answers `NO_REPLY`, or `HEARTBEAT_OK` to a heartbeat, which
is never shown.

Only the token alone is silent, with surrounding white space at most: an answer "NO" is an answer.
"""

from __future__ import annotations

NO_REPLY = "NO_REPLY"

_TOKENS = (NO_REPLY, "HEARTBEAT_OK")
"""The silent replies; they differ in the first character."""


def is_silent(text: str) -> bool:
    """Return True if the complete answer is a token alone."""
    return text.strip() in _TOKENS


class SilenceFilter:
    """A filter for a streamed answer that holds text back until the answer can no longer be silent.

    Each character is examined once, however the answer is split.
    """

    def __init__(self) -> None:
        self._held: list[str] = []
        self._token = NO_REPLY
        self._matched = 0
        self._speaks = False

    def feed(self, delta: str) -> str:
        """Return the text that may be shown after this delta, "" while it is held back."""
        if self._speaks:
            return delta
        self._held.append(delta)
        if self._may_be_silent(delta):
            return ""
        self._speaks = True
        return self._release()

    def end(self) -> str:
        """Return the remaining text at the end of the answer, "" if it was silent."""
        return "" if self._matched == len(self._token) else self._release()

    def _may_be_silent(self, delta: str) -> bool:
        rest = delta if self._matched else delta.lstrip()
        if not self._matched and rest:
            self._token = next((token for token in _TOKENS if token[0] == rest[0]), NO_REPLY)
        expected = self._token[self._matched : self._matched + len(rest)]
        if not rest.startswith(expected):
            return False
        self._matched += len(expected)
        return not rest[len(expected) :].strip()

    def _release(self) -> str:
        text = "".join(self._held)
        self._held.clear()
        return text
