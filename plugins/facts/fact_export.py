"""Export and import of facts as one JSON document.

The document is `{"exuvia_facts": 1, "entries": [...]}`. An entry has `id`, `content`, `type`, `tags`, `importance`,
`createdAt`, `lastUsedAt`, `editedAt`, `source`, `pinned`, `layer`, `owner`, `origin` (`session` and `seq`) and `madeOf`
(ids). Only `content` is required: an entry without an id gets one derived from its content, so that importing a document
twice adds it once. A bare list of entries is accepted too, as are the lists `daily` and `longterm` instead of `entries`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable, Iterator
from datetime import UTC, datetime

import msgspec

from plugins.api.fact_values import Fact, FactLayer, FactOrigin, FactSource, InvalidFact, draft_fact
from sessions.events.codec import replace_surrogates
from sessions.store.log_writer import stamp

LONGEST_FILE = 32 * 1024 * 1024
"""Maximum size in bytes of a document."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_NAMESPACE = uuid.UUID("5d0f1a0e-6f0c-5b57-9d7e-0f6a3c1b2e44")


class _Entry(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A fact in a document. Missing fields and null mean the same."""

    id: str | None = None
    content: str | None = None
    type: str | None = None
    tags: tuple[str, ...] | None = None
    importance: float | None = None
    created_at: str | float | None = None
    last_used_at: str | float | None = None
    edited_at: str | float | None = None
    source: FactSource | None = None
    pinned: bool | None = None
    layer: FactLayer | None = None
    owner: str | None = None
    origin: FactOrigin | None = None
    made_of: tuple[str, ...] | None = None


class ImportedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The imported facts, and one sentence per rejected entry."""

    entries: tuple[Fact, ...]
    refused: tuple[str, ...]


def encode_facts(facts: Iterable[Fact]) -> bytes:
    """Return a document with these facts."""
    document = {"exuvia_facts": 1, "entries": [_entry(fact) for fact in facts]}
    return msgspec.json.format(msgspec.json.encode(document), indent=1) + b"\n"


def parse_facts(document: bytes, known: Collection[str], now: datetime) -> ImportedFacts:
    """Parse the facts of a document. Invalid entries, and those whose id is already known, are rejected.

    Raises:
        InvalidFact: The document as a whole is invalid.
    """
    if len(document) > LONGEST_FILE:
        raise InvalidFact(f"A document has at most {LONGEST_FILE // 2**20} MiB.")
    try:
        read = msgspec.json.decode(document)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise InvalidFact(f"It is not valid JSON: {error}.") from error
    entries: list[Fact] = []
    refused: list[str] = []
    ids = set(known)
    for number, (row, layer) in enumerate(_rows(read), 1):
        try:
            fact = _fact(row, layer, now)
            if fact.id in ids:
                raise InvalidFact(f"A fact {fact.id} already exists.")
        except InvalidFact as error:
            refused.append(f"Entry {number}: {error}")
        else:
            ids.add(fact.id)
            entries.append(fact)
    return ImportedFacts(entries=tuple(entries), refused=tuple(refused))


def _rows(document: object) -> Iterator[tuple[object, FactLayer]]:
    """Yield the entries with the layer implied by their list."""
    if isinstance(document, list):
        yield from ((row, "longterm") for row in document)
        return
    lists = (
        [(name, document[name]) for name in ("entries", "daily", "longterm") if name in document]
        if isinstance(document, dict)
        else []
    )
    if not lists or not all(isinstance(rows, list) for _, rows in lists):
        raise InvalidFact('It has no list "entries".')
    for name, rows in lists:
        yield from ((row, "daily" if name == "daily" else "longterm") for row in rows)


def _entry(fact: Fact) -> _Entry:
    return _Entry(
        id=fact.id,
        content=fact.content,
        type=fact.type,
        tags=fact.tags,
        importance=fact.importance,
        created_at=fact.created,
        last_used_at=fact.used or None,
        edited_at=fact.edited or None,
        source=fact.source,
        pinned=fact.pinned,
        layer=fact.layer,
        owner=fact.owner or None,
        origin=fact.origin,
        made_of=fact.made_of or None,
    )


def _fact(row: object, layer: FactLayer, now: datetime) -> Fact:
    try:
        entry = msgspec.convert(row, _Entry)
    except (msgspec.ValidationError, OverflowError) as error:
        raise InvalidFact(f"{str(error)[:300]}.") from error
    importance = 0.5 if entry.importance is None else entry.importance
    draft = draft_fact(entry.content or "", entry.type or "fact", entry.tags or (), importance)
    layer, owner = entry.layer or layer, (entry.owner or "")[:128]
    name = entry.id or _derived_id(owner, layer, draft.content)
    if not _ID.match(name):
        raise InvalidFact("Its id may have at most 64 letters, digits, dots, hyphens and underscores.")
    return Fact(
        id=name,
        content=draft.content,
        type=draft.type,
        tags=draft.tags,
        importance=draft.importance,
        created=_time(entry.created_at) or stamp(now),
        used=_time(entry.last_used_at),
        edited=_time(entry.edited_at),
        source=entry.source or "imported",
        layer=layer,
        pinned=bool(entry.pinned),
        owner=owner,
        origin=entry.origin,
        made_of=entry.made_of or (),
    )


def _derived_id(*words: str) -> str:
    return str(uuid.uuid5(_NAMESPACE, replace_surrogates("\0".join(words))))


def _time(value: str | float | None) -> str:
    """Convert a time in RFC 3339 or milliseconds since 1970 to RFC 3339; "" if it is missing."""
    if value is None:
        return ""
    try:
        if not isinstance(value, str):
            return stamp(datetime.fromtimestamp(value / 1000, UTC))
        read = datetime.fromisoformat(value)
        return stamp(read if read.tzinfo else read.replace(tzinfo=UTC))
    except (ValueError, OverflowError, OSError):
        raise InvalidFact(f"{value!r} is not a valid time.") from None
