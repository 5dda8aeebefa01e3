"""Whether the gateway takes messages, and if not, why."""

from __future__ import annotations


class Readiness:
    """Starting, ready, or not any more. The reason is a sentence for operators."""

    def __init__(self) -> None:
        self._reason: str | None = "The gateway is starting."

    def ready(self) -> None:
        """Messages are taken from here on, unless it had to stop before."""
        self._reason = None

    def stop(self, reason: str) -> None:
        """Messages are not taken any more."""
        self._reason = reason

    @property
    def refuses(self) -> str | None:
        """Why no message is taken, or None."""
        return self._reason
