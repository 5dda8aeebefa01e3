"""Claims on conversations: the right to write their sessions, where several gateways share a store."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from typing import Protocol

import msgspec

from sessions.store.catalog import Catalog, Name


class Claim(msgspec.Struct, frozen=True, kw_only=True):
    """The right to write the sessions of a person's key. `epoch` grows with each owner: what an earlier one still writes is
    rejected."""

    name: Name
    epoch: int


class Claims(Protocol):
    """The claims of one gateway."""

    async def claim(self, name: Name) -> Claim:
        """Claim a person's key before any of its sessions is opened or created. Raises StorageFailed."""
        ...

    async def release(self, claim: Claim) -> None:
        """Give a claim up, after all sessions of its key were closed."""
        ...

    def on_lost(self, lost: Callable[[Claim], None]) -> None:
        """Set the callback for claims that another gateway has taken over, called on the event loop. Nothing that is
        written under them will become durable."""
        ...

    def unowned(self) -> AsyncIterator[Name]:
        """Yield the keys that have unfinished work and no owner, the most recent first, as long as there may be more."""
        ...


class SoleClaims:
    """The `Claims` of the only gateway of a home: always granted, and never lost."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog

    async def claim(self, name: Name) -> Claim:
        """Return the claim; see `Claims.claim`."""
        return Claim(name=name, epoch=0)

    async def release(self, claim: Claim) -> None:
        """Do nothing; see `Claims.release`."""

    def on_lost(self, lost: Callable[[Claim], None]) -> None:
        """Do nothing; see `Claims.on_lost`."""

    async def unowned(self) -> AsyncIterator[Name]:
        """Yield what an earlier process left unfinished; see `Claims.unowned`."""
        rows = sorted(await self._catalog.unsettled(), key=lambda row: row.at, reverse=True)
        for name in dict.fromkeys(row.name for row in rows):
            yield name
