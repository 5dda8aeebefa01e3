"""The facts visible to one person in one chat: their own and shared ones; in a group only shared ones."""

from __future__ import annotations

from plugins.api.fact_values import Fact, FactChange, FactHistory, FactHistoryEntry, FactLayer
from plugins.facts.fact_events import (
    DailyCleared,
    FactEdited,
    FactForgotten,
    FactPinned,
    FactsDistilled,
    FactsDropped,
    FactsExtracted,
    FactsWritten,
    LoggedFactEvent,
    text_after,
)
from plugins.facts.facts import Facts
from plugins.support.workspace import OWNER


class PersonsFacts:
    """The facts as one person may see and change them. The methods raise what those of `Facts` raise."""

    def __init__(self, facts: Facts, person: str, *, group: bool) -> None:
        self._facts = facts
        self._person = person
        self.owner = "" if group else person
        """The person whose facts are visible besides shared ones, "" for nobody."""

    async def listed(self, layer: FactLayer | None = None) -> list[Fact]:
        """Return the visible facts, oldest first."""
        return await self._facts.listed(self.owner, layer)

    async def pin(self, named: str, *, pinned: bool = True) -> Fact:
        """Pin or unpin a fact."""
        return await self._facts.pin(named, self._person, owner=self.owner, pinned=pinned)

    async def edit(self, named: str, change: FactChange, *, revision: int | None = None) -> Fact:
        """Edit a fact. Shared ones are in everybody's requests, so only the gateway's owner edits them."""
        shared = self._person == OWNER
        return await self._facts.edit(named, change, self._person, owner=self.owner, shared=shared, revision=revision)

    async def forget(self, named: str) -> Fact:
        """Delete a fact."""
        return await self._facts.forget(named, self._person, owner=self.owner)

    async def daily(self) -> list[Fact]:
        """Return the daily log, without shared facts."""
        return await self._facts.daily(self.owner)

    async def clear(self) -> int:
        """Empty the daily log except pinned facts, and return how many were deleted."""
        return await self._facts.clear(self._person, owner=self.owner)

    async def history(self, named: str) -> FactHistory:
        """Return the history of a fact."""
        found = await self._facts.events_of(named, self.owner)
        state: Fact | None = None
        changes = []
        for each in found.events:
            before, state = state, text_after(each, found.fact.id, state)
            edited = before if state is not before else None
            changes.append(FactHistoryEntry(at=each.at, sentence=describe_event(each, found.fact), before=edited))
        return FactHistory(fact=found.fact, exists=found.exists, changes=tuple(changes))


def describe_event(logged: LoggedFactEvent, fact: Fact) -> str:  # noqa: PLR0911, PLR0912 - one for each kind
    """Describe in a sentence what an event did to a fact."""
    match logged.event:
        case FactsExtracted() as event:
            return f"Extracted from {'`/remember`' if event.typed else f'turn {event.ordinal}'}."
        case FactsWritten() as event:
            return f"Written by {event.by}."
        case FactsDistilled(failed=reason) if reason:
            return f"Kept unchanged, since it could not be distilled: {reason}"
        case FactsDistilled() as event if any(entry.id == fact.id for entry in event.entries):
            return f"Distilled from {_ids(*(fact.made_of or event.taken)) or 'the daily log'}."
        case FactsDistilled() as event if old := next((each for each in event.superseded if each.id == fact.id), None):
            return f"Superseded by {_ids(old.newer)}; its importance was lowered to {old.importance:.2f}."
        case FactsDistilled() as event:
            made = _ids(*(entry.id for entry in event.entries if fact.id in entry.made_of))
            return f"Distilled into {made}." if made else "Distilled; no long-term fact was made from it."
        case FactPinned() as event:
            return f"{'Pinned' if event.pinned else 'Unpinned'} by {event.by}."
        case FactEdited() as event if event.id == fact.id:
            return f"Edited by {event.by}."
        case FactEdited() as event:
            return f"Removed when {_ids(event.id)}, from which it was distilled, was edited by {event.by}."
        case FactForgotten() as event:
            return f"Forgotten by {event.by}."
        case DailyCleared() as event:
            return f"Cleared with the daily log by {event.by}."
        case FactsDropped(why="duplicate") as event:
            kept = dict(zip(event.ids, event.kept, strict=False)).get(fact.id, "")
            return f"Dropped as a duplicate of {_ids(kept)}."
        case FactsDropped(why="retention"):
            return "Dropped from the daily log because it was too old."
        case FactsDropped():
            return "Dropped as the least important, since the limit was reached."
        case _:
            return "Unknown event, recorded by another version."


def _ids(*ids: str) -> str:
    """Return ids as inline code, as short as lists show them."""
    return ", ".join(f"`{each[:8].replace('`', '´')}`" for each in ids)
