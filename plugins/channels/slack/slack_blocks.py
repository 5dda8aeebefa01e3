"""Markdown as blocks of rich text.

Rich text is data and not a markup: Slack reads no mention (`<!channel>`), link or emoji into its texts, whoever wrote them.
It does so in `markdown` blocks and in `mrkdwn`, where `<!here>` notifies everybody.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence
from functools import cache
from itertools import zip_longest
from typing import Any
from urllib.parse import urlsplit

import msgspec
from markdown_it import MarkdownIt
from markdown_it.tree import SyntaxTreeNode

from plugins.api.channel import Choice

MOST_BYTES = 12_000
"""Bytes of the JSON of a message's blocks. Slack refuses more than about 13,200."""

MOST_BLOCKS = 45
"""Slack takes 50; some are for buttons."""

PLAIN_CHARS = 3_000
"""Characters of the text for notifications and screen readers."""

CELLS = 100
"""Columns of the widest table that is aligned."""

Block = dict[str, Any]
Style = dict[str, bool]

_STYLES = {"strong": "bold", "em": "italic", "s": "strike"}
_URL = re.compile(r"https?://[^\s<>\"`]{1,2000}")
_LOOKS_LIKE_ADDRESS = re.compile(
    r"\A\s*(?:[a-z][a-z0-9+.-]{0,20}:|www\.|[\w-]{1,63}(?:\.[\w-]{1,63}){1,8}(?:[/:?#]|\s*\Z))", re.I
)
_UNWANTED = dict.fromkeys((*range(9), *range(11, 32), *range(127, 160), *range(8234, 8239), *range(8294, 8298)))
"""Control characters except line ends and tabs, and those that change the direction of text."""


@cache
def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark", {"html": False}).enable(["table", "strikethrough"])


def blocks_of(text: str) -> list[Block]:
    """Return the blocks of a Markdown text."""
    writer = _Writer()
    writer.write(SyntaxTreeNode(_parser().parse(text.translate(_UNWANTED))).children)
    return writer.blocks()


def fits(text: str) -> bool:
    """Return True if Slack takes a Markdown text as one message."""
    if len(text) > MOST_BYTES:
        return False
    blocks = blocks_of(text)
    return len(blocks) <= MOST_BLOCKS and len(msgspec.json.encode(blocks)) <= MOST_BYTES


def buttons_of(choices: Sequence[Choice]) -> list[Block]:
    """Return blocks with a button for each choice."""
    buttons = [
        {
            "type": "button",
            "action_id": f"exuvia:{number}",
            "value": choice.id,
            "text": {"type": "plain_text", "text": choice.label[:75] or choice.id, "emoji": False},
        }
        for number, choice in enumerate(choices)
    ]
    return [{"type": "actions", "elements": buttons[start : start + 25]} for start in range(0, len(buttons), 25)]


def plain_text(blocks: Iterable[Block]) -> str:
    """Return the text of blocks, for notifications."""
    text = "\n".join(_block_text(block) for block in blocks if block["type"] == "rich_text")
    return text if len(text) <= PLAIN_CHARS else text[: PLAIN_CHARS - 1] + "…"


def escaped(text: str) -> str:
    """Return a text in which Slack finds no markup."""
    return text.translate(_UNWANTED).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class _Writer:
    """Collects blocks. Paragraphs that follow each other become one section, as Slack's own editor writes them."""

    def __init__(self) -> None:
        self._blocks: list[Block] = []
        self._elements: list[Block] = []
        self._section: list[Block] = []

    def blocks(self) -> list[Block]:
        """Return the blocks."""
        self._end_block()
        return self._blocks

    def write(self, nodes: Sequence[SyntaxTreeNode]) -> None:
        """Add the nodes of a document, a quote or an item of a list."""
        for node in nodes:
            match node.type:
                case "paragraph" | "heading":
                    self._paragraph(_inline(node, {"bold": True} if node.type == "heading" else {}))
                case "bullet_list" | "ordered_list":
                    self._list(node, 0)
                case "fence" | "code_block":
                    self._preformatted(node.content)
                case "blockquote":
                    self._add("rich_text_quote", _flat(node))
                case "table":
                    self._preformatted(_table(node))
                case "hr":
                    self._end_block()
                    self._blocks.append({"type": "divider"})
                case _:
                    self._paragraph(_texts(node.content, {}) if not node.is_nested else _flat(node))

    def _paragraph(self, parts: list[Block]) -> None:
        if parts and self._section:
            self._section.append({"type": "text", "text": "\n\n"})
        self._section.extend(parts)

    def _preformatted(self, text: str) -> None:
        if text := text.rstrip("\n"):
            self._add("rich_text_preformatted", [{"type": "text", "text": text}])

    def _list(self, node: SyntaxTreeNode, indent: int) -> None:
        """Add a list, in pieces around what the editor's lists cannot contain: lists and code."""
        ordered = node.type == "ordered_list"
        number = int(node.attrs.get("start", 1)) - 1 if ordered else 0
        items: list[Block] = []
        started = number
        for item in node.children:
            parts: list[Block] = []
            for child in item.children:
                if child.type in ("paragraph", "heading"):
                    parts += [{"type": "text", "text": "\n"}] * bool(parts) + _inline(child, {})
                elif child.type not in ("bullet_list", "ordered_list", "fence", "code_block"):
                    parts += [{"type": "text", "text": "\n"}] * bool(parts) + _flat(child)
            items.append({"type": "rich_text_section", "elements": parts or [{"type": "text", "text": " "}]})
            number += 1
            nested = [each for each in item.children if each.type in ("bullet_list", "ordered_list", "fence", "code_block")]
            if nested:
                self._items(items, ordered=ordered, indent=indent, offset=started)
                items, started = [], number
            for each in nested:
                if each.type in ("fence", "code_block"):
                    self._preformatted(each.content)
                else:
                    self._list(each, min(indent + 1, 8))
        self._items(items, ordered=ordered, indent=indent, offset=started)

    def _items(self, items: list[Block], *, ordered: bool, indent: int, offset: int) -> None:
        if items:
            more = {"offset": offset} if ordered and offset > 0 else {}
            self._add("rich_text_list", items, style="ordered" if ordered else "bullet", indent=indent, **more)

    def _add(self, kind: str, elements: list[Block], **more: Any) -> None:
        self._end_section()
        if elements:
            self._elements.append({"type": kind, "elements": elements, **more})

    def _end_section(self) -> None:
        if self._section:
            self._elements.append({"type": "rich_text_section", "elements": _joined(self._section)})
            self._section = []

    def _end_block(self) -> None:
        self._end_section()
        if self._elements:
            self._blocks.append({"type": "rich_text", "elements": self._elements})
            self._elements = []


