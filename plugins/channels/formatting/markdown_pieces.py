"""Splitting Markdown into pieces that each fit into one post of a service.

A piece ends between blocks if possible, else between the items of a list, lines, sentences or words. A block of code is not
split unless it is too long for a post; then it is closed, and opened again in the next piece. The header of a table that is
too long is repeated.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from markdown_it import MarkdownIt
from markdown_it.token import Token

FIRST_GUESS = 1500
"""Characters that are tried first. Where a piece ends depends on nothing but its beginning: after a crash the part of an
answer that was under way must be the same."""

INFO_CHARS = 40
"""Characters of the language of a block of code that are repeated."""

HEADER_CHARS = 400
"""Characters of the longest header of a table that is repeated."""

_LINE_FEEDS = re.compile(r"\r\n?|\n")
_ITEM = re.compile(r"[ \t]*(?:(?:[-+*]|\d{1,9}[.)])[ \t]+)*")
_SENTENCE_ENDS, _WIDE_ENDS = ".!?…", "。！？"


class Piece(NamedTuple):
    """The Markdown of one post, and the offset in the whole text at which the next one begins."""

    text: str
    end: int


class _Region(NamedTuple):
    """Lines that are split only if they are too long: code or a table, by their offsets in the text.

    `body` and `close` are the beginning and the end of what can be split. `opening` is repeated before each later piece,
    `closing` follows each earlier one. In a list or a quotation the lines begin with `before`, and match `prefix`, which
    later pieces do without.
    """

    begin: int
    body: int
    close: int
    end: int
    opening: str = ""
    closing: str = ""
    before: str = ""
    prefix: str = ""


def split_markdown(text: str, fits: Callable[[str], bool], start: int = 0) -> list[Piece]:
    """Return the pieces of a text from an offset on. All of them fit, unless not even a single character does.

    Args:
        text: The text, in Markdown.
        fits: Returns True if a text fits into one post.
        start: The end of the last piece that needs no repetition.
    """
    splitter, pieces = _Splitter(text, fits), list[Piece]()
    start = splitter.content_after(start)
    while start < len(text):
        pieces.append(splitter.piece(start))
        start = pieces[-1].end
    return pieces


class _Splitter:
    """The structure of a text, and the pieces that are made of it."""

    def __init__(self, text: str, fits: Callable[[str], bool]) -> None:
        self._text = text
        self._fits = fits
        line_starts = [0, *(found.end() for found in _LINE_FEEDS.finditer(text))]
        tokens = _parser().parse(text)
        self._regions = _regions(text, tokens, [*line_starts, len(text)])
        self._begins = [region.begin for region in self._regions]
        atomic = [(region.begin, region.end) for region in self._regions] + _headings(tokens, [*line_starts, len(text)])
        self._cuts = (
            _outside(_blocks(tokens, line_starts), atomic),
            _outside(
                [line_starts[token.map[0]] for token in tokens if token.type == "list_item_open" and token.map], atomic
            ),
            _outside(line_starts, atomic),
        )
        """The offsets at which a piece may end, from the best kind on."""

    def piece(self, start: int) -> Piece:
        """Return the piece that begins at an offset with content."""
        reach = self._reach(start)
        while start < reach < len(self._text):
            end = self._cut(start, reach)
            if self._fits(text := self._rendered(start, end)):
                return Piece(text, self.content_after(end))
            reach = start + (min(end, reach) - start) * 3 // 4
        return Piece(self._rendered(start, len(self._text)), len(self._text))

    def content_after(self, offset: int) -> int:
        """Return the offset of the next text after white space. The indentation of a line belongs to it."""
        if self._split_region(offset) is not None:
            return offset
        place, line = offset, offset if offset == 0 or self._text[offset - 1] in "\r\n" else -1
        while place < len(self._text) and self._text[place] in " \t\r\n":
            place += 1
            if self._text[place - 1] in "\r\n":
                line = place
        return place if place == len(self._text) or line < 0 else line

    # --- where a piece ends -------------------------------------------------------------------------------------------

    def _reach(self, start: int) -> int:
        """Return an offset up to which the text fits: about the last one, `start` if there is none."""
        good, size, last = start, FIRST_GUESS, len(self._text)
        while self._fits(self._rendered(start, too_far := min(start + size, last))):
            if too_far == last:
                return last
            good, size = too_far, 2 * size
        while too_far - good > max(1, (good - start) // 32):
            middle = (good + too_far) // 2
            if self._fits(self._rendered(start, middle)):
                good = middle
            else:
                too_far = middle
        return good

    def _cut(self, start: int, reach: int) -> int:
        """Return the best end of a piece up to `reach`."""
        region = self._region_at(reach)
        if region is not None and reach < region.end:
            return self._cut_in_region(start, reach, region)
        least = start + max((reach - start) // 2, 1)
        for offsets in self._cuts:
            place = bisect_right(offsets, reach)
            if place and offsets[place - 1] >= least:
                return offsets[place - 1]
        return self._cut_in_paragraph(max(start, region.end if region else 0), least, reach)

    def _cut_in_region(self, start: int, reach: int, region: _Region) -> int:
        if start < region.begin and (
            reach <= region.body
            or 2 * (region.begin - start) >= reach - start
            or self._fits(self._rendered(region.begin, region.end))
        ):
            return region.begin
        first, reach = max(start, region.body), min(reach, region.close - 1)
        lines = _LINE_FEEDS.finditer(self._text, first, max(first, reach))
        line = max((found.end() for found in lines), default=0)
        if line > first:
            return line + (self._text[line - 1 : line + 1] == "\r\n")
        return region.begin if start < region.begin else max(self._before_mark(first, reach), start + 1)

    def _cut_in_paragraph(self, start: int, least: int, reach: int) -> int:
        text, word = self._text, 0
        for place in range(reach, start, -1):
            before = text[place - 1]
            if place >= least and (before in _WIDE_ENDS or (before.isspace() and text[place - 2] in _SENTENCE_ENDS)):
                return place
            if before.isspace() and not word:
                word = place
            if word and place < least:
                break
        return word if word > start else self._before_mark(start, reach)

    def _before_mark(self, start: int, end: int) -> int:
        """Return an offset at most a few characters before `end` at which neither a character nor an escape is torn."""
        text = self._text
        for place in range(end, max(start, end - 16), -1):
            joined = text[place : place + 1] and (
                unicodedata.combining(text[place]) or text[place] in "\u200d\ufe0e\ufe0f\n"
            )
            if not joined and text[place - 1] not in "\u200d\\\r":
                return place
        return end

    # --- what a piece looks like --------------------------------------------------------------------------------------

    def _rendered(self, start: int, end: int) -> str:
        """Return the Markdown of a piece, with what it lacks of code or a table at its beginning and its end."""
        first, last = self._split_region(start), self._split_region(end)
        text = (
            self._text[start:end].rstrip() if last is None else self._text[start:end].removesuffix("\n").removesuffix("\r")
        )
        if last is not None and last.closing:
            text += f"\n{last.before}{last.closing}"
        if first is None:
            return text if self._is_code(start) else _aligned(text, self._indent(start))
        within = max(first.end - start, 0) if last is not first else len(text)
        body = re.sub(f"(?m)^{first.prefix}", "", text[:within]) + _aligned(text[within:])
        return f"{first.opening}\n{body}" if first.opening else body

    def _indent(self, offset: int) -> int:
        """Return the width of what precedes the text of a list's item in the line of an offset; 0 at its beginning."""
        line = self._text.rfind("\n", 0, offset) + 1
        before = _ITEM.match(self._text, line, offset) if line < offset else None
        return before.end() - line if before else 0

    def _is_code(self, offset: int) -> bool:
        """Return True if indented code begins at an offset."""
        place = bisect_left(self._begins, offset)
        return self._begins[place : place + 1] == [offset] and not self._regions[place].opening

    def _region_at(self, offset: int) -> _Region | None:
        """Return the last region that begins before an offset."""
        place = bisect_left(self._begins, offset)
        return self._regions[place - 1] if place else None

    def _split_region(self, offset: int) -> _Region | None:
        """Return the region that is split at an offset."""
        region = self._region_at(offset)
        return region if region is not None and region.body < offset < region.close else None


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark").enable("table")
    parser.core.ruler.enableOnly(["normalize", "block"])  # the text within blocks does not matter
    return parser


