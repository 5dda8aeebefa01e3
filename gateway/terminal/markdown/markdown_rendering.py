"""Markdown to terminal output: text with escape sequences for colours and weights, all generated here.

Nothing is cut to fit: long words and cells are folded, a table that is too wide becomes a list, and a line of code is
written whole for the terminal to wrap, so that it can be copied whole.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator
from io import StringIO
from typing import Any, ClassVar

from markdown_it.token import Token
from pygments.lexer import Lexer  # type: ignore[import-untyped]
from rich import box, markdown
from rich.console import Console, ConsoleOptions, RenderableType, RenderResult
from rich.syntax import Syntax
from rich.table import Table
from rich.text import Text
from rich.theme import Theme

from gateway.support.printable import printable
from gateway.terminal.markdown.markdown_parser import LAID_OUT_CHARACTERS, Block, parser, split

CELL_COLUMNS = 9
"""A table with narrower columns is shown as a list."""

HIGHLIGHTED_CHARACTERS = 20_000
"""Longer code is shown without colours, as is code whose highlighting takes longer than `HIGHLIGHTING_SECONDS`.

Lexers are made of patterns that can take more than linear time, for example on thousands of lines with a single space.
"""

HIGHLIGHTING_SECONDS = 0.5

CODE_THEME = "ansi_dark"

_THEME = Theme(
    {
        "markdown.h1": "bold underline cyan",
        "markdown.h2": "bold cyan",
        "markdown.h3": "bold",
        "markdown.h4": "bold dim",
        "markdown.code": "cyan",
        "markdown.link": "underline",
        "markdown.link_url": "underline cyan",
        "markdown.block_quote": "italic",
        "markdown.item.number": "cyan",
        "markdown.table.border": "dim",
        "markdown.hr": "dim",
        "gauge.full": "green",
        "gauge.part": "yellow",
        "gauge.free": "dim",
    }
)
_PADDING = re.compile(r"(?<! ) ++((?:\x1b\[[0-9;]*m)*+)$", re.MULTILINE)
_GAUGE = re.compile(r"(?P<full>█+)|(?P<part>[▉▊▋▌▍▎▏▓▒]+)|(?P<free>░+)")
"""The bars of `/context` and `/status`."""


def rendered(text: str, columns: int) -> str:
    """Render a whole Markdown text; lines are at most `columns` wide except in code."""
    return "\n".join(rendered_block(block, columns) for block in split(printable(text)))


def rendered_block(block: Block, columns: int) -> str:
    """Render one block of printable text."""
    if block.fence is not None:
        return "".join([opening(block.fence.language), *code_lines(block.fence.code, block.fence.language), closing()])
    if len(block.text) > LAID_OUT_CHARACTERS:
        return block.text.strip("\n") + "\n"
    return _write(_Markdown(block.text), columns).strip("\n") + "\n"


def code_lines(code: str, language: str) -> list[str]:
    """Return highlighted code line by line."""
    if not code:
        return []
    code = code if code.endswith("\n") else code + "\n"
    if not language or len(code) > HIGHLIGHTED_CHARACTERS:
        return code.splitlines(keepends=True)
    syntax = Syntax("", language, theme=CODE_THEME, background_color="default")
    if (lexer := syntax.lexer) is not None:
        syntax = Syntax("", _TimeLimitedLexer(lexer), theme=CODE_THEME, background_color="default")
    try:
        return _write(syntax.highlight(code)).splitlines(keepends=True)
    except TimeoutError:
        return code.splitlines(keepends=True)


class _TimeLimitedLexer(Lexer):  # type: ignore[misc]
    """A lexer that raises TimeoutError after `HIGHLIGHTING_SECONDS`."""

    def __init__(self, lexer: Lexer) -> None:
        super().__init__(ensurenl=True, tabsize=4)
        self._lexer = lexer

    def get_tokens(self, text: str, unfiltered: bool = False) -> Iterator[tuple[Any, str]]:
        """Yield the tokens of the wrapped lexer."""
        until = time.monotonic() + HIGHLIGHTING_SECONDS
        for token in self._lexer.get_tokens(text, unfiltered):
            if time.monotonic() > until:
                raise TimeoutError
            yield token


def opening(language: str) -> str:
    """Return the line above code."""
    return dim(f"```{language}")


def closing() -> str:
    """Return the line below code."""
    return dim("```")


def dim(text: str) -> str:
    """Return printable lines in dim style."""
    return "".join(f"\x1b[2m{line}\x1b[0m\n" for line in text.split("\n"))


def _write(content: RenderableType, columns: int | None = None) -> str:
    """Render the content for a number of columns; None means its natural width."""
    out = StringIO()
    console = Console(
        file=out, width=columns or 80, force_terminal=True, color_system="standard", theme=_THEME, force_jupyter=False,
        highlight=False, markup=False, emoji=False, legacy_windows=False, _environ={},
    )  # fmt: skip
    console.print(content, end="", soft_wrap=columns is None)
    text = _PADDING.sub(r"\1", out.getvalue())
    return text if text.endswith("\n") or not text else text + "\n"


def _sanitize(tokens: Iterable[Token]) -> None:
    """Make parsed text printable again, since parsing decodes `&#x202e;` and `%1b`."""
    for token in tokens:
        token.content = printable(token.content)
        if token.type == "softbreak":
            # Keep line breaks: rich would make them spaces.
            token.type = "hardbreak"
        token.attrs = {name: printable(str(value)) for name, value in token.attrs.items()}
        _sanitize(token.children or ())


class _Paragraph(markdown.Paragraph):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        self.text.highlight_regex(_GAUGE, style_prefix="gauge.")
        yield self.text


class _Heading(markdown.Heading):
    LEVEL_ALIGN: ClassVar = {}


class _Code(markdown.CodeBlock):
    """Code inside a list or quotation, folded with it."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(code, self.lexer_name, theme=CODE_THEME, background_color="default", word_wrap=True)


