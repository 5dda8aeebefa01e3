"""Export and import of facts as one JSON document.

The document is `{"exuvia_facts": 1, "entries": [...]}`. An entry has `id`, `content`, `type`, `tags`, `importance`,
`createdAt`, `lastUsedAt`, `source`, `pinned`, `layer`, `owner`, `origin` (`session` and `seq`) and `madeOf` (ids). Only
`content` is required: an entry without an id gets one derived from its content, so that importing a document twice adds it
once. A bare list of entries is accepted too, as are the lists `daily` and `longterm` instead of `entries`.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, get_args

import msgspec

from plugins.api.fact_values import Fact, FactOrigin, FactSource, InvalidFact, draft_fact
from sessions.events.codec import replace_surrogates
from sessions.store.log_writer import stamp

LONGEST_FILE = 32 * 1024 * 1024
"""Maximum size in bytes of a document."""

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}\Z")
_NAMELESS = uuid.UUID("5d0f1a0e-6f0c-5b57-9d7e-0f6a3c1b2e44")
_SOURCES: tuple[str, ...] = get_args(FactSource)


class ImportedFacts(msgspec.Struct, frozen=True, kw_only=True):
    """The imported facts, and one sentence per rejected entry."""

    entries: tuple[Fact, ...]
    refused: tuple[str, ...]


def encode_facts(facts: Iterable[Fact]) -> bytes:
    """Return a document with these facts."""
    document = {"exuvia_facts": 1, "entries": [_row(fact) for fact in facts]}
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


def _rows(document: object) -> Iterator[tuple[object, str]]:
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


def _row(fact: Fact) -> dict[str, Any]:
    row: dict[str, Any] = {
        "id": fact.id,
        "content": fact.content,
        "type": fact.type,
        "tags": fact.tags,
        "importance": fact.importance,
        "createdAt": fact.created,
        "lastUsedAt": fact.used or None,
        "source": fact.source,
        "pinned": fact.pinned,
        "layer": fact.layer,
        "owner": fact.owner or None,
        "origin": fact.origin,
        "madeOf": fact.made_of or None,
    }
    return {name: value for name, value in row.items() if value is not None}


def _fact(row: object, layer: str, now: datetime) -> Fact:
    if not isinstance(row, dict):
        raise InvalidFact("It is not an object.")
    of = Fields(row)
    draft = draft_fact(of.text("content", ""), of.text("type", "fact"), of.texts("tags"), of.number("importance", 0.5))
    source = of.text("source", "imported")
    if source not in _SOURCES:
        raise InvalidFact(f"Its source is one of {', '.join(_SOURCES)}, not {source!r}.")
    layer = of.text("layer", layer)
    if layer not in ("daily", "longterm"):
        raise InvalidFact(f"Its layer is daily or longterm, not {layer!r}.")
    owner = of.text("owner", "")[:128]
    name = of.text("id", "") or _made_of(owner, layer, draft.content)
    if not _ID.match(name):
        raise InvalidFact("Its id may have at most 64 letters, digits, dots, hyphens and underscores.")
    return Fact(
        id=name,
        content=draft.content,
        type=draft.type,
        tags=draft.tags,
        importance=draft.importance,
        created=of.time("createdAt") or stamp(now),
        used=of.time("lastUsedAt"),
        source=source,  # type: ignore[arg-type]
        layer=layer,  # type: ignore[arg-type]
        pinned=of.truth("pinned"),
        owner=owner,
        origin=of.origin(),
        made_of=tuple(of.texts("madeOf")),
    )


def _made_of(*words: str) -> str:
    """Derive an id from words."""
    return str(uuid.uuid5(_NAMELESS, replace_surrogates("\0".join(words))))


class Fields:
    """Typed access to the fields of an entry. All methods raise InvalidFact for a wrong type."""

    def __init__(self, row: Mapping[str, Any]) -> None:
        self._row = row

    def text(self, name: str, otherwise: str) -> str:
        """Return a string, or the default if it is missing."""
        value = self._row.get(name)
        if not isinstance(value, str | None):
            raise InvalidFact(f"Its {name} is not a string.")
        return otherwise if value is None else value

    def texts(self, name: str) -> list[str]:
        """Return a list of strings, empty if it is missing."""
        value = self._row.get(name) or []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise InvalidFact(f"Its {name} is not a list of strings.")
        return value

    def number(self, name: str, otherwise: float) -> float:
        """Return a number, or the default if it is missing."""
        value = self._row.get(name)
        if value is None:
            return otherwise
        with suppress(OverflowError):  # of an integer that no float holds
            if isinstance(value, int | float) and not isinstance(value, bool):
                return float(value)
        raise InvalidFact(f"Its {name} is not a number.")

    def truth(self, name: str) -> bool:
        """Return a boolean, False if it is missing."""
        value = self._row.get(name, False)
        if not isinstance(value, bool):
            raise InvalidFact(f"Its {name} is neither true nor false.")
        return value

    def time(self, name: str) -> str:
        """Convert a time in RFC 3339 or milliseconds since 1970 to RFC 3339; "" if it is missing."""
        value = self._row.get(name)
        if value is None:
            return ""
        try:
            if isinstance(value, int | float) and not isinstance(value, bool):
                return stamp(datetime.fromtimestamp(value / 1000, UTC))
            read = datetime.fromisoformat(value)
            return stamp(read if read.tzinfo else read.replace(tzinfo=UTC))
        except (ValueError, TypeError, OverflowError, OSError):
            raise InvalidFact(f"Its {name} is not a valid time.") from None

    def origin(self) -> FactOrigin | None:
        """Return the message that the fact came from, None if it is missing."""
        value = self._row.get("origin")
        try:
            return None if value is None else msgspec.convert(value, FactOrigin)
        except msgspec.ValidationError as error:
            raise InvalidFact(f"Its origin has no session and seq: {error}.") from None