def _regions(text: str, tokens: Sequence[Token], lines: Sequence[int]) -> list[_Region]:
    """Return the code and the tables of a text, in order. `lines` are the offsets of its lines and its end."""
    found = list[_Region]()
    for token in tokens:
        if token.map is None:
            continue
        first, after = token.map
        begin, end = lines[first], lines[min(after, len(lines) - 1)]
        if token.type == "fence":
            found.append(_fence(text, token, lines))
        elif token.type == "code_block":
            found.append(_Region(begin, begin, end, end))
        elif token.type == "table_open" and after - first > 2:
            header = text[begin : lines[first + 2]].rstrip()
            opening = header if len(header) <= HEADER_CHARS else ""
            found.append(_Region(begin, lines[first + 2], end, end, opening=opening))
    return found


def _fence(text: str, token: Token, lines: Sequence[int]) -> _Region:
    assert token.map is not None
    first, after = token.map
    begin, body, end = lines[first], lines[min(first + 1, len(lines) - 1)], lines[min(after, len(lines) - 1)]
    closed = after - first - 1 > token.content.count("\n") + (token.content[-1:] not in ("\n", ""))
    before = re.sub(r"[^>\s]", " ", text[begin:body].partition(token.markup)[0])
    marks, inner = before.count(">"), before.rpartition(">")[2]
    spaces = len(inner.removeprefix(" ") if marks else inner)
    return _Region(
        begin,
        body,
        lines[after - 1] if closed else end,
        end,
        opening=f"{token.markup}{token.info.strip()[:INFO_CHARS]}",
        closing=token.markup,
        before=before,
        prefix=rf"(?:[ \t]*> ?){{{marks}}}[ \t]{{0,{spaces}}}",
    )


