"""Markdown as lines of IRC: bold, italic, struck and monospaced text as codes, everything else as plain text."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import cache

from markdown_it import MarkdownIt
from markdown_it.token import Token

BOLD, ITALIC, STRUCK, MONOSPACE = "\x02", "\x1d", "\x1e", "\x11"

_CODES = {"strong": BOLD, "em": ITALIC, "s": STRUCK}

_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
"""Control characters, which are commands or codes in IRC, and characters that change the direction of others."""


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def irc_lines(text: str) -> list[str]:
    """Return the lines of a text in Markdown, none of them empty."""
    writer = _LineWriter()
    for token in _parser().parse(_HIDDEN.sub("", text.replace("\r\n", "\n").replace("\r", "\n"))):
        writer.add(token)
    return [line for line in writer.lines if line.strip(BOLD + ITALIC + STRUCK + MONOSPACE + " ")]


class _LineWriter:
    """The lines of a document, block by block. What is in lists and quotes is indented; an item begins with its mark."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._indents: list[str] = []
        self._numbers: list[int | None] = []
        self._mark = ""
        self._code = ""
        self._cells: list[str] | None = None

    def add(self, token: Token) -> None:
        """Add the next token of the document."""
        match token.type:
            case "heading_open" | "thead_open":
                self._code = BOLD
            case "heading_close" | "thead_close":
                self._code = ""
            case "inline" if self._cells is not None:
                self._cells.append("".join(_inline(token.children or ())).replace("\n", " "))
            case "inline":
                self._write("".join(_inline(token.children or ())).split("\n"), self._code)
            case "fence" | "code_block":
                self._write(token.content.replace("\t", "    ").rstrip("\n").split("\n"), MONOSPACE)
            case "hr":
                self._write(["―――"])
            case "tr_open":
                self._cells = []
            case "tr_close":
                self._write([" | ".join(self._cells or ())], self._code)
                self._cells = None
            case _:
                self._nest(token)

    def _nest(self, token: Token) -> None:
        """Enter or leave a list, an item or a quote."""
        match token.type:
            case "bullet_list_open":
                self._numbers.append(None)
            case "ordered_list_open":
                self._numbers.append(int(token.attrGet("start") or 1))
            case "bullet_list_close" | "ordered_list_close":
                self._numbers.pop()
            case "list_item_open":
                number = self._numbers[-1]
                self._mark = "• " if number is None else f"{number}. "
                self._numbers[-1] = None if number is None else number + 1
                self._indents.append(" " * len(self._mark))
            case "blockquote_open":
                self._indents.append("> ")
            case "list_item_close" | "blockquote_close":
                self._indents.pop()
                self._mark = ""

    def _write(self, lines: Sequence[str], code: str = "") -> None:
        for line in lines:
            indents = [*self._indents[:-1], self._mark] if self._mark else self._indents
            self._mark = ""
            self.lines.append("".join(indents) + code + line.replace("\t", " ") + code)


def _inline(tokens: Sequence[Token]) -> Iterator[str]:
    """Yield the text of a paragraph. A link is followed by its address, unless that is its text."""
    addresses: list[str] = []
    since: list[str] = []
    for token in tokens:
        piece = token.content
        match token.type:
            case "softbreak" | "hardbreak":
                piece = "\n"
            case "code_inline":
                piece = MONOSPACE + token.content + MONOSPACE
            case "image":
                piece = f"{token.content} <{token.attrGet('src')}>" if token.content else f"<{token.attrGet('src')}>"
            case "link_open":
                addresses.append(str(token.attrGet("href")))
                since = []
                continue
            case "link_close":
                address = addresses.pop()
                piece = "" if "".join(since) in (address, address.removeprefix("mailto:")) else f" <{address}>"
            case other:
                piece = _CODES.get(other.rpartition("_")[0], piece)
        since.append(piece)
        yield piece
