"""The facts visible to one person in one chat: their own and shared ones; in a group only shared ones."""

from __future__ import annotations

from plugins.api.facts.fact_events import FactHistory
from plugins.api.facts.fact_values import Fact, Layer
from plugins.facts.facts import Facts


class PersonsFacts:
    """The facts as one person may see and change them. The methods raise what those of `Facts` raise."""

    def __init__(self, facts: Facts, person: str, *, group: bool) -> None:
        self._facts = facts
        self._person = person
        self.owner = "" if group else person
        """The person whose facts are visible besides shared ones, "" for nobody."""

    async def listed(self, layer: Layer | None = None) -> list[Fact]:
        """Return the visible facts, oldest first."""
        return await self._facts.listed(self.owner, layer)

    async def pin(self, named: str, *, pinned: bool = True) -> Fact:
        """Pin or unpin a fact."""
        return await self._facts.pin(named, self._person, owner=self.owner, pinned=pinned)

    async def forget(self, named: str) -> Fact:
        """Delete a fact."""
        return await self._facts.forget(named, self._person, owner=self.owner)

    async def daily(self) -> list[Fact]:
        """Return the daily log, without shared facts."""
        return await self._facts.daily(self.owner)

    async def clear(self) -> int:
        """Empty the daily log except pinned facts, and return how many were deleted."""
        return await self._facts.clear(self._person, owner=self.owner)

    async def story(self, named: str) -> FactHistory:
        """Return the history of a fact."""
        return await self._facts.story(named, self.owner)
