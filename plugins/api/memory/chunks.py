"""Chunks: the pieces of a note that are found. A chunk never crosses a heading, and says from which line to which it is.

Sizes are estimated tokens. A section that is longer than one chunk is cut between lines, with an overlap; a line that is
longer is cut between words.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from datetime import date

import msgspec

from plugins.api.memory.own_lines import own_lines
from sessions.events.tokens import estimate

TOKENS = 400
"""How large a chunk becomes at most."""

OVERLAP = 80
"""How much of a chunk's end the next one of the same section begins with."""

TITLE = 300
"""Characters of a heading that each chunk below it repeats. A longer heading is found as text, too."""

_HEADING = re.compile(r"(#{1,6})\s++(.+)$")
_FENCE = re.compile(r"\s{0,3}(```+|~~~+)")
_MARK = re.compile(r"\s*<!--.*?-->\s*")
_DAY = re.compile(r"(?:^|/)(\d{4}-\d{2}-\d{2})[^/]*\.md$")


class Chunk(msgspec.Struct, frozen=True, kw_only=True, gc=False):
    """A piece of a note or of another document: its lines from `first` to `last`, counted from 1, and the headings it stands
    under, outermost first. `text` is what stands there. `day`, YYYY-MM-DD, is empty for what is of no day, `owner` for what
    is everybody's; `senders` are those who speak in it. What is `private` is for private chats alone. `source` is the name
    of where it comes from, which the index fills in."""

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
        """What an embedding model is given: where and when it was written, then the text."""
        place = " > ".join((self.day or self.path.removesuffix(".md"), *self.headings))
        return f"{place}\n{self.text}"

    def digest(self) -> str:
        """Names the embedded text: 32 hexadecimal digits."""
        return hashlib.sha256(self.embedded().encode()).hexdigest()[:32]


def day_of(path: str) -> str:
    """The day, YYYY-MM-DD, that a note's name tells; empty for one that has no date, or one that does not exist."""
    found = _DAY.search(path)
    try:
        return date.fromisoformat(found[1]).isoformat() if found else ""
    except ValueError:
        return ""


def chunks_of(
    path: str, note: str, *, owner: str = "", private: bool = False, tokens: int = TOKENS, overlap: int = OVERLAP
) -> list[Chunk]:
    """The chunks of a note, in order. Every line that says something is in at least one, but for what the memory itself
    had given (see `own_lines`)."""
    found: list[Chunk] = []
    day = day_of(path)
    for headings, lines in _sections(note):
        for piece in cut(lines, tokens, overlap):
            text = "\n".join(line for _, line in piece).strip()
            if text:
                first, last = piece[0][0], piece[-1][0]
                found.append(
                    Chunk(
                        path=path,
                        first=first,
                        last=last,
                        headings=headings,
                        text=text,
                        day=day,
                        owner=owner,
                        private=private,
                    )
                )
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
    """Return the text of a heading without the marks that may close it."""
    return text.rstrip().rstrip("#").rstrip() or "#"


def cut(lines: Sequence[tuple[int, str]], tokens: int, overlap: int) -> Iterator[list[tuple[int, str]]]:
    """Runs of numbered lines of at most `tokens` each, blank lines at the ends left out; each begins with what fits into
    `overlap` of the end of the one before."""
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
    """Each line with its size, one that is too long in parts."""
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
