"""Facts: one-sentence statements worth remembering. Their values, the validation of their fields, and their errors.

FactsError
├── FactsUnavailable  the facts log cannot be read or written now
├── NoSuchFact        the given name matches no fact, or more than one
├── FactNotEditable   the fact cannot be edited by this person, or not in this way
└── FactConflict      a fact was edited or forgotten since it was read
"""

from __future__ import annotations

import math
import unicodedata
import uuid
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Literal, Self, TypeAlias, get_args

import msgspec

from sessions.events.codec import replace_surrogates

FactType: TypeAlias = Literal["fact", "decision", "preference", "convention", "code_context", "pattern"]
"""The kind of a statement. `code_context` is a location in the code, `pattern` something that recurs."""

FactSource: TypeAlias = Literal["auto-extracted", "manual", "distilled", "imported"]

FactLayer: TypeAlias = Literal["daily", "longterm"]
"""`daily` facts are extracted from turns and kept for some weeks; `longterm` facts are kept."""

TYPES: tuple[FactType, ...] = get_args(FactType)

LONGEST = 2000
"""The maximum length of a fact in characters."""

MOST_TAGS, LONGEST_TAG = 16, 80

LEAST, GREATEST = 0.3, 1.0
"""The range of importance: up to 0.5 nice to know, up to 0.7 useful, above that critical."""

WORKSPACE = "ws:"
"""The prefix of tags that limit a fact to one workspace."""


class InvalidFact(ValueError):
    """A fact has an invalid field; `str(error)` is a one-sentence message."""


class FactsError(Exception):
    """The base class of errors of the facts; `str(error)` is a one-sentence message for people."""


class FactsUnavailable(FactsError):
    """The facts log is damaged or its storage failed. The file is left unchanged."""


class NoSuchFact(FactsError):
    """No fact, or more than one, matches the given name."""


class FactNotEditable(FactsError):
    """A fact cannot be edited by this person, or not in this way."""


class FactConflict(FactsError):
    """A fact was edited or forgotten since it was read."""


class FactOrigin(msgspec.Struct, frozen=True, kw_only=True):
    """The event that a fact comes from, such as a message."""

    session: str
    seq: int


