"""Events of the facts log. They follow the same rules as `sessions.events.events`.

Fields are only added, with defaults; a new meaning is a new kind; existing lines are never rewritten. No field has the name
of an envelope field (seq, at, turn, kind, sum). `by` names the author: `model`, `gateway`, or a person.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, TypeAlias, get_args

import msgspec

from plugins.api.fact_values import Fact, FactOrigin, FactType
from sessions.events.messages import Usage

FORMAT = 1
"""The format version, written in `facts_opened`."""


class _Kind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The base class of all kinds; each sets its `tag`."""


class FactsOpened(_Kind, tag="facts_opened", frozen=True, kw_only=True):
    """The first event of a log."""

    format: int


class FactsExtracted(_Kind, tag="facts_extracted", frozen=True, kw_only=True):
    """The facts extracted from one turn of a session, often none. A turn with this event is not processed again.

    Attributes:
        session: The session's id.
        ordinal: The number of the turn in its session.
        typed: The facts come from an explicit request to remember something.
        upto: The seq of the turn's last event in the session's journal.
        entries: The facts.
        failed: The reason why the extraction was abandoned, or "".
        model: The model that was asked, as `provider:model`.
        usage: The token usage.
    """

    session: str
    ordinal: int
    typed: bool = False
    upto: int = 0
    entries: tuple[Fact, ...] = ()
    failed: str = ""
    model: str = ""
    usage: Usage | None = None


class ExtractionFailed(_Kind, tag="extraction_failed", frozen=True, kw_only=True):
    """An attempt to extract facts from a turn failed and will be retried.

    After several attempts `facts_extracted` records the failure.

    Attributes:
        session: The session's id.
        upto: The seq of the turn's last event in the session's journal.
        reason: The error message.
        model: The model that was asked, as `provider:model`.
    """

    session: str
    upto: int
    reason: str
    model: str = ""


class FactsWritten(_Kind, tag="facts_written", frozen=True, kw_only=True):
    """Facts were written explicitly or imported."""

    entries: tuple[Fact, ...]
    by: str


class Superseded(msgspec.Struct, frozen=True, kw_only=True):
    """A fact contradicted by a `newer` one, and its reduced `importance`."""

    id: str
    newer: str
    importance: float


class FactsDistilled(_Kind, tag="facts_distilled", frozen=True, kw_only=True):
    """A batch of daily facts was distilled into long-term facts.

    Attributes:
        taken: The ids of the daily facts. They are not distilled again.
        entries: The new facts.
        superseded: Existing facts that the new ones contradict.
        session: The session that triggered it, or "".
        model: The model that was asked, as `provider:model`.
        usage: The token usage.
        failed: The reason why the batch was kept unchanged, or "".
    """

    taken: tuple[str, ...]
    entries: tuple[Fact, ...] = ()
    superseded: tuple[Superseded, ...] = ()
    session: str = ""
    model: str = ""
    usage: Usage | None = None
    failed: str = ""


class FactPinned(_Kind, tag="fact_pinned", frozen=True, kw_only=True):
    """A fact was pinned, so that it is never dropped, or unpinned (`pinned` is false)."""

    id: str
    pinned: bool
    by: str


class FactEdited(_Kind, tag="fact_edited", frozen=True, kw_only=True):
    """A person edited a fact, which is a long-term one from then on.

    Attributes:
        id: The id of the fact.
        content: Its text after the edit, as are the next three.
        type: Its type.
        tags: Its tags, including those that limit it to workspaces.
        importance: Its importance.
        by: The person.
        replaced: The ids of the facts that were distilled from it alone, which the edit removes.
    """

    id: str
    content: str
    type: FactType = "fact"
    tags: tuple[str, ...] = ()
    importance: float = 0.5
    by: str
    replaced: tuple[str, ...] = ()

    def applied(self, fact: Fact, at: str) -> Fact:
        """Return the fact after the edit at this time."""
        return msgspec.structs.replace(
            fact,
            content=self.content,
            type=self.type,
            tags=self.tags,
            importance=self.importance,
            layer="longterm",
            edited=at,
        )


class FactForgotten(_Kind, tag="fact_forgotten", frozen=True, kw_only=True):
    """A person deleted a fact."""

    id: str
    by: str


class FactsDropped(_Kind, tag="facts_dropped", frozen=True, kw_only=True):
    """Facts were dropped automatically.

    Attributes:
        ids: The ids of the facts.
        why: `retention`: too old for the daily log. `cap`: too many long-term facts. `duplicate`: another fact says the
            same.
        kept: For duplicates, the id of the fact that was kept for each of `ids`.
    """

    ids: tuple[str, ...]
    why: Literal["retention", "cap", "duplicate"]
    kept: tuple[str, ...] = ()


class DailyCleared(_Kind, tag="daily_cleared", frozen=True, kw_only=True):
    """A person cleared their daily log."""

    ids: tuple[str, ...]
    by: str


class FactsUsed(_Kind, tag="facts_used", frozen=True, kw_only=True):
    """Facts were recalled. `recalled` refers to the `memory_recalled` event."""

    ids: tuple[str, ...]
    recalled: FactOrigin


FactEvent: TypeAlias = (
    FactsOpened
    | FactsExtracted
    | ExtractionFailed
    | FactsWritten
    | FactsDistilled
    | FactPinned
    | FactEdited
    | FactForgotten
    | FactsDropped
    | DailyCleared
    | FactsUsed
)

KINDS: dict[str, type[FactEvent]] = {str(kind.__struct_config__.tag): kind for kind in get_args(FactEvent)}


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a kind that only a newer version knows. Its line is left unchanged."""

    kind: str


class LoggedFactEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its envelope. `at` is RFC 3339 in UTC with milliseconds."""

    seq: int
    at: str
    event: FactEvent | Unknown


class FactEvents(msgspec.Struct, frozen=True, kw_only=True):
    """The events about a fact, its current or last state, and whether it still exists."""

    fact: Fact
    exists: bool
    events: tuple[LoggedFactEvent, ...]


def written_fact(fact: str, events: Iterable[LoggedFactEvent]) -> Fact | None:
    """Return a fact as these events wrote and edited it, None if none wrote it."""
    found = None
    for each in events:
        found = text_after(each, fact, found)
    return found


def text_after(logged: LoggedFactEvent, fact: str, before: Fact | None) -> Fact | None:
    """Return a fact as an event writes or edits it; `before` if it does neither."""
    match logged.event:
        case FactsExtracted(entries=entries) | FactsWritten(entries=entries) | FactsDistilled(entries=entries):
            return next((entry for entry in entries if entry.id == fact), before)
        case FactEdited(id=edited) as event if edited == fact and before is not None:
            return event.applied(before, logged.at)
        case _:
            return before
