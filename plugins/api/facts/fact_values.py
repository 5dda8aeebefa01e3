"""A fact: one sentence that is worth knowing later, with where it came from."""

from __future__ import annotations

import math
import unicodedata
import uuid
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal, Self, TypeAlias, get_args

import msgspec

from sessions.events.codec import carriable

FactType: TypeAlias = Literal["fact", "decision", "preference", "convention", "code_context", "pattern"]
"""Of the project, a choice, a taste, a rule of writing, where something stands in the code, something that recurs."""

FactSource: TypeAlias = Literal["auto-extracted", "manual", "distilled", "imported"]

Layer: TypeAlias = Literal["daily", "longterm"]
"""What a turn left behind for some weeks, or what stays."""

TYPES: tuple[FactType, ...] = get_args(FactType)

LONGEST = 2000
"""Characters of a fact."""

MOST_TAGS, LONGEST_TAG = 16, 80

LEAST, GREATEST = 0.3, 1.0
"""The importance of a fact: up to 0.5 nice to know, up to 0.7 useful, above critical."""

WORKSPACE = "ws:"
"""Begins the tag that ties a fact to one workspace."""


class InvalidFact(ValueError):
    """What should become a fact cannot; `str(error)` is one sentence that says why."""


class Origin(msgspec.Struct, frozen=True, kw_only=True):
    """The event with this `seq` in a session's journal: of a fact, the message that it came from."""

    session: str
    seq: int


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One fact. `importance` is what it was worth when it was written (what it is worth now is `scoring.worth`), `created`
    and `used` (when it was last recalled; empty for never) are RFC 3339 in UTC. `owner` is the person whose chats it is
    recalled in, empty for everybody's; `made_of` are the daily facts that a distilled one stands for."""

    id: str
    content: str
    type: FactType = "fact"
    tags: tuple[str, ...] = ()
    importance: float = 0.5
    created: str
    used: str = ""
    source: FactSource
    layer: Layer = "daily"
    pinned: bool = False
    owner: str = ""
    origin: Origin | None = None
    made_of: tuple[str, ...] = ()

    def workspaces(self) -> frozenset[str]:
        """The workspaces that it is tied to; none where it is known everywhere."""
        return frozenset(tag for tag in self.tags if tag.startswith(WORKSPACE))

    def is_known_in(self, workspace: str) -> bool:
        """Whether it may be told in the workspace with this tag."""
        return not (tied := self.workspaces()) or workspace in tied

    def tied_to(self, workspaces: frozenset[str]) -> Self:
        """The same fact, tied to these workspaces and no others."""
        words = [tag for tag in self.tags if not tag.startswith(WORKSPACE)]
        return msgspec.structs.replace(self, tags=(*words, *sorted(workspaces)))

    def is_of(self, owner: str) -> bool:
        """Whether it may be told to this person."""
        return self.owner in ("", owner)


class Draft(msgspec.Struct, frozen=True, kw_only=True):
    """What may become a fact: what `draft` found sound; `made_of` as in a fact."""

    content: str
    type: FactType = "fact"
    tags: tuple[str, ...] = ()
    importance: float = 0.5
    made_of: tuple[str, ...] = ()


def draft(content: str, type_: str = "fact", tags: Sequence[str] = (), importance: float = 0.5) -> Draft:
    """A sound draft of these. Raises InvalidFact."""
    return Draft(
        content=sound_content(content),
        type=sound_type(type_),
        tags=sound_tags(tags),
        importance=sound_importance(importance),
    )


def new_id() -> str:
    """An id that no other fact has."""
    return str(uuid.uuid4())


def workspace_tag(workspace: Path) -> str:
    """The tag that ties facts to a workspace: `ws:` and the beginning of the SHA-256 of its path."""
    return WORKSPACE + sha256(str(workspace.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def sound_content(text: str) -> str:
    """The text as a fact may have it: one line without control characters. Raises InvalidFact."""
    said = " ".join("".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in carriable(text)).split())
    if not said:
        raise InvalidFact("A fact needs words.")
    if len(said) > LONGEST:
        raise InvalidFact(f"A fact has at most {LONGEST:,} characters, and this has {len(said):,}.")
    return said


def sound_type(name: str) -> FactType:
    """The type of this name. Raises InvalidFact."""
    for known in TYPES:
        if name == known:
            return known
    raise InvalidFact(f"A fact is one of {', '.join(TYPES)}, not {name!r}.")


def sound_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """The tags, each once. Raises InvalidFact."""
    kept = tuple(dict.fromkeys(tag for each in tags if (tag := " ".join(carriable(each).split()))))
    if len(kept) > MOST_TAGS or any(len(tag) > LONGEST_TAG for tag in kept):
        raise InvalidFact(f"A fact has at most {MOST_TAGS} tags of at most {LONGEST_TAG} characters.")
    return kept


def sound_importance(number: float) -> float:
    """The importance within its bounds. Raises InvalidFact for what is no number."""
    try:
        if math.isfinite(number):
            return min(max(float(number), LEAST), GREATEST)
    except OverflowError:  # an integer that no float holds
        pass
    raise InvalidFact("A fact's importance is a number from 0.3 to 1.")