class Fact(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A fact.

    Attributes:
        id: A UUID.
        content: One sentence.
        type: The kind of statement.
        tags: Tags, including those that limit it to workspaces.
        importance: The importance when it was written, from 0.3 to 1. `plugins.facts.scoring` computes the current one.
        created: The time of creation (RFC 3339 in UTC).
        used: The time of the last recall (RFC 3339 in UTC), or "" if never recalled.
        source: How it was created.
        layer: Daily or long-term.
        pinned: It is never dropped automatically.
        owner: The id of the person it belongs to; "" for shared facts.
        origin: The event that it comes from.
        made_of: The ids of the daily facts that it was distilled from.
        edited: The time when a person last edited it (RFC 3339 in UTC), or "" if never. An edited fact is never distilled,
            superseded or dropped as a duplicate.
    """

    id: str
    content: str
    type: FactType = "fact"
    tags: tuple[str, ...] = ()
    importance: float = 0.5
    created: str
    used: str = ""
    source: FactSource
    layer: FactLayer = "daily"
    pinned: bool = False
    owner: str = ""
    origin: FactOrigin | None = None
    made_of: tuple[str, ...] = ()
    edited: str = ""

    def workspaces(self) -> frozenset[str]:
        """Return the tags of the workspaces that it is limited to; empty if it applies to all."""
        return frozenset(tag for tag in self.tags if tag.startswith(WORKSPACE))

    def is_known_in(self, workspace: str) -> bool:
        """Return True if it may be used in the workspace with this tag."""
        return not (tied := self.workspaces()) or workspace in tied

    def tied_to(self, workspaces: frozenset[str]) -> Self:
        """Return a copy that is limited to exactly these workspaces."""
        words = [tag for tag in self.tags if not tag.startswith(WORKSPACE)]
        return msgspec.structs.replace(self, tags=(*words, *sorted(workspaces)))

    def is_of(self, owner: str) -> bool:
        """Return True if it may be shown to this person."""
        return self.owner in ("", owner)


class FactHistoryEntry(msgspec.Struct, frozen=True, kw_only=True):
    """A change of a fact: its time (RFC 3339 in UTC) and a sentence in Markdown; `before` is the fact before an edit."""

    at: str
    sentence: str
    before: Fact | None = None


class FactHistory(msgspec.Struct, frozen=True, kw_only=True):
    """The history of a fact: its current or last state, whether it still exists, and its changes, oldest first."""

    fact: Fact
    exists: bool
    changes: tuple[FactHistoryEntry, ...]


class FactDraft(msgspec.Struct, frozen=True, kw_only=True):
    """The validated fields of a new fact. Use `draft_fact` to create one."""

    content: str
    type: FactType = "fact"
    tags: tuple[str, ...] = ()
    importance: float = 0.5
    made_of: tuple[str, ...] = ()


class FactChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """New values of a fact's fields; None leaves a field as it is.

    `tags` are the words among the tags. `everywhere` says whether the fact is used in all workspaces, or only in this one.
    """

    content: str | None = None
    type: str | None = None
    tags: tuple[str, ...] | None = None
    importance: float | None = None
    everywhere: bool | None = None

    def applied(self, fact: Fact, workspace: str) -> Fact:
        """Return the changed fact, in the workspace with this tag. Raises InvalidFact."""
        words = tuple(tag for tag in fact.tags if not tag.startswith(WORKSPACE)) if self.tags is None else self.tags
        if any(tag.lstrip().startswith(WORKSPACE) for tag in words):
            raise InvalidFact(f"A tag cannot begin with {WORKSPACE}.")
        tied = fact.workspaces() if self.everywhere is None else frozenset(() if self.everywhere else (workspace,))
        return msgspec.structs.replace(
            fact,
            content=fact.content if self.content is None else validate_content(self.content),
            type=fact.type if self.type is None else validate_type(self.type),
            tags=(*validate_tags(words), *sorted(tied)),
            importance=fact.importance if self.importance is None else validate_importance(self.importance),
        )


def draft_fact(content: str, type_: str = "fact", tags: Sequence[str] = (), importance: float = 0.5) -> FactDraft:
    """Validate the fields of a new fact for `WorkspaceFacts.write`.

    Args:
        content: One sentence of at most 2,000 characters.
        type_: `fact`, `decision`, `preference`, `convention`, `code_context` or `pattern`.
        tags: At most 16 tags of at most 80 characters.
        importance: From 0.3 to 1; other numbers become the nearest bound.

    Raises:
        InvalidFact: A field is invalid.
    """
    return FactDraft(
        content=validate_content(content),
        type=validate_type(type_),
        tags=validate_tags(tags),
        importance=validate_importance(importance),
    )


def new_id() -> str:
    """Return a new unique id."""
    return str(uuid.uuid4())


def workspace_tag(workspace: Path) -> str:
    """Return the tag of a workspace: `ws:` and the first 16 hexadecimal digits of the SHA-256 of its path."""
    return WORKSPACE + sha256(str(workspace.resolve()).encode("utf-8", "surrogateescape")).hexdigest()[:16]


def validate_content(text: str) -> str:
    """Return the text as one line without control characters. Raises InvalidFact."""
    said = " ".join(
        "".join(" " if unicodedata.category(c) in ("Cc", "Zl", "Zp") else c for c in replace_surrogates(text)).split()
    )
    if not said:
        raise InvalidFact("A fact needs words.")
    if len(said) > LONGEST:
        raise InvalidFact(f"A fact has at most {LONGEST:,} characters, and this has {len(said):,}.")
    return said


def validate_type(name: str) -> FactType:
    """Return the type with this name. Raises InvalidFact."""
    for known in TYPES:
        if name == known:
            return known
    raise InvalidFact(f"A fact is one of {', '.join(TYPES)}, not {name!r}.")


def validate_tags(tags: Sequence[str]) -> tuple[str, ...]:
    """Return the tags without duplicates. Raises InvalidFact."""
    kept = tuple(dict.fromkeys(tag for each in tags if (tag := " ".join(replace_surrogates(each).split()))))
    if len(kept) > MOST_TAGS or any(len(tag) > LONGEST_TAG for tag in kept):
        raise InvalidFact(f"A fact has at most {MOST_TAGS} tags of at most {LONGEST_TAG} characters.")
    return kept


def validate_importance(number: float) -> float:
    """Return the importance within its range. Raises InvalidFact if it is not a finite number."""
    try:
        if math.isfinite(number):
            return min(max(float(number), LEAST), GREATEST)
    except OverflowError:  # an integer that no float holds
        pass
    raise InvalidFact("A fact's importance is a number from 0.3 to 1.")
