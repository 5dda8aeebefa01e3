"""Markdown as Discord reads it: parsed by markdown-it, and written so that only what the text formats is formatted.

Discord's Markdown has no tables, no headings below the third level, no nested quotes and no rules, and it has mentions,
spoilers and small print, which a text of a model must not produce by accident.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

MAX_LENGTH = 2000
"""The length of the longest post in UTF-16 code units, in which no counting of characters is longer."""

_HIDDEN = dict.fromkeys(
    [code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
    + [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A), *range(0xD800, 0xE000)]
)
"""Control characters and those that turn the direction of reading."""

_URL = re.compile(r"https?://[^\s<>`|*\\]+")
_SPECIAL = re.compile(r"[\\*_~|`\[]|<(?=[@#:/]|a:|t:|id:|sound:)")
_LINE_START = re.compile(r"(?m)^([ \t]*)(#{1,3}(?=\s)|-#|>|[-+](?=\s))")
_NUMBERED = re.compile(r"(?m)^([ \t]*\d+)([.)])(?=\s)")
_EVERYBODY = re.compile(r"@(?=everyone|here)")
_ADDRESS = re.compile(r"://|\w\.\w|^[@#/]")
_LANGUAGE = re.compile(r"[A-Za-z0-9+#._-]{1,20}")


@lru_cache(1)
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def length(text: str) -> int:
    """Return the number of UTF-16 code units of a text."""
    return len(text) + sum(character > "\uffff" for character in text)


def render(text: str) -> str:
    """Return a Markdown text as Discord's."""
    tree = SyntaxTreeNode(_parser().parse(text.translate(_HIDDEN)))
    return _blocks(tree.children).strip("\n")


def escape(text: str) -> str:
    """Return a plain text as one that Discord shows as it is."""
    text, pieces, end = text.translate(_HIDDEN), [], 0
    for url in _URL.finditer(text):  # Discord links it; a backslash would become a part of the address
        pieces += [_SPECIAL.sub(r"\\\g<0>", text[end : url.start()]), url[0]]
        end = url.end()
    pieces.append(_SPECIAL.sub(r"\\\g<0>", text[end:]))
    escaped = _LINE_START.sub(r"\1\\\2", "".join(pieces))
    return _EVERYBODY.sub("@\u200b", _NUMBERED.sub(r"\1\\\2", escaped))


def _blocks(nodes: Iterable[SyntaxTreeNode], *, between: str = "\n\n", quoted: bool = False) -> str:
    return between.join(_block(node, quoted=quoted) for node in nodes)


def _block(node: SyntaxTreeNode, *, quoted: bool) -> str:  # noqa: PLR0911 - one for each type
    match node.type:
        case "heading":
            level = int(node.tag[1:])
            text = _inlines(node.children).replace("\n", " ")
            return f"{'#' * level} {text}" if level <= 3 else f"**{text.replace('**', '')}**"
        case "bullet_list" | "ordered_list":
            return _list(node, quoted=quoted)
        case "blockquote":
            text = _blocks(node.children, quoted=True)
            return text if quoted else "\n".join(f"> {line}" for line in text.split("\n"))
        case "fence" | "code_block":
            return _code_block(node.content, node.info.split(" ")[0] if node.type == "fence" else "")
        case "table":
            return _code_block(_table(node), "")
        case "hr":
            return "⸻"
        case _:
            return _inlines(node.children)


def _list(node: SyntaxTreeNode, *, quoted: bool) -> str:
    number = int(node.attrs.get("start", 1)) if node.type == "ordered_list" else None
    items = []
    for item in node.children:
        mark = "- " if number is None else f"{number}. "
        text = _blocks(item.children, between="\n", quoted=quoted)
        items.append(mark + text.replace("\n", "\n" + " " * len(mark)))
        number = None if number is None else number + 1
    return "\n".join(items)


def _code_block(content: str, language: str) -> str:
    content = content.rstrip("\n").replace("```", "`\u200b``")
    return f"```{language if _LANGUAGE.fullmatch(language) else ''}\n{content}\n```"


def _table(table: SyntaxTreeNode) -> str:
    """Return a table in columns of equal width."""
    rows = [[_plain(cell.children) for cell in row.children] for part in table.children for row in part.children]
    widths = [max(map(_width, column)) for column in zip(*rows, strict=False)]
    lines = [
        "  ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=False)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "  ".join("─" * width for width in widths), *lines[1:]])


def _width(text: str) -> int:
    """Return the columns that a text takes in a fixed-width font."""
    return sum(
        0
        if unicodedata.combining(char) or char in "\u200d\ufe0f"
        else 2
        if unicodedata.east_asian_width(char) in "WF"
        else 1
        for char in text
    )


def _plain(nodes: Iterable[SyntaxTreeNode]) -> str:
    """Return the words of inline nodes, without formatting."""
    parts = []
    for node in nodes:
        match node.type:
            case "text" | "code_inline":
                parts.append(node.content)
            case "softbreak" | "hardbreak":
                parts.append(" ")
            case "link":
                label, address = _plain(node.children), str(node.attrs["href"])
                parts.append(label if label in address else f"{label} ({address})")
            case _:
                parts.append(_plain(node.children))
    return "".join(parts)


def _inlines(nodes: Iterable[SyntaxTreeNode]) -> str:
    return "".join(map(_inline, nodes))


def _inline(node: SyntaxTreeNode) -> str:  # noqa: PLR0911 - one for each type
    match node.type:
        case "text":
            return escape(node.content)
        case "softbreak" | "hardbreak":
            return "\n"
        case "code_inline":
            return _code(node.content)
        case "strong":
            return f"**{_inlines(node.children)}**"
        case "em":
            return f"*{_inlines(node.children)}*"
        case "s":
            return f"~~{_inlines(node.children)}~~"
        case "link":
            return _link(_plain(node.children), _inlines(node.children), str(node.attrs["href"]))
        case "image":
            return _link(node.content, escape(node.content), str(node.attrs["src"]))
        case _:
            return _inlines(node.children)


def _code(content: str) -> str:
    if "`" not in content:
        return f"`{content}`"
    content = content.replace("``", "`\u200b`")
    return f"`` {content} ``" if content[0] == "`" or content[-1] == "`" else f"``{content}``"


def _link(plain: str, label: str, address: str) -> str:
    """Return a link. One whose label looks like another address, or that opens anything but a page, shows where it leads."""
    if not address.startswith(("https://", "http://")):
        shown = address.removeprefix("mailto:")
        return label if shown == plain else f"{label} (`{shown.replace('`', '%60')}`)"
    if plain.strip() in (address, address.removeprefix("https://").removeprefix("http://"), ""):
        return f"<{address}>"
    if _ADDRESS.search(plain) or "\n" in label or "]" in plain or "[" in plain:
        return f"{label} (<{address}>)"
    return f"[{label}](<{address}>)"
