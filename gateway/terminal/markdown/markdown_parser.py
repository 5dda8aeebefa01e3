"""The Markdown parser, and the splitting of incomplete text into blocks.

The dialect is CommonMark with tables and strikethrough, without what corrupts text that is not Markdown.
Models write formulas, identifiers, expressions and glob patterns in prose, and CommonMark drops characters from them: the
backslashes of `\\(a^2\\)`, the underscores of `__post_init__`, the stars of `x**2 + y**2`. Here a formula is kept as
written, and a mark in a place where prose has none is an ordinary character.
"""

from __future__ import annotations

import re
from functools import cache
from urllib.parse import urlsplit

import msgspec
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter
from markdown_it.token import Token

LAID_OUT_CHARACTERS = 16_000
"""Longer blocks are shown unformatted, since layout would take seconds."""

READ_CHARACTERS = 48_000
"""Longer texts are one block, unless they are known to begin with code."""

_CLOSING = {"\\(": "\\)", "\\[": "\\]", "$$": "$$"}
"""The closing delimiter of each opening one of a formula."""

_IN_DOLLARS = re.compile(r"\$(?=\S)(?:\\.|[^$\\\n`])*(?<=\S)\$(?!\d)")
"""Single dollars, by pandoc's rule: no space inside the delimiters, no digit after them."""

_BEGINS_BLOCK = re.compile(r"\$\$|\\\[|\\begin\{(?P<name>[A-Za-z]{1,30}\*?)\}")

_IDENTIFIER = re.compile(r"_{1,2}[A-Za-z0-9]++(?:_++[A-Za-z0-9]++)*+_{1,2}(?![A-Za-z0-9_])")
"""`__init__` and `_generate_next_value_`."""

_EMPHASIS = re.compile(r"_[^_]*_|__[A-Z][a-z]*__")
"""An emphasised word of prose."""

_LONGEST = 4000
"""Characters of a formula within a paragraph, to bound the search for a closing delimiter."""

_ALWAYS = frozenset("*_`~<>$")
_AT_LINE_START = frozenset("#>-+")
"""The characters that a backslash escapes; before any other character it is kept."""

_SCHEMES = frozenset(("http", "https", "ftp", "mailto", "file"))


class MarkdownDialect(MarkdownIt):
    """The parser. HTML, images and link definitions are kept as written."""

    def __init__(self) -> None:
        super().__init__("commonmark", {"html": False})
        self.enable(["table", "strikethrough"])
        self.disable(["reference", "image"])
        self.block.ruler.before("fence", "formula", _formula_block, {"alt": ["paragraph", "blockquote", "list"]})
        self.inline.ruler.before("escape", "formula", _formula)
        self.inline.ruler.at("escape", _escape)
        self.inline.ruler.at("emphasis", _emphasis)

    def validateLink(self, url: str) -> bool:  # noqa: N802 - the library's name
        """Return True for text that looks like an address.

        `std::string` and the argument of `handlers[name](event)` do not.
        """
        try:
            scheme = urlsplit(url).scheme
        except ValueError:
            return False
        return scheme in _SCHEMES if scheme else any(mark in url for mark in "/.#?")


def _formula_block(state: StateBlock, line: int, end: int, silent: bool) -> bool:
    """Parse a formula that spans lines, whose lines are no lists, headings or rules.

    It ends at its closing delimiter or at an empty line, so later text can never change it.
    """
    if state.is_code_block(line):
        return False
    first = _line(state, line)
    begins = _BEGINS_BLOCK.match(first)
    if begins is None:
        return False
    closing = _CLOSING.get(begins[0], f"\\end{{{begins['name']}}}")
    if closing in first[begins.end() :]:
        return False
    if silent:
        return True
    after = line + 1
    while after < end and not state.isEmpty(after) and state.sCount[after] >= state.blkIndent:
        after += 1
        if closing in _line(state, after - 1):
            break
    token = state.push("code_block", "code", 0)
    token.content = state.getLines(line, after, state.blkIndent, True)
    token.map = [line, after]
    state.line = after
    return True


