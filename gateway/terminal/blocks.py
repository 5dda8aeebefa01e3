"""Where Markdown that is still being written can be cut: the blocks that nothing which follows can change, and the last one.

CommonMark is read line by line (its appendix, "A parsing strategy"): once another block stands behind it at the top level, a
block is closed for good. So all but the last are finished, whatever comes.
"""

from __future__ import annotations

from functools import cache

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token

from gateway.terminal.markdown_dialect import MarkdownDialect

LAID_OUT_CHARACTERS = 16_000
"""A longer block is shown as it was written: laying it out would take seconds."""

READ_CHARACTERS = 48_000
"""A longer text is taken for one block, unless it is known to begin with code."""


class Fence(msgspec.Struct, frozen=True, kw_only=True):
    """A block of code: its language, as it was named, and the code so far."""

    language: str
    code: str


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """A top-level block, with the empty lines behind it. `fence` if it is fenced code."""

    text: str
    fence: Fence | None = None


@cache
def parser(*, inline: bool) -> MarkdownIt:
    """A reader of our dialect of Markdown. With `inline` it reads what is inside the blocks, too."""
    markdown = MarkdownDialect()
    if not inline:
        markdown.core.ruler.disable(["inline", "text_join"])
    return markdown


def split(text: str, *, code: bool = False) -> list[Block]:
    """The blocks of a printable text, which together are the text; the last one may be unfinished. `code` says that the
    first is code."""
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
    """The code of a block that has so many lines with those around the code."""
    if token.type != "fence":
        return None
    # Where its end is missing, an empty line too many is read.
    code = "".join(token.content.splitlines(keepends=True)[: lines - 1])
    return Fence(language=(token.info.split() or [""])[0], code=code)
