"""Splitting documents into chunks, the units of search. A chunk never spans a heading and records its line numbers.

Sizes are estimated tokens. A section longer than one chunk is split between lines, with an overlap; a longer line is split
between words.
"""

from __future__ import annotations

import hashlib
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from datetime import date

import msgspec

from sessions.events.tokens import estimate
from sessions.state.view import RECALLED

TOKENS = 400
"""The maximum size of a chunk."""

OVERLAP = 80
"""The part of a chunk that the next chunk of the same section repeats."""

TITLE = 300
"""The maximum length in characters of a heading that is repeated in each of its chunks. Longer headings are indexed as text.
"""

_HEADING = re.compile(r"(#{1,6})\s++(.+)$")
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
_MARK = re.compile(r"\s*<!--.*?-->\s*")
_DAY = re.compile(r"(?:^|/)(\d{4}-\d{2}-\d{2})[^/]*\.md$")

_MARKED = re.compile(r"\[([0-9a-f]{8})\] (?:(end|the record ends)$|the record begins$|.*:$)")
"""The first or last line of a fenced passage in a model's request."""

_CITED = re.compile(r"\[[0-9a-f]{8}\] (?:.+#L[0-9]{1,9}-L[0-9]{1,9}:$|(?>.+?#L[0-9]{1,9}-L[0-9]{1,9} \().*\):$)")
_RETURNED = re.compile(r'"citation": ?"[^"]+#L[0-9]+-L[0-9]+"')
"""A result of `memory_search`."""


class Chunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A passage of a document.

    Attributes:
        path: The path of the document.
        first: The first line, counted from 1.
        last: The last line.
        headings: The headings above it, outermost first.
        text: The text.
        day: The date of the document as YYYY-MM-DD, or "".
        owner: The id of the person it belongs to; "" for shared documents.
        senders: The people who speak in it.
        private: It may be shown only in private chats.
        source: The name of its source, set by the index.
    """

    path: str
    first: int
    last: int
    headings: tuple[str, ...]
    text: str
    day: str = ""
    owner: str = ""
    senders: tuple[str, ...] = ()
    private: bool = False
    source: str = ""

    def embedded(self) -> str:
        """Return the text to embed: the date or path and the headings, then the text."""
        place = " > ".join((self.day or self.path.removesuffix(".md"), *self.headings))
        return f"{place}\n{self.text}"

    def digest(self) -> str:
        """Return a hash of the text to embed, as 32 hexadecimal digits."""
        return hashlib.sha256(self.embedded().encode()).hexdigest()[:32]


def day_of(path: str) -> str:
    """Return the date in a note's file name as YYYY-MM-DD, or "" if it has no valid date."""
    found = _DAY.search(path)
    try:
        return date.fromisoformat(found[1]).isoformat() if found else ""
    except ValueError:
        return ""


def chunks_of(
    path: str, note: str, *, owner: str = "", private: bool = False, tokens: int = TOKENS, overlap: int = OVERLAP
) -> list[Chunk]:
    """Split a note into chunks, in order. Every line with text is in at least one chunk, except recalled text (`own_lines`).

    Args:
        path: The path of the note.
        note: The text.
        owner: The id of the person it belongs to; "" for shared notes.
        private: The note may be shown only in private chats.
        tokens: The maximum size of a chunk.
        overlap: The maximum overlap of two chunks.
    """
    of_note = Chunk(path=path, first=1, last=1, headings=(), text="", day=day_of(path), owner=owner, private=private)
    found: list[Chunk] = []
    for headings, lines in _sections(note):
        for piece in cut(lines, tokens, overlap):
            if text := "\n".join(line for _, line in piece).strip():
                first, last = piece[0][0], piece[-1][0]
                found.append(msgspec.structs.replace(of_note, first=first, last=last, headings=headings, text=text))
    return found


