"""The chunks of the backend `sqlite`, by their words: FTS5's tables asked so that a common word costs little."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.support.text.words import quoted

PART = 3
"""Characters that a part of a word has at least: the index of parts knows no shorter ones."""

REMEMBERED = 10_000
"""Words whose counts are kept at most."""

MANY = 1000
"""So many chunks are many to rank for one search."""

LISTED = "(SELECT value FROM json_each(?))"
"""Many keys as one value of a statement, which `listed` makes."""


class _Counted(msgspec.Struct, kw_only=True):
    """What was counted when these had been `written`, so that it is not counted for every question."""

    written: tuple[int, int] = (0, 0)
    size: tuple[int, int] | None = None
    words: dict[str, int] = {}


class Keywords:
    """The tables `words` and `parts` beside `chunks`, over an open connection."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self._counted = _Counted()

    def size(self) -> tuple[int, int]:
        """How many documents and how many chunks there are."""
        counted = self._known()
        if counted.size is None:
            (documents,) = self._db.execute("SELECT count(*) FROM documents").fetchone()
            (chunks,) = self._db.execute("SELECT count(*) FROM chunks").fetchone()
            counted.size = documents, chunks
        return counted.size

    def _known(self) -> _Counted:
        """What was counted since anything was last written, here or by another connection."""
        written = (version(self._db), self._db.total_changes)
        if self._counted.written != written or len(self._counted.words) >= REMEMBERED:
            self._counted = _Counted(written=written)
        return self._counted

    def found(self, words: Sequence[str], limit: int, scope: Scope) -> dict[int, float]:
        """The chunks in the scope that have the most telling of these words, and how well: the negated bm25, larger is
        better. A word that no chunk has is looked for inside of words."""
        counts = self.counts(words)
        held = {word: count for word, count in counts.items() if count and self._has(word, scope)}
        lone = [word for word in words if word not in held]
        found = self._best(held, limit, scope)
        parts = [word for word in lone if len(word) >= PART]
        if parts:
            for key, score in self._ranked("parts", _any(parts), limit, scope).items():
                found[key] = found.get(key, 0.0) + score
        return dict(sorted(found.items(), key=lambda each: -each[1])[:limit])

    def counts(self, words: Collection[str]) -> dict[str, int]:
        """How many chunks have each word."""
        known = self._known().words
        for word in words:
            if word not in known:
                query = "SELECT count(*) FROM words WHERE words MATCH ?"
                known[word] = int(self._db.execute(query, (quoted(word),)).fetchone()[0])
        return {word: known[word] for word in words}

    def pieces(self, keys: Collection[int]) -> dict[int, str]:
        rows = self._db.execute(f"SELECT rowid, text FROM words WHERE rowid IN {LISTED}", (listed(keys),))  # noqa: S608
        return {key: f" {text.casefold()} " for key, text in rows}

    def _best(self, counts: Mapping[str, int], limit: int, scope: Scope) -> dict[int, float]:
        """The chunks that have the most telling of these words, each with how many chunks have it. Where very many have any,
        only those are ranked that have one of the rarest: a word that most chunks have counts little, but to rank most
        chunks takes time."""
        rare = _rarest(counts, limit)
        common = [word for word in counts if word not in rare]
        if common:
            # What is written twice counts twice: the rare ones are, so the common ones must be.
            query = f"({_any(rare)}) AND ({_any([*rare, *common, *common])})"
            found = self._ranked("words", query, limit, scope)
            if len(found) >= limit // 4:  # else they are others', or in the same few chunks
                return {key: score / 2 for key, score in found.items()}
        return self._ranked("words", _any(counts), limit, scope) if counts else {}

    def _has(self, word: str, scope: Scope) -> bool:
        """Whether a chunk in the scope has a word that some chunk has."""
        if scope == EVERYTHING:
            return True
        joined, values = _joined("words", scope)
        query = f"SELECT 1 FROM words{joined} words MATCH ? LIMIT 1"  # noqa: S608 - names of ours
        return self._db.execute(query, (*values, quoted(word))).fetchone() is not None

    def _ranked(self, table: str, query: str, limit: int, scope: Scope) -> dict[int, float]:
        joined, values = _joined(table, scope)
        # By a column of its own, not by `rank`: there FTS5 sorts, and works out each bm25 twice.
        rows = self._db.execute(
            f"SELECT {table}.rowid, -bm25({table}) AS score FROM {table}{joined} {table} MATCH ?"  # noqa: S608
            " ORDER BY score DESC LIMIT ?",
            (*values, query, limit),
        )
        return dict(rows)


def version(db: Any) -> int:
    """A number that changes when another connection has written, and at no other time."""
    (number,) = db.execute("PRAGMA data_version").fetchone()
    return int(number)


def listed(keys: Collection[int]) -> str:
    """Keys as one value: a statement is the same for however many."""
    return msgspec.json.encode(list(keys)).decode()


def _rarest(counts: Mapping[str, int], limit: int) -> list[str]:
    """As many of the words, rarest first, as are in enough chunks; all of them if none is in many."""
    rare: list[str] = []
    for word in sorted(counts, key=counts.__getitem__):
        if counts[word] >= MANY and sum(counts[each] for each in rare) >= limit:
            break
        rare.append(word)
    return rare


def _any(words: Iterable[str]) -> str:
    """The query for chunks that have any of these words."""
    return " OR ".join(map(quoted, words))


def _joined(table: str, scope: Scope) -> tuple[str, tuple[str | int, ...]]:
    """How a table of words is narrowed to a scope: what stands between its name and its own condition, and the values."""
    condition, values = scope.condition()
    # CROSS JOIN: the words first, then the chunk of each that has them; never the other way round.
    joined = f" CROSS JOIN chunks ON chunks.id = {table}.rowid WHERE {condition} AND" if condition else " WHERE"
    return joined, values
