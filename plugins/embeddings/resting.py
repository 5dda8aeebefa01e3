"""A server that will fail again is let be for a while: a search does not wait for it each time anew."""

from __future__ import annotations

from collections.abc import Callable

from plugins.errors import ProviderError, RateLimited, Unreachable

SECONDS = 30.0
"""How long, where the server does not say it."""

LONGEST = 3600.0
"""Whoever mends something at the vendor need not restart the gateway."""


class Resting:
    """`now` is a clock in seconds that never goes back."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._until = 0.0
        self._error: ProviderError | None = None

    def note(self, error: ProviderError) -> None:
        """Let the server be after this, if it is one that will be the same in a moment."""
        if isinstance(error, RateLimited | Unreachable):
            self._error = error
            self._until = self._now() + min(error.retry_after or SECONDS, LONGEST)

    def check(self) -> None:
        """Raise the last error anew while the server is let be."""
        wait = self._until - self._now()
        if self._error is not None and wait > 0:
            raise type(self._error)(str(self._error), retry_after=wait)
