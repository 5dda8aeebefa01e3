"""The book of facts: the fold of their log. It holds those that are there now, and for each that ever was the events that
speak of it, so that it can be explained."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from plugins.api.facts.fact_events import (
    DailyCleared,
    ExtractionFailed,
    FactEvent,
    FactForgotten,
    FactPinned,
    FactsDistilled,
    FactsDropped,
    FactsExtracted,
    FactsUsed,
    FactsWritten,
    LoggedFactEvent,
)
from plugins.api.facts.fact_values import Fact, Layer
from sessions.events.messages import Usage


class Ambiguous(LookupError):
    """Several facts have an id that begins so."""


class FactBook:
    """All facts. Only `turn_over` changes it, an event at a time; the same events give the same book."""

    def __init__(self) -> None:
        self._facts: dict[str, Fact] = {}
        self._history: dict[str, list[int]] = {}
        self._extracted: dict[str, tuple[int, int]] = {}
        self._tries: dict[str, tuple[int, int]] = {}
        """Of each session the end of the turn that could not be looked through, and how often it was tried."""
        self._spent: dict[str, dict[str, dict[str, Usage]]] = {}
        self._taken: set[str] = set()
        self._stand_for: defaultdict[str, set[str]] = defaultdict(set)
        """Of each daily fact those that were made of it and are there."""
        self._newer: dict[str, str] = {}
        """Of each fact that is superseded the one that says otherwise."""
        self._used_to: dict[str, int] = {}
        self.revision = 0
        """Grows whenever facts come or leave."""

    # --- what it says -------------------------------------------------------------------------------------------------

    @property
    def facts(self) -> Mapping[str, Fact]:
        """Those that are there, by id, in the order in which they came."""
        return MappingProxyType(self._facts)

    def layer(self, layer: Layer) -> list[Fact]:
        """Those of the daily log, or of what stays."""
        return [fact for fact in self._facts.values() if fact.layer == layer]

    def undistilled(self) -> list[Fact]:
        """The daily facts that nothing was made of yet."""
        return [fact for fact in self.layer("daily") if fact.id not in self._taken]

    def has_extracted(self, session: str, ordinal: int) -> bool:
        """Whether this turn was looked through, or a later one of its session."""
        return ordinal <= self._extracted.get(session, (0, 0))[0]

    def has_looked_at(self, what: FactsExtracted) -> bool:
        """Whether the turn that this says something of was looked through before."""
        if what.upto:
            return self.has_read(what.session, what.upto)
        return self.has_extracted(what.session, what.ordinal)

    def has_read(self, session: str, end: int) -> bool:
        """Whether what ended with the event that has this seq was looked through."""
        return end <= self.read_to(session)

    def read_to(self, session: str) -> int:
        """The seq up to which a session's journal was looked through; 0 for not at all."""
        return self._extracted.get(session, (0, 0))[1]

    def tries(self, session: str, end: int) -> int:
        """Return how often it was tried in vain to look through the turn that ends with the event that has this seq."""
        tried, count = self._tries.get(session, (0, 0))
        return count if tried == end else 0

    def spent(self, session: str) -> Mapping[str, Mapping[str, Usage]]:
        """What looking through a session and distilling what was found there has cost, by purpose and model."""
        return self._spent.get(session, {})

    def made_of(self, fact: str) -> list[Fact]:
        """The facts that stay and that were made of this daily one: they are told in its place."""
        return [self._facts[each] for each in self._stand_for.get(fact, ())]

    def newer(self, fact: str) -> str | None:
        """The fact that supersedes this one."""
        return self._newer.get(fact)

    def has_used(self, session: str, seq: int) -> bool:
        """Whether this recall is counted, or a later one of its session."""
        return seq <= self._used_to.get(session, 0)

    def history(self, fact: str) -> tuple[int, ...]:
        """The seqs of the events that speak of a fact, also of one that has left."""
        return tuple(self._history.get(fact, ()))

    def named(self, beginning: str) -> str | None:
        """The id that begins so, of the facts that are there, else of those that have left; None if there is none. Raises
        Ambiguous."""
        for ids in (self._facts, self._history):
            found = [each for each in ids if beginning and each.startswith(beginning)]
            if beginning in found:
                return beginning
            if len(found) > 1:
                raise Ambiguous(f"{len(found)} facts have an id that begins with {beginning}; write more of it.")
            if found:
                return found[0]
        return None

    # --- what happens -------------------------------------------------------------------------------------------------

    def turn_over(self, happened: LoggedFactEvent) -> None:
        """Take in the next event. Those of unknown kinds change nothing."""
        event = happened.event
        for each in _spoken_of(event):
            self._history.setdefault(each, []).append(happened.seq)
        match event:
            case FactsExtracted():
                before = self._extracted.get(event.session, (0, 0))
                self._extracted[event.session] = max(before, (event.ordinal, event.upto))
                self._tries.pop(event.session, None)
                self._pay("extraction", event)
                self._add(event.entries)
            case ExtractionFailed():
                self._tries[event.session] = event.upto, self.tries(event.session, event.upto) + 1
            case FactsWritten():
                self._add(event.entries)
            case FactsDistilled():
                self._taken.update(each for each in event.taken if each in self._facts)
                self._pay("distillation", event)
                self._add(event.entries)
                for old in event.superseded:
                    self._newer[old.id] = old.newer
                    self._change(old.id, importance=old.importance)
            case FactPinned():
                self._change(event.id, pinned=event.pinned)
            case FactForgotten():
                self._drop((event.id,))
            case FactsDropped() | DailyCleared():
                self._drop(event.ids)
            case FactsUsed():
                where = event.recalled
                self._used_to[where.session] = max(where.seq, self._used_to.get(where.session, 0))
                for each in event.ids:
                    self._change(each, used=happened.at)
            case _:
                pass

    def _pay(self, purpose: str, event: FactsExtracted | FactsDistilled) -> None:
        if event.usage is not None:
            spent = self._spent.setdefault(event.session, {}).setdefault(purpose, {})
            spent[event.model] = spent.get(event.model, Usage()) + event.usage

    def _add(self, entries: Iterable[Fact]) -> None:
        for fact in entries:
            self._facts[fact.id] = fact
            for source in fact.made_of:
                self._stand_for[source].add(fact.id)
            self.revision += 1

    def _change(self, fact: str, **changes: object) -> None:
        if fact in self._facts:
            self._facts[fact] = msgspec.structs.replace(self._facts[fact], **changes)

    def _drop(self, ids: Iterable[str]) -> None:
        for each in ids:
            gone = self._facts.pop(each, None)
            for source in gone.made_of if gone is not None else ():
                self._stand_for[source].discard(each)
            self.revision += 1
            self._taken.discard(each)


def _spoken_of(event: object) -> list[str]:
    """The ids of the facts that an event speaks of. That one was recalled is no part of its story."""
    match event:
        case FactsExtracted() | FactsWritten():
            return [fact.id for fact in event.entries]
        case FactsDistilled():
            told = (*event.taken, *(fact.id for fact in event.entries), *(old.id for old in event.superseded))
            return list(dict.fromkeys(told))
        case FactPinned() | FactForgotten():
            return [event.id]
        case FactsDropped() | DailyCleared():
            return list(event.ids)
        case _:
            return []


def told(events: Iterable[FactEvent], at: str) -> FactBook:
    """The book after these events, each at the same time."""
    book = FactBook()
    for seq, event in enumerate(events, 1):
        book.turn_over(LoggedFactEvent(seq=seq, at=at, event=event))
    return book
