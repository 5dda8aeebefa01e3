"""The protocol of leases: what only one of the gateways that share a store does at a time, such as polling a bot."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Protocol


class Leases(Protocol):
    """The leases of one gateway."""

    async def hold(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run some work while this gateway has the lease of this name, until it ends or this is cancelled. The work is
        cancelled when the lease is lost, and begins again when this gateway has it again."""
        ...

    def holds(self, name: str) -> bool:
        """Return True if this gateway has a lease."""
        ...

    def holder(self, name: str) -> str:
        """Return the gateway that has a lease, as far as it is known; "" if it is not."""
        ...


class SoleLeases:
    """The `Leases` of the only gateway of a home, which has them all."""

    async def hold(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        """Run the work; see `Leases.hold`."""
        await work()

    def holds(self, name: str) -> bool:
        """Return True; see `Leases.holds`."""
        return True

    def holder(self, name: str) -> str:
        """Return "": a single gateway has no name; see `Leases.holder`."""
        return ""
