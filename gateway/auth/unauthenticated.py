"""Limit for connections that have not authenticated yet: one address may hold a part of all of them, never all."""

from __future__ import annotations

from asyncio import BaseTransport
from typing import Protocol

SWEEP = 256
"""Connections that are added between two removals of closed ones."""


class _Connection(Protocol):
    """A connection's protocol, as aiohttp's server creates it."""

    @property
    def transport(self) -> BaseTransport | None: ...


class UnauthenticatedLimit:
    """The open connections that have not authenticated yet, by address.

    Args:
        most: The limit for one address.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._of: dict[str, set[_Connection]] = {}
        self._added = 0

    def has_room(self, address: str) -> bool:
        """Return True if this address may open a further connection."""
        if len(self._of.get(address, ())) < self._most:
            return True
        self._forget_closed()
        return len(self._of.get(address, ())) < self._most

    def add(self, address: str, connection: _Connection) -> None:
        """Count a connection that was just opened."""
        self._of.setdefault(address, set()).add(connection)
        self._added += 1
        if self._added >= SWEEP:
            self._forget_closed()

    def authenticated(self, address: str, connection: _Connection) -> None:
        """Stop counting a connection: it has authenticated."""
        if address in self._of:
            self._of[address].discard(connection)

    def _forget_closed(self) -> None:
        self._added = 0
        still = {address: {each for each in those if _is_open(each)} for address, those in self._of.items()}
        self._of = {address: those for address, those in still.items() if those}


def _is_open(connection: _Connection) -> bool:
    return connection.transport is not None and not connection.transport.is_closing()
