"""Keyword search of the backend `sqlite` with FTS5, optimised for common words."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import msgspec

from plugins.api.memory.scope import EVERYTHING, Scope
from plugins.memory.backends.postings import best, inverse_frequency, saturated
from plugins.memory.index.tables import EMBEDDED
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
            counted.size = documents, self._totals("words")[0]
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
            for key, score in self._inside(parts, limit, scope).items():
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
            found = self._ranked(query, limit, scope)
            if len(found) >= limit // 4:  # too few matches in the scope
                return {key: score / 2 for key, score in found.items()}
        return self._ranked(_any(counts), limit, scope) if counts else {}

    def _inside(self, parts: Iterable[str], limit: int, scope: Scope) -> dict[int, float]:
        """Return the best chunks that contain one of these substrings, with the scores that FTS5 gives to a word.

        The index has no positions: chunks with all trigrams of a substring are read. If there are very many, the newest ones
        are, since a substring of most chunks says nothing.
        """
        chunks, trigrams = self._totals("parts")
        average = max(1.0, trigrams / max(1, chunks))
        condition, values = scope.condition()
        scores: dict[int, float] = {}
        for part in parts:
            query = " AND ".join(quoted(part[at : at + PART]) for at in range(len(part) - PART + 1))
            (having,) = self._db.execute("SELECT count(*) FROM parts WHERE parts MATCH ?", (query,)).fetchone()
            weight = inverse_frequency(chunks, having)
            rows = self._db.execute(
                f"SELECT chunks.id, {EMBEDDED} FROM parts CROSS JOIN chunks ON chunks.id = parts.rowid"  # noqa: S608 - of ours
                f" WHERE parts MATCH ?{f' AND {condition}' if condition else ''} ORDER BY parts.rowid DESC LIMIT ?",
                (query, *values, MANY),
            )
            for key, text in rows:
                if times := text.lower().count(part.lower()):
                    length = max(0, len(text) - PART + 1) / average
                    scores[key] = scores.get(key, 0.0) + weight * saturated(times, length)
        return best(scores, limit)

    def _totals(self, table: str) -> tuple[int, int]:
        """Return the numbers of rows and of tokens in an FTS5 table, which it stores as two varints in one record."""
        (record,) = self._db.execute(f"SELECT block FROM {table}_data WHERE id = 1").fetchone()  # noqa: S608 - a name of ours
        numbers = [0]
        for byte in record:
            numbers[-1] = numbers[-1] << 7 | byte & 0x7F
            if byte < 0x80:
                numbers.append(0)
        return (numbers[0], numbers[1]) if len(numbers) > 2 else (0, 0)

    def _has(self, word: str, scope: Scope) -> bool:
        """Return True if a chunk in the scope has the word."""
        if scope == EVERYTHING:
            return True
        joined, values = _joined(scope)
        query = f"SELECT 1 FROM words{joined} words MATCH ? LIMIT 1"  # noqa: S608 - names of ours
        return self._db.execute(query, (*values, quoted(word))).fetchone() is not None

    def _ranked(self, query: str, limit: int, scope: Scope) -> dict[int, float]:
        joined, values = _joined(scope)
        # Not ORDER BY rank, which computes each bm25 twice.
        rows = self._db.execute(
            f"SELECT words.rowid, -bm25(words) AS score FROM words{joined} words MATCH ?"  # noqa: S608 - names of ours
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


def _joined(scope: Scope) -> tuple[str, tuple[str | int, ...]]:
    """Return the SQL between the table `words` and its condition that restricts it to a scope, and its parameters."""
    condition, values = scope.condition()
    # CROSS JOIN fixes the order: match the words first, then look up their chunks.
    joined = f" CROSS JOIN chunks ON chunks.id = words.rowid WHERE {condition} AND" if condition else " WHERE"
    return joined, values