def _inline(node: SyntaxTreeNode, style: Style) -> list[Block]:
    """Return the parts of a paragraph, or of what is nested in one."""
    parts: list[Block] = []
    for child in node.children:
        match child.type:
            case "inline":
                parts += _inline(child, style)
            case "strong" | "em" | "s":
                parts += _inline(child, style | {_STYLES[child.type]: True})
            case "text":
                parts += _texts(child.content, style)
            case "code_inline":
                parts += _text(child.content, style | {"code": True})
            case "softbreak" | "hardbreak":
                parts += _text("\n", style)
            case "link" | "image":
                parts += _link(child, style)
            case _:
                parts += _inline(child, style) if child.is_nested else _text(child.content, style)
    return _joined(parts)


def _link(node: SyntaxTreeNode, style: Style) -> list[Block]:
    """Return a link. A label that looks like another address is followed by the true one."""
    image = node.type == "image"
    url = str(node.attrs.get("src" if image else "href", ""))
    label = node.content if image else "".join(str(part.get("text", "")) for part in _inline(node, {}))
    if urlsplit(url).scheme.lower() not in ("http", "https", "mailto"):
        return _text(f"{label} ({url})" if url and url != label else label or url, style)
    if label and label.strip() != url and _LOOKS_LIKE_ADDRESS.match(label):
        return [*_text(f"{label} (", style), _linked(url, url, style), *_text(")", style)]
    return [_linked(url, label or url, style)]


def _linked(url: str, label: str, style: Style) -> Block:
    return {"type": "link", "url": url, "text": label, **({"style": style} if style else {})}


def _texts(text: str, style: Style) -> list[Block]:
    """Return a text with links for the addresses in it."""
    parts: list[Block] = []
    at = 0
    for match in _URL.finditer(text):
        url = match[0].rstrip(".,;:!?'*_~")
        url = url.rstrip(")") if url.count(")") > url.count("(") else url
        parts += [*_text(text[at : match.start()], style), _linked(url, url, style)]
        at = match.start() + len(url)
    return parts + _text(text[at:], style)


def _text(text: str, style: Style) -> list[Block]:
    return [{"type": "text", "text": text, **({"style": style} if style else {})}] if text else []


def _joined(parts: list[Block]) -> list[Block]:
    """Return the parts, with texts of the same style that follow each other as one."""
    joined: list[Block] = []
    for part in parts:
        last = joined[-1] if joined else None
        if last and last["type"] == part["type"] == "text" and last.get("style") == part.get("style"):
            joined[-1] = last | {"text": last["text"] + part["text"]}
        else:
            joined.append(part)
    return joined


def _flat(node: SyntaxTreeNode) -> list[Block]:
    """Return the content of a quote as parts: what is nested in it loses its form, not its text."""
    if node.type in ("paragraph", "heading"):
        return _inline(node, {})
    if node.type in ("fence", "code_block"):
        return _text(node.content.rstrip("\n"), {"code": True})
    if node.type == "table":
        return _text(_table(node), {"code": True})
    parts: list[Block] = []
    for child in node.children:
        before: list[Block] = [{"type": "text", "text": "\n"}] if parts else []
        bullet = _text("• ", {}) if child.type == "list_item" else []
        if flat := _flat(child):
            parts += before + bullet + flat
    return _joined(parts)


def _table(node: SyntaxTreeNode) -> str:
    """Return a table as text in columns; if it is too wide, with its cells beside each other."""
    rows = [
        ["".join(str(part.get("text", "")) for part in _inline(cell, {})).replace("\n", " ") for cell in row.children]
        for part in node.children
        for row in part.children
    ]
    widths = [max(map(_width, column)) for column in zip_longest(*rows, fillvalue="")]
    if sum(widths) + 3 * len(widths) > CELLS:
        return "\n".join(" | ".join(row) for row in rows)
    lines = [
        " | ".join(cell + " " * (width - _width(cell)) for cell, width in zip(row, widths, strict=False)) for row in rows
    ]
    return "\n".join([lines[0], "-+-".join("-" * width for width in widths), *lines[1:]])


def _width(text: str) -> int:
    return sum(2 if unicodedata.east_asian_width(character) in "WF" else 1 for character in text)


def _block_text(block: Block) -> str:
    texts = []
    for element in block["elements"]:
        sections = element["elements"] if element["type"] == "rich_text_list" else [element]
        texts += ["".join(str(part.get("text", "")) for part in section["elements"]) for section in sections]
    return "\n".join(texts)
