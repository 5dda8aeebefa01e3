"""Where Markdown that is still being written can be cut: the blocks that nothing which follows can change, and the last one.

CommonMark is read line by line (its appendix, "A parsing strategy"): once another block stands behind it at the top level, a
block is closed for good. So all but the last are finished, whatever comes.
"""

from __future__ import annotations

from functools import cache

import msgspec
from markdown_it import MarkdownIt
from markdown_it.token import Token


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
    """A reader of Markdown that drops nothing: HTML, pictures and link definitions stay as they were written. With `inline`
    it reads what is inside the blocks, too."""
    markdown = MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])
    markdown.disable(["reference", "image"])
    if not inline:
        markdown.core.ruler.disable(["inline", "text_join"])
    return markdown


def split(text: str) -> list[Block]:
    """The blocks of a printable text, which together are the text; the last one may be unfinished."""
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