def _headings(tokens: Sequence[Token], lines: Sequence[int]) -> list[tuple[int, int]]:
    maps = [token.map for token in tokens if token.type == "heading_open" and token.map]
    return [(lines[first], lines[min(after, len(lines) - 1)]) for first, after in maps if after - first > 1]


def _blocks(tokens: Sequence[Token], lines: Sequence[int]) -> list[int]:
    """Return the beginnings of the blocks, without those that follow a heading."""
    blocks = [token for token in tokens if token.level == 0 and token.map and token.nesting >= 0]
    return [
        lines[block.map[0]]
        for before, block in zip([None, *blocks], blocks, strict=False)
        if block.map and (before is None or before.type != "heading_open")
    ]


def _outside(offsets: Sequence[int], atomic: Sequence[tuple[int, int]]) -> list[int]:
    """Return the offsets that lie within none of the ranges, sorted."""
    ordered, found, place = sorted(atomic), list[int](), 0
    for offset in sorted(offsets):
        while place < len(ordered) and ordered[place][1] <= offset:
            place += 1
        if place == len(ordered) or offset <= ordered[place][0]:
            found.append(offset)
    return found


def _aligned(text: str, indent: int = 0) -> str:
    """Return a text from within a list without the indentation of its lines, up to the first line that has none.

    Args:
        text: The text. Its first line may be indented.
        indent: The indentation, if the first line is the rest of one.
    """
    within = len(text) - len(text.lstrip(" \t"))
    if not (indent := indent or within):
        return text
    lines = text.split("\n")
    for number, line in enumerate(lines):
        has = len(line) - len(line.lstrip(" \t"))
        if line.strip() and (number or within) and not (indent := min(indent, has)):
            break
        lines[number] = line[min(has, indent) :]
    return "\n".join(lines)
