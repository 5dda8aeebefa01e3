"""What happens to facts, in the past tense. The same rules as in `sessions.events.events`: fields are only added, with
defaults;
a new meaning is a new kind; old lines are never rewritten. No field has a name of the envelope (seq, at, turn, kind, sum).

`by` says who did it: `model`, `gateway`, or a person's name.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args

import msgspec

from plugins.api.facts.fact_values import Fact, Origin
from sessions.events.messages import Usage

FORMAT = 1
"""The version of the form, written in `facts_opened`."""


class _Kind(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind"):
    """The common form of all; `tag` is given by each kind."""


class FactsOpened(_Kind, tag="facts_opened", frozen=True, kw_only=True):
    """The first line."""

    format: int


class FactsExtracted(_Kind, tag="facts_extracted", frozen=True, kw_only=True):
    """What the turn with this `ordinal` of a session left behind, mostly nothing; with `typed`, what was told to be
    remembered behind it. One for each: whoever stands here is not asked again. `upto` is the seq of its end in the session's
    journal, `failed` says why nothing was found where it was looked for in vain, `usage` what it cost with which `model`
    (`provider:model`)."""

    session: str
    ordinal: int
    typed: bool = False
    upto: int = 0
    entries: tuple[Fact, ...] = ()
    failed: str = ""
    model: str = ""
    usage: Usage | None = None


class ExtractionFailed(_Kind, tag="extraction_failed", frozen=True, kw_only=True):
    """A turn could not be looked through, for this `reason`, and will be tried again: the one that ends with the event
    `upto` of a session's journal. After a few of these `facts_extracted` marks it as failed."""

    session: str
    upto: int
    reason: str
    model: str = ""


class FactsWritten(_Kind, tag="facts_written", frozen=True, kw_only=True):
    """Somebody wrote facts down, or brought them from elsewhere."""

    entries: tuple[Fact, ...]
    by: str


class Superseded(msgspec.Struct, frozen=True, kw_only=True):
    """A fact of which a `newer` one says otherwise: it is worth `importance` from here on."""

    id: str
    newer: str
    importance: float


class FactsDistilled(_Kind, tag="facts_distilled", frozen=True, kw_only=True):
    """What was made of a batch of daily facts. `taken` are their ids, which are not taken again; `session` is the one
    that it was done for, empty for none; `failed` says why the batch was kept as it is."""

    taken: tuple[str, ...]
    entries: tuple[Fact, ...] = ()
    superseded: tuple[Superseded, ...] = ()
    session: str = ""
    model: str = ""
    usage: Usage | None = None
    failed: str = ""


class FactPinned(_Kind, tag="fact_pinned", frozen=True, kw_only=True):
    """A fact is to stay whatever comes, or, with `pinned` false, no longer."""

    id: str
    pinned: bool
    by: str


class FactForgotten(_Kind, tag="fact_forgotten", frozen=True, kw_only=True):
    """Somebody wants a fact gone."""

    id: str
    by: str


class FactsDropped(_Kind, tag="facts_dropped", frozen=True, kw_only=True):
    """Facts had to leave: too old for the daily log, too many in the long-term one, or said by another (`kept`, beside each
    of `ids`)."""

    ids: tuple[str, ...]
    why: Literal["retention", "cap", "duplicate"]
    kept: tuple[str, ...] = ()


class DailyCleared(_Kind, tag="daily_cleared", frozen=True, kw_only=True):
    """Somebody emptied the daily log, as far as it is theirs."""

    ids: tuple[str, ...]
    by: str


class FactsUsed(_Kind, tag="facts_used", frozen=True, kw_only=True):
    """Facts were recalled: `recalled` is the `memory_recalled` that says so."""

    ids: tuple[str, ...]
    recalled: Origin


FactEvent: TypeAlias = (
    FactsOpened
    | FactsExtracted
    | ExtractionFailed
    | FactsWritten
    | FactsDistilled
    | FactPinned
    | FactForgotten
    | FactsDropped
    | DailyCleared
    | FactsUsed
)

KINDS: dict[str, type[FactEvent]] = {str(kind.__struct_config__.tag): kind for kind in get_args(FactEvent)}


class Unknown(msgspec.Struct, frozen=True, kw_only=True):
    """An event of a kind that only a newer version knows; its line stays as it is."""

    kind: str


class LoggedFactEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event with its envelope. `at` is RFC 3339 in UTC with milliseconds."""

    seq: int
    at: str
    event: FactEvent | Unknown


class FactHistory(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of one fact: as it is now, or was before it left (`there` is False then), and what happened to it."""

    fact: Fact
    there: bool
    happened: tuple[LoggedFactEvent, ...]
