"""Tokens with which one gateway of a cluster tells another whom it has admitted.

They are signed with the secret that the gateways share through their database, name the gateway that they are for, and
expire. Whoever has the secret can read every conversation anyway: it is in the same database.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable

RELAYED = "X-Exuvia-Relayed"
"""The header with such a token."""

VALID_SECONDS = 300
"""Seconds by which the clocks of two gateways may differ."""


class RelayTokens:
    """Issues and reads tokens.

    Args:
        secret: Returns the shared secret.
        own: Returns the id of this gateway.
        now: Returns the seconds since the epoch.
    """

    def __init__(self, secret: Callable[[], bytes], own: Callable[[], str], now: Callable[[], float]) -> None:
        self._secret = secret
        self._own = own
        self._now = now

    def issue(self, person: str, gateway: str) -> str:
        """Return a token for a person of ours, for another gateway."""
        content = f"{person}:{gateway}:{int(self._now())}"
        return f"{content}:{self._signature(content)}"

    def read(self, token: str) -> str | None:
        """Return the person of a token for this gateway; None if it is not valid."""
        content, _, signature = token.rpartition(":")
        given = signature.encode("utf-8", "replace")
        if not self._secret() or not hmac.compare_digest(given, self._signature(content).encode()):
            return None
        person, gateway, at = content.split(":")
        valid = gateway == self._own() != "" and abs(self._now() - int(at)) <= VALID_SECONDS
        return person if valid else None

    def _signature(self, content: str) -> str:
        return hmac.digest(self._secret(), f"relay {content}".encode("utf-8", "replace"), "sha256").hex()
