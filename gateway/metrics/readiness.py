"""The readiness of the gateway to take messages."""

from __future__ import annotations

from gateway.support.errors import Busy
from sessions.events.errors import StorageFailed


class Readiness:
    """The state of the gateway: starting, ready, or stopped for a reason that operators and clients are shown."""

    def __init__(self) -> None:
        self._reason: Busy | StorageFailed | None = Busy("The gateway is starting.")

    def ready(self) -> None:
        """Take messages from now on."""
        self._reason = None

    def stop(self, reason: Busy | StorageFailed) -> None:
        """Take no messages from now on, for this reason."""
        self._reason = reason

    @property
    def refuses(self) -> Busy | StorageFailed | None:
        """The reason why messages are refused; None if they are taken."""
        return self._reason