def _line(state: StateBlock, line: int) -> str:
    return state.src[state.bMarks[line] + state.tShift[line] : state.eMarks[line]]


def _formula(state: StateInline, silent: bool) -> bool:
    source, start = state.src, state.pos
    if (closing := _CLOSING.get(source[start : start + 2])) is not None:
        end = source.find(closing, start + 3, min(start + _LONGEST, state.posMax))
        return end > 0 and _verbatim(state, source[start : end + 2], silent=silent)
    found = _IN_DOLLARS.match(source, start, state.posMax) if source[start] == "$" else None
    return found is not None and _verbatim(state, found[0], silent=silent)


def _escape(state: StateInline, silent: bool) -> bool:
    r"""Drop a backslash only before a character that it escapes: `\,` and `C:\\` are kept."""
    source, start = state.src, state.pos
    if source[start] != "\\":
        return False
    escaped = source[start + 1 : start + 2]
    if not escaped or escaped == "\n":
        return _verbatim(state, "\\", silent=silent)
    before = source[max(0, start - 10) : start]
    begins = before.rpartition("\n")[2].strip() if "\n" in before or start <= 10 else "a longer line"
    marks_line = (escaped in _AT_LINE_START and not begins) or (escaped == "." and begins.isdecimal())
    if not (escaped in _ALWAYS or marks_line):
        return _verbatim(state, f"\\{escaped}", silent=silent)
    if not silent:
        token = state.push("text_special", "", 0)
        token.content, token.markup, token.info = escaped, f"\\{escaped}", "escape"
    state.pos += 2
    return True


def _emphasis(state: StateInline, silent: bool) -> bool:
    """Parse CommonMark's emphasis where `_may_open` and `_may_close` allow it."""
    marker, start = state.src[state.pos], state.pos
    if silent or marker not in "*_":
        return False
    before = state.src[start - 1] if start else " "
    found = None if before.isalnum() else _IDENTIFIER.match(state.src, start, state.posMax)
    if found is not None and not _EMPHASIS.fullmatch(found[0]):
        return _verbatim(state, found[0], silent=False)
    run = state.scanDelims(start, marker == "*")
    after = state.src[start + run.length : start + run.length + 5]
    for _ in range(run.length):
        token = state.push("text", "", 0)
        token.content = marker
        delimiter = Delimiter(
            marker=ord(marker),
            length=run.length,
            token=len(state.tokens) - 1,
            end=-1,
            open=run.can_open and _may_open(before, after),
            close=run.can_close and _may_close(before, after),
        )
        state.delimiters.append(delimiter)
    state.pos += run.length
    return True


def _may_open(before: str, after: str) -> bool:
    """Return True if emphasis may begin between these: not in `x**2`, `/*.log`, `.*foo`, `COUNT(*)` or `**/*.py`.

    In scripts without spaces it may begin anywhere.
    """
    if not after[:1].isascii():
        return True
    outside = not (before.isascii() and (before.isalnum() or before in "./\\)]}%&^"))
    return outside and not after.startswith((*")]},;:=>|\\", "/*"))


def _may_close(before: str, after: str) -> bool:
    """Return True if emphasis may end between these: not in `(*)`, `/*.py`, `x**2` or `2*(x)`, but in `**API**s`."""
    if before in "([{" or (before == "/" and re.match(r"\.?\w", after)) or (before.isdecimal() and after[:1] == "("):
        return False
    within = before.isascii() and (before.isalnum() or before in ")]") and after[:1].isascii() and after[:1].isalnum()
    return not within or re.match(r"(s|es|ed|ing|ly)(?!\w)", after) is not None


def _verbatim(state: StateInline, text: str, *, silent: bool) -> bool:
    if not silent:
        token = state.push("text", "", 0)
        token.content = text
    state.pos += len(text)
    return True


# --- blocks -----------------------------------------------------------------------------------------------------------


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
    """Split a printable text into top-level blocks, of which only the last may still change.

    CommonMark is parsed line by line: a block is final once another one follows at the top level (its appendix, "A parsing
    strategy"). `code` says that the first block is code. The concatenated blocks equal the text.
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
