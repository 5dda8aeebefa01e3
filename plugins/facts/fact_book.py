"""The state of all facts, reduced from the events of their log, with an index of the events about each fact."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from types import MappingProxyType

import msgspec

from plugins.api.fact_values import Fact, FactLayer
from plugins.facts.fact_events import (
    DailyCleared,
    ExtractionFailed,
    FactEdited,
    FactForgotten,
    FactPinned,
    FactsDistilled,
    FactsDropped,
    FactsExtracted,
    FactsUsed,
    FactsWritten,
    LoggedFactEvent,
)
from sessions.events.messages import Usage


class Ambiguous(LookupError):
    """Several facts have an id with this prefix."""


class FactBook:
    """All facts. Only `apply` changes the state; the same events give the same state."""

    def __init__(self) -> None:
        self._facts: dict[str, Fact] = {}
        self._history: dict[str, list[int]] = {}
        self._text_seqs: dict[str, int] = {}
        """By fact, the sequence number of the event with its current text."""
        self._extracted: dict[str, tuple[int, int]] = {}
        self._failed_attempts: dict[str, tuple[int, int]] = {}
        """By session, the end of the turn whose extraction failed, and the number of attempts."""
        self._spent: dict[str, dict[str, dict[str, Usage]]] = {}
        self._distilled: set[str] = set()
        self._distilled_from: defaultdict[str, set[str]] = defaultdict(set)
        """By daily fact, the current facts that were distilled from it."""
        self._superseded_by: dict[str, str] = {}
        """By superseded fact, the newer one."""
        self._recalls_counted: dict[str, int] = {}
        self.revision = 0
        """Incremented whenever facts are added, edited or removed."""

    # --- queries ------------------------------------------------------------------------------------------------------

    @property
    def facts(self) -> Mapping[str, Fact]:
        """The current facts by id, in the order of their creation."""
        return MappingProxyType(self._facts)

    def layer(self, layer: FactLayer) -> list[Fact]:
        """Return the facts of the daily log, or the long-term facts."""
        return [fact for fact in self._facts.values() if fact.layer == layer]

    def undistilled(self) -> list[Fact]:
        """Return the daily facts that were not distilled yet."""
        return [fact for fact in self.layer("daily") if fact.id not in self._distilled]

    def has_extracted_turn(self, session: str, ordinal: int) -> bool:
        """Return True if this turn or a later one of the session was processed."""
        return ordinal <= self._extracted.get(session, (0, 0))[0]

    def has_recorded(self, what: FactsExtracted) -> bool:
        """Return True if the turn of this extraction was processed before."""
        if what.upto:
            return self.has_processed(what.session, what.upto)
        return self.has_extracted_turn(what.session, what.ordinal)

    def has_processed(self, session: str, end: int) -> bool:
        """Return True if the turn that ended with this event was processed."""
        return end <= self.processed_up_to(session)

    def processed_up_to(self, session: str) -> int:
        """Return the sequence number up to which a session was processed, 0 for none."""
        return self._extracted.get(session, (0, 0))[1]

    def failed_attempts(self, session: str, end: int) -> int:
        """Return the number of failed attempts to process the turn that ended with this event."""
        tried, count = self._failed_attempts.get(session, (0, 0))
        return count if tried == end else 0

    def spent(self, session: str) -> Mapping[str, Mapping[str, Usage]]:
        """Return the usage of extraction and distillation for a session, by purpose and model."""
        return self._spent.get(session, {})

    def distilled_from(self, fact: str) -> list[Fact]:
        """Return the long-term facts that were distilled from this daily fact and replace it in recall. Nothing replaces an
        edited fact."""
        if fact in self._facts and self._facts[fact].edited:
            return []
        return [self._facts[each] for each in self._distilled_from.get(fact, ())]

    def text_seq(self, fact: str) -> int:
        """Return the sequence number of the event with the current text of a fact."""
        return self._text_seqs[fact]

    def superseded_by(self, fact: str) -> str | None:
        """Return the id of the fact that supersedes this one."""
        return self._superseded_by.get(fact)

    def has_used(self, session: str, seq: int) -> bool:
        """Return True if this recall, or a later one of its session, was counted."""
        return seq <= self._recalls_counted.get(session, 0)

    def history(self, fact: str) -> tuple[int, ...]:
        """Return the sequence numbers of the events about a fact, including deleted ones."""
        return tuple(self._history.get(fact, ()))

    def is_gone(self, fact: str) -> bool:
        """Return True if a fact with this id was here and was forgotten, cleared or dropped."""
        return fact in self._history and fact not in self._facts

    def named(self, beginning: str) -> str | None:
        """Return the id with this prefix among the current facts, else among deleted ones; None if there is none.

        Raises:
            Ambiguous: Several ids have the prefix.
        """
        for ids in (self._facts, self._history):
            found = [each for each in ids if beginning and each.startswith(beginning)]
            if beginning in found:
                return beginning
            if len(found) > 1:
                raise Ambiguous(f"{len(found)} facts have an id that begins with {beginning}; type more of the id.")
            if found:
                return found[0]
        return None

    # --- events -------------------------------------------------------------------------------------------------------

    def apply(self, happened: LoggedFactEvent) -> None:  # noqa: PLR0912 - one for each kind
        """Apply the next event. Unknown kinds change nothing."""
        event = happened.event
        for each in _fact_ids(event):
            self._history.setdefault(each, []).append(happened.seq)
        match event:
            case FactsExtracted():
                before = self._extracted.get(event.session, (0, 0))
                self._extracted[event.session] = max(before, (event.ordinal, event.upto))
                self._failed_attempts.pop(event.session, None)
                self._add_usage("extraction", event)
                self._add(event.entries, happened.seq)
            case ExtractionFailed():
                self._failed_attempts[event.session] = event.upto, self.failed_attempts(event.session, event.upto) + 1
            case FactsWritten():
                self._add(event.entries, happened.seq)
            case FactsDistilled():
                self._distilled.update(each for each in event.taken if each in self._facts)
                self._add_usage("distillation", event)
                self._add(event.entries, happened.seq)
                for old in event.superseded:
                    self._superseded_by[old.id] = old.newer
                    self._change(old.id, importance=old.importance)
            case FactPinned():
                self._change(event.id, pinned=event.pinned)
            case FactEdited():
                self._edit(event, happened)
            case FactForgotten():
                self._drop((event.id,))
            case FactsDropped() | DailyCleared():
                self._drop(event.ids)
            case FactsUsed():
                where = event.recalled
                self._recalls_counted[where.session] = max(where.seq, self._recalls_counted.get(where.session, 0))
                for each in event.ids:
                    self._change(each, used=happened.at)
            case _:
                pass

    def _add_usage(self, purpose: str, event: FactsExtracted | FactsDistilled) -> None:
        if event.usage is not None:
            spent = self._spent.setdefault(event.session, {}).setdefault(purpose, {})
            spent[event.model] = spent.get(event.model, Usage()) + event.usage

    def _add(self, entries: Iterable[Fact], seq: int) -> None:
        for fact in entries:
            self._facts[fact.id] = fact
            self._text_seqs[fact.id] = seq
            for source in fact.made_of:
                self._distilled_from[source].add(fact.id)
            self.revision += 1

    def _edit(self, event: FactEdited, happened: LoggedFactEvent) -> None:
        if event.id in self._facts:
            self._facts[event.id] = event.applied(self._facts[event.id], happened.at)
            self._text_seqs[event.id] = happened.seq
            self._superseded_by.pop(event.id, None)
            self.revision += 1
        self._drop(event.replaced)

    def _change(self, fact: str, **changes: object) -> None:
        if fact in self._facts:
            self._facts[fact] = msgspec.structs.replace(self._facts[fact], **changes)

    def _drop(self, ids: Iterable[str]) -> None:
        for each in ids:
            gone = self._facts.pop(each, None)
            for source in gone.made_of if gone is not None else ():
                self._distilled_from[source].discard(each)
            self.revision += 1
            self._distilled.discard(each)


def _fact_ids(event: object) -> list[str]:
    """Return the ids of the facts that an event is about. Recalls are not part of a fact's history."""
    match event:
        case FactsExtracted() | FactsWritten():
            return [fact.id for fact in event.entries]
        case FactsDistilled():
            ids = (*event.taken, *(fact.id for fact in event.entries), *(old.id for old in event.superseded))
            return list(dict.fromkeys(ids))
        case FactPinned() | FactForgotten():
            return [event.id]
        case FactEdited():
            return [event.id, *event.replaced]
        case FactsDropped() | DailyCleared():
            return list(event.ids)
        case _:
            return []
