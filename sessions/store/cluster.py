"""The protocol of a cluster: this gateway among those that share a store."""

from __future__ import annotations

import asyncio
from typing import Protocol

import msgspec


class GatewayRow(msgspec.Struct, frozen=True, kw_only=True):
    """An incarnation of a gateway that is alive: what it has told about itself, and the number of its claims.

    `url` is its address for other gateways, empty until it listens. `beat` grows as long as it is alive; `idle_ms` is the
    time since the last beat, by the clock of the store. `began` is in RFC 3339. `held` is the number of its conversations,
    and `epoch` the highest of their epochs.
    """

    id: str
    url: str
    beat: int
    idle_ms: int
    draining: bool
    version: str
    config_digest: str
    began: str
    held: int
    epoch: int


class Cluster(Protocol):
    """This gateway among those that share a store. All is for the event loop, except for `rows`."""

    id: str
    """The present incarnation of this gateway; empty while it has been declared dead and has not begun again."""
    secret: bytes
    """The secret that the gateways share."""
    deaths: int
    """How often this process was declared dead."""
    declared: int
    """How many other gateways it has declared dead."""
    adopted: int
    """How many conversations it has adopted because their owner was gone."""
    unowned: asyncio.Event
    """Set while there is unfinished work without an owner."""

    @property
    def silent_seconds(self) -> float:
        """Seconds since the last contact with the store."""
        ...

    @property
    def alive(self) -> int:
        """The number of gateways that are alive, this one included."""
        ...

    @property
    def draining(self) -> bool:
        """True if this gateway is stopping, and takes no further claims."""
        ...

    async def announce(self, url: str) -> None:
        """Tell the others where this gateway listens. Raises StorageFailed."""
        ...

    async def drain(self) -> None:
        """Tell the others that this gateway is stopping, and take no further claims. Raises StorageFailed."""
        ...

    async def until_gone(self, gateway: str) -> None:
        """Return once another gateway is dead or has left."""
        ...

    def is_gone(self, gateway: str) -> bool:
        """Return True if another gateway is dead or has left. This one must have been a member for some seconds before
        that; it knows of no death while it has no contact with the store itself."""
        ...

    def rows(self) -> list[GatewayRow]:
        """Return the gateways that are alive, in the order of their start. Blocks; raises StorageFailed."""
        ...
