"""Splitting incomplete Markdown into top-level blocks, of which only the last can still change.

CommonMark is parsed line by line (its appendix, "A parsing strategy"): once another block follows at the top level, a block
is closed for good.
"""

from __future__ import annotations

from functools import cache

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token

from gateway.terminal.markdown_dialect import MarkdownDialect

LAID_OUT_CHARACTERS = 16_000
"""Longer blocks are shown unformatted, since layout would take seconds."""

READ_CHARACTERS = 48_000
"""Longer texts are one block, unless they are known to begin with code."""


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """A fenced code block: its language as written, and the code so far."""

    language: str
    code: str


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A top-level block with the empty lines after it; `fence` is set for fenced code."""

    text: str
    fence: Fence | None = None


@cache
def parser(*, inline: bool) -> MarkdownIt:
    """Return a parser of our Markdown dialect; with `inline` it parses the inside of blocks, too."""
    markdown = MarkdownDialect()
    if not inline:
        markdown.core.ruler.disable(["inline", "text_join"])
    return markdown


def split(text: str, *, code: bool = False) -> list[Block]:
    """Split a printable text into blocks, the last of which may be incomplete.

    `code` says that the first block is code. The concatenated blocks equal the text.
    """
    if len(text) > READ_CHARACTERS and not code:
        return [Block(text=text)]
    lines = text.splitlines(keepends=True)
    tokens = [token for token in parser(inline=False).parse(text) if token.level == 0 and token.map and token.nesting >= 0]
    starts = [0, *(token.map[0] for token in tokens[1:] if token.map), len(lines)]
    return [
        Block(text="".join(lines[start:end]), fence=_fence(token, end - (token.map or [0])[0]))
        for token, start, end in zip(tokens, starts, starts[1:], strict=False)
    ]


def _fence(token: Token, lines: int) -> Fence | None:
    """Return the code of a block of `lines` lines, fences included."""
    if token.type != "fence":
        return None
    # Without a closing fence, the parser adds an empty line.
    code = "".join(token.content.splitlines(keepends=True)[: lines - 1])
    return Fence(language=(token.info.split() or [""])[0], code=code)