def _sections(note: str) -> Iterator[tuple[tuple[str, ...], list[tuple[int, str]]]]:
    headings: list[tuple[int, str]] = []
    lines: list[tuple[int, str]] = []
    fence = ""
    for number, line in own_lines(note):
        mark = _FENCE.match(line)
        if mark and (not fence or mark[1].startswith(fence)):
            fence = "" if fence else mark[1]
        heading = None if fence else _HEADING.match(line)
        if heading:
            yield tuple(title for _, title in headings), lines
            headings = [(level, title) for level, title in headings if level < len(heading[1])]
            title = _title(heading[2])
            headings.append((len(heading[1]), title[:TITLE]))
            lines = [(number, line)] if len(title) > TITLE else []
        elif not _MARK.fullmatch(line):
            lines.append((number, line))
    yield tuple(title for _, title in headings), lines


def _title(text: str) -> str:
    """Return the text of a heading without closing `#` characters."""
    return text.rstrip().rstrip("#").rstrip() or "#"


def cut(lines: Sequence[tuple[int, str]], tokens: int, overlap: int) -> Iterator[list[tuple[int, str]]]:
    """Split numbered lines into runs of `tokens` tokens at most, overlapping by up to `overlap`, without outer blank
    lines."""
    piece: list[tuple[int, str]] = []
    size = 0
    for number, part, cost in _fitting(lines, tokens):
        if size + cost > tokens and piece:
            yield _trimmed(piece)
            piece, size = _tail(piece, min(overlap, tokens - cost))
        piece.append((number, part))
        size += cost
    if any(part.strip() for _, part in piece):
        yield _trimmed(piece)


def _trimmed(piece: list[tuple[int, str]]) -> list[tuple[int, str]]:
    said = [at for at, (_, part) in enumerate(piece) if part.strip()]
    return piece[said[0] : said[-1] + 1] if said else piece[:1]


def _tail(piece: list[tuple[int, str]], room: int) -> tuple[list[tuple[int, str]], int]:
    kept: list[tuple[int, str]] = []
    size = 0
    for number, part in reversed(piece):
        cost = estimate(part) + 1
        if size + cost > room:
            break
        kept.insert(0, (number, part))
        size += cost
    return kept, size


def _fitting(lines: Sequence[tuple[int, str]], tokens: int) -> Iterator[tuple[int, str, int]]:
    """Yield each line with its size, splitting lines that are too long."""
    for number, line in lines:
        for part in _parts(line, tokens - 1):
            yield number, part, estimate(part) + 1


def _parts(line: str, tokens: int) -> Iterator[str]:
    start, most = 0, max(1, 4 * tokens)  # no estimate has more characters to a token
    while len(line) - start > most or estimate(line[start:]) > tokens:
        window = line[start : start + most]
        end = max(1, len(window) * tokens // max(tokens, estimate(window)))
        while end > 1 and estimate(window[:end]) > tokens:
            end = end * 9 // 10
        space = window.rfind(" ", end // 2, end)
        end = space + 1 if space > 0 else end
        yield window[:end]
        start += end
    yield line[start:]


def own_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines of a text with their numbers (from 1), without passages that the memory itself had inserted.

    Removes fenced passages with their markers, and results of `memory_search`: a copy of a recalled passage would be found
    beside the original, be recalled instead of it, and be copied again. A marker without its end removes only itself.
    """
    # Only what an editor takes for the end of a line is one: `str.splitlines` has others, and citations would be wrong.
    lines = text.replace("\r\n", "\n").split("\n")
    kept: list[tuple[int, str]] = []
    until = 0
    ends = _ends(lines) if "] end" in text or "record ends" in text else {}
    for number, line in enumerate(lines, 1):
        mark = _MARKED.match(line.strip())
        if mark and not mark[2] and number > until:
            its = ends.get(mark[1], [])
            following = bisect_right(its, number)
            until = its[following] if following < len(its) else until
        if number > until and not _is_given(line):
            kept.append((number, line))
    return kept


def _is_given(line: str) -> bool:
    line = line.strip()
    return line.startswith(RECALLED) or _CITED.match(line) is not None or _RETURNED.search(line) is not None


def _ends(lines: Sequence[str]) -> dict[str, list[int]]:
    """Return the closing lines of each marker."""
    found: dict[str, list[int]] = {}
    for number, line in enumerate(lines, 1):
        mark = _MARKED.match(line.strip())
        if mark and mark[2]:
            found.setdefault(mark[1], []).append(number)
    return found
