"""Whether the gateway takes messages, and if not, why."""

from __future__ import annotations

from gateway.support.errors import Busy
from sessions.events.errors import StorageFailed


class Readiness:
    """Starting, ready, or not any more. The reason is an error whose sentence operators and clients are shown."""

    def __init__(self) -> None:
        self._reason: Busy | StorageFailed | None = Busy("The gateway is starting.")

    def ready(self) -> None:
        """Messages are taken from here on."""
        self._reason = None

    def stop(self, reason: Busy | StorageFailed) -> None:
        """Messages are not taken any more."""
        self._reason = reason

    @property
    def refuses(self) -> Busy | StorageFailed | None:
        """Why no message is taken, or None."""
        return self._reason
