"""The facts as one person sees them in one chat: their own and everybody's; in a group everybody's alone."""

from __future__ import annotations

from plugins.api.facts.fact_events import FactHistory
from plugins.api.facts.fact_values import Fact, Layer
from plugins.facts.facts import Facts


class PersonsFacts:
    """What `person` may know and do of the facts. What each method raises, `Facts` says."""

    def __init__(self, facts: Facts, person: str, *, group: bool) -> None:
        self._facts = facts
        self._person = person
        self.owner = "" if group else person
        """Whose facts are told beside everybody's."""

    async def listed(self, layer: Layer | None = None) -> list[Fact]:
        """The facts, oldest first."""
        return await self._facts.listed(self.owner, layer)

    async def pin(self, named: str, *, pinned: bool = True) -> Fact:
        """Have a fact stay whatever comes, or no longer."""
        return await self._facts.pin(named, self._person, owner=self.owner, pinned=pinned)

    async def forget(self, named: str) -> Fact:
        """Have a fact gone."""
        return await self._facts.forget(named, self._person, owner=self.owner)

    async def daily(self) -> list[Fact]:
        """Return the daily log, without what is everybody's."""
        return await self._facts.daily(self.owner)

    async def clear(self) -> int:
        """Empty the daily log, pins excepted; returns how many facts left."""
        return await self._facts.clear(self._person, owner=self.owner)

    async def story(self, named: str) -> FactHistory:
        """What happened to a fact."""
        return await self._facts.story(named, self.owner)
