"""Keyword search of the backend `sqlite` with FTS5, optimised for common words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.support.text.words import quoted

PART = 3
"""Minimum characters of a substring, given by the trigram index."""

REMEMBERED = 10_000
"""Maximum words whose counts are cached."""

MANY = 1000
"""Number of chunks that are too many to rank all of them quickly."""

LISTED = "(SELECT value FROM json_each(?))"
"""SQL for many keys as one parameter, made by `listed`."""


class _Counted(msgspec.Struct, kw_only=True):
    """Cached counts, valid for the version `written`."""

    written: tuple[int, int] = (0, 0)
    size: tuple[int, int] | None = None
    words: dict[str, int] = {}


class Keywords:
    """The tables `words` and `parts` beside `chunks`, over an open connection."""

    def __init__(self, db: Any) -> None:
        self._db = db
        self._counted = _Counted()

    def size(self) -> tuple[int, int]:
        """Return the numbers of documents and chunks."""
        counted = self._known()
        if counted.size is None:
            (documents,) = self._db.execute("SELECT count(*) FROM documents").fetchone()
            # FTS5's table of sizes has one short row per chunk, so that counting them is several times faster.
            (chunks,) = self._db.execute("SELECT count(*) FROM words_docsize").fetchone()
            counted.size = documents, chunks
        return counted.size

    def _known(self) -> _Counted:
        """Return the counts cached since the last write by any connection."""
        written = (version(self._db), self._db.total_changes)
        if self._counted.written != written or len(self._counted.words) >= REMEMBERED:
            self._counted = _Counted(written=written)
        return self._counted

    def found(self, words: Sequence[str], limit: int, scope: Scope) -> dict[int, float]:
        """Return the best chunks in the scope by negated bm25 (larger is better).

        Words without matches are searched as substrings.
        """
        counts = self.word_counts(words)
        indexed = {word: count for word, count in counts.items() if count and self._has(word, scope)}
        missing = [word for word in words if word not in indexed]
        found = self._best(indexed, limit, scope)
        parts = [word for word in missing if len(word) >= PART]
        if parts:
            for key, score in self._ranked("parts", _any(parts), limit, scope).items():
                found[key] = found.get(key, 0.0) + score
        return dict(sorted(found.items(), key=lambda each: -each[1])[:limit])

    def word_counts(self, words: Collection[str]) -> dict[str, int]:
        """Return the number of chunks with each word."""
        known = self._known().words
        for word in words:
            if word not in known:
                query = "SELECT count(*) FROM words WHERE words MATCH ?"
                known[word] = int(self._db.execute(query, (quoted(word),)).fetchone()[0])
        return {word: known[word] for word in words}

    def indexed_words(self, keys: Collection[int]) -> dict[int, str]:
        """Return the indexed words of these chunks."""
        rows = self._db.execute(f"SELECT rowid, text FROM words WHERE rowid IN {LISTED}", (listed(keys),))  # noqa: S608
        return {key: f" {text.casefold()} " for key, text in rows}

    def _best(self, counts: Mapping[str, int], limit: int, scope: Scope) -> dict[int, float]:
        """Return the best chunks for words with their counts.

        If very many chunks match, only those with one of the rarest words are ranked: common words count little, and ranking
        most chunks is slow.
        """
        rare = _rarest(counts, limit)
        common = [word for word in counts if word not in rare]
        if common:
            # FTS5 counts a repeated term twice: the rare ones are repeated, so the common ones must be, too.
            query = f"({_any(rare)}) AND ({_any([*rare, *common, *common])})"
            found = self._ranked("words", query, limit, scope)
            if len(found) >= limit // 4:  # too few matches in the scope
                return {key: score / 2 for key, score in found.items()}
        return self._ranked("words", _any(counts), limit, scope) if counts else {}

    def _has(self, word: str, scope: Scope) -> bool:
        """Return True if a chunk in the scope has the word."""
        if scope == EVERYTHING:
            return True
        joined, values = _joined("words", scope)
        query = f"SELECT 1 FROM words{joined} words MATCH ? LIMIT 1"  # noqa: S608 - names of ours
        return self._db.execute(query, (*values, quoted(word))).fetchone() is not None

    def _ranked(self, table: str, query: str, limit: int, scope: Scope) -> dict[int, float]:
        joined, values = _joined(table, scope)
        # Not ORDER BY rank, which computes each bm25 twice.
        rows = self._db.execute(
            f"SELECT {table}.rowid, -bm25({table}) AS score FROM {table}{joined} {table} MATCH ?"  # noqa: S608
            " ORDER BY score DESC LIMIT ?",
            (*values, query, limit),
        )
        return dict(rows)


def version(db: Any) -> int:
    """Return a number that changes only when another connection has written."""
    (number,) = db.execute("PRAGMA data_version").fetchone()
    return int(number)


def listed(keys: Collection[int]) -> str:
    """Encode keys as one parameter, so that the statement does not depend on their number."""
    return msgspec.json.encode(list(keys)).decode()


def _rarest(counts: Mapping[str, int], limit: int) -> list[str]:
    """Return the rarest words that occur in enough chunks; all if none is common."""
    rare: list[str] = []
    for word in sorted(counts, key=counts.__getitem__):
        if counts[word] >= MANY and sum(counts[each] for each in rare) >= limit:
            break
        rare.append(word)
    return rare


def _any(words: Iterable[str]) -> str:
    """Return the FTS5 query for any of these words."""
    return " OR ".join(map(quoted, words))


def _joined(table: str, scope: Scope) -> tuple[str, tuple[str | int, ...]]:
    """Return the SQL between a table's name and its condition that restricts it to a scope, and its parameters."""
    condition, values = scope.condition()
    # CROSS JOIN fixes the order: match the words first, then look up their chunks.
    joined = f" CROSS JOIN chunks ON chunks.id = {table}.rowid WHERE {condition} AND" if condition else " WHERE"
    return joined, values