class _Rule(markdown.HorizontalRule):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("─" * min(options.max_width, 40), style="markdown.hr")


class _Table(markdown.TableElement):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        heads = [cell.content for cell in self.header.row.cells] if self.header and self.header.row else []
        rows = [[cell.content for cell in row.cells] for row in self.body.rows] if self.body else []
        widths = [max(cell.cell_len for cell in column) for column in zip(heads, *rows, strict=False)]
        room = options.max_width - 3 * len(heads)
        if sum(widths) > room and room < CELL_COLUMNS * len(heads):
            yield from _as_list(heads, rows)
        else:
            yield _as_table(heads, rows)


def _as_table(heads: list[Text], rows: list[list[Text]]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, style="markdown.table.border", show_edge=False, header_style="bold")
    for head in heads:
        table.add_column(head, overflow="fold", justify=head.justify or "default")
    for row in rows:
        for cell in row:
            cell.highlight_regex(_GAUGE, style_prefix="gauge.")
        table.add_row(*row)
    return table


def _as_list(heads: list[Text], rows: list[list[Text]]) -> Iterable[Text]:
    for number, row in enumerate(rows):
        if number:
            yield Text()
        for head, cell in zip(heads, row, strict=False):
            # Justified cells would be padded here.
            yield Text.assemble((f"{head.plain}: ", "bold"), Text(cell.plain, spans=cell.spans))
    if not rows:
        yield Text(" · ").join(heads)


class _Markdown(markdown.Markdown):
    """Rich's Markdown with our parser, and plainer elements that can be copied."""

    elements: ClassVar = {
        **markdown.Markdown.elements,
        "paragraph_open": _Paragraph,
        "heading_open": _Heading,
        "fence": _Code,
        "code_block": _Code,
        "hr": _Rule,
        "table_open": _Table,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", hyperlinks=False)
        self.parsed = parser(inline=True).parse(text)
        _sanitize(self.parsed)
