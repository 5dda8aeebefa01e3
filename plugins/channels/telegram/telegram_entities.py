"""Markdown as a text of Telegram with its entities: marked ranges, counted in UTF-16 units.

Entities cannot be misread as text in a `parse_mode` can: no character of an answer needs to be escaped, and none can make
the service refuse it. They nest by Telegram's rules: code contains nothing and is contained in quotes only, a quote contains
no quote, and two entities that overlap are one within the other.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import cache
from typing import Any
from unicodedata import east_asian_width
from urllib.parse import urlsplit

import msgspec
from markdown_it import MarkdownIt
from markdown_it.rules_inline import StateInline
from markdown_it.rules_inline.state_inline import Delimiter
from markdown_it.token import Token

TEXT_UNITS = 4096
"""UTF-16 units of the longest message."""

MOST_ENTITIES = 100
"""Entities of a message; the service ignores further ones."""

_STYLES = {
    "strong_open": "bold",
    "em_open": "italic",
    "s_open": "strikethrough",
    "spoiler_open": "spoiler",
}
_CLOSES = {opening.replace("open", "close") for opening in _STYLES}

_SCHEMES = frozenset(("http", "https"))
"""Schemes of links. `tg://user` would mention somebody; addresses of mail are recognized by the service."""

_LANGUAGE = re.compile(r"[A-Za-z0-9_+#.-]{1,32}")

_LOOKS_LIKE_ADDRESS = re.compile(r"(?:[a-z]+://)?(?:[\w-]+\.)+[a-z]{2,}(?:[/:?#]\S*)?", re.I)

_HIDDEN: dict[int, str | None] = {
    code: None
    for code in (*range(0x20), *range(0x7F, 0xA0), 0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
    if chr(code) not in "\n\t"
} | dict.fromkeys(range(0xD800, 0xE000), "\N{REPLACEMENT CHARACTER}")
"""Control characters and marks of direction, which could make a text look like another."""


class Entity(msgspec.Struct, frozen=True, omit_defaults=True):
    """A marked range of a text: its offset and length in UTF-16 units."""

    type: str
    offset: int
    length: int
    language: str = ""
    url: str = ""


class FormattedText(msgspec.Struct, frozen=True):
    """A text and its entities, sorted by offset, the outer ones first."""

    text: str
    entities: tuple[Entity, ...] = ()

    @property
    def fits(self) -> bool:
        """Return True if the service accepts it as one message, and ignores no entity."""
        return utf16_units(self.text) <= TEXT_UNITS and len(self.entities) <= MOST_ENTITIES


def utf16_units(text: str) -> int:
    """Return the length of a text as Telegram counts it."""
    return len(text) + sum(character > "\uffff" for character in text)


def format_markdown(text: str) -> FormattedText:
    """Return a Markdown text as Telegram shows it.

    Args:
        text: Any text. What is no Markdown, HTML too, stays as it is.
    """
    tokens = _parser().parse(text.translate(_HIDDEN))
    writer = _Writer()
    writer.blocks(tokens)
    return writer.result()


@cache
def _parser() -> MarkdownIt:
    parser = MarkdownIt("commonmark", {"html": False})
    parser.enable(["table", "strikethrough"])
    parser.inline.add_terminator_char("|")
    parser.inline.ruler.before("strikethrough", "spoiler", _spoiler)
    parser.inline.ruler2.before("strikethrough", "spoiler", _pair_spoilers)
    parser.parse("*a*")  # compiles the rules: a thread that comes while another one does sees no rules
    return parser


def _spoiler(state: StateInline, silent: bool) -> bool:
    """Tokenize a run of vertical bars: two of them open or close a spoiler."""
    if silent or state.src[state.pos] != "|":
        return False
    run = state.scanDelims(state.pos, True)
    if run.length != 2:
        state.pending += "|" * run.length
        state.pos += run.length
        return True
    state.push("text", "", 0).content = "||"
    delimiter = Delimiter(
        marker=ord("|"), length=0, token=len(state.tokens) - 1, end=-1, open=run.can_open, close=run.can_close
    )
    state.delimiters.append(delimiter)
    state.pos += 2
    return True


def _pair_spoilers(state: StateInline) -> None:
    """Turn pairs of bars into the tokens of spoilers."""
    lists = [state.delimiters, *(meta["delimiters"] for meta in state.tokens_meta if meta and "delimiters" in meta)]
    for delimiters in lists:
        for start in delimiters:
            if start.marker == ord("|") and start.end != -1:
                _becomes(state.tokens[start.token], "spoiler_open", 1)
                _becomes(state.tokens[delimiters[start.end].token], "spoiler_close", -1)


def _becomes(token: Token, kind: str, nesting: Any) -> None:
    token.type, token.nesting, token.content = kind, nesting, ""


class _Open(msgspec.Struct):
    """An entity that is being written."""

    type: str
    offset: int
    language: str = ""
    url: str = ""


class _Writer:
    """Writes the tokens of a text: the text, and the entities from the open ones as they are closed."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._units = 0
        self._open: list[_Open] = []
        self._entities: list[Entity] = []
        self._indent: list[str] = []
        self._lists: list[tuple[str, int]] = []
        """The open lists: the marker of each, "" for a numbered one, and the next number."""
        self._due = 0
        """Line breaks due before the next character."""
        self._quotes = 0

    def result(self) -> FormattedText:
        """Return what was written."""
        text = "".join(self._pieces).rstrip()
        end = utf16_units(text)
        clipped = [  # the outer ones, which ended later, first
            msgspec.structs.replace(each, length=min(each.length, end - each.offset))
            for each in reversed(self._entities)
            if each.offset < end
        ]
        return FormattedText(text, tuple(sorted(clipped, key=lambda entity: (entity.offset, -entity.length))))

    # --- blocks -------------------------------------------------------------------------------------------------------

    def blocks(self, tokens: Sequence[Token]) -> None:
        """Write the tokens of blocks."""
        at = 0
        while at < len(tokens):
            if tokens[at].type == "table_open":
                end = next(later for later in range(at, len(tokens)) if tokens[later].type == "table_close")
                self._code(_aligned(tokens[at:end]), "")
                at = end
            else:
                self._block(tokens[at])
            at += 1

    def _block(self, token: Token) -> None:
        match token.type:
            case "inline":
                self._inline(token.children or ())
            case "heading_open":
                self._begin("bold")
            case "heading_close":
                self._end("bold")
                self._break(2)
            case "paragraph_close":
                self._break(1 if token.hidden else 2)
            case "fence" | "code_block":
                self._code(token.content.removesuffix("\n"), token.info)
            case "hr":
                self._write("———")
                self._break(2)
            case _:
                self._container(token)

    def _container(self, token: Token) -> None:
        match token.type:
            case "blockquote_open":
                if not self._quotes:
                    self._begin("blockquote")
                else:
                    self._indent.append("│ ")
                self._quotes += 1
            case "blockquote_close":
                self._quotes -= 1
                if not self._quotes:
                    self._end("blockquote")
                else:
                    self._indent.pop()
                self._break(2)
            case "bullet_list_open":
                self._lists.append(("•" if len(self._lists) % 2 == 0 else "◦", 0))
            case "ordered_list_open":
                self._lists.append(("", int(token.attrs.get("start", 1))))
            case "bullet_list_close" | "ordered_list_close":
                self._lists.pop()
                self._break(1 if self._lists else 2)
            case "list_item_open":
                marker, number = self._lists[-1]
                self._lists[-1] = marker, number + 1
                label = f"{marker or f'{number}.'} "
                self._write(label)
                self._indent.append(" " * len(label))
            case "list_item_close":
                self._indent.pop()
                self._break(1)

    def _code(self, content: str, info: str) -> None:
        """Write a block of code, which is not indented; one without anything in it is left out."""
        if not (content := content.rstrip().lstrip("\n")):
            return
        language = info.split(maxsplit=1)[0] if info.strip() else ""
        held = self._suspend()
        self._due = max(self._due, 1) if self._pieces else 0
        self._begin("pre", language=language if _LANGUAGE.fullmatch(language) else "")
        indent, self._indent = self._indent, []
        self._write(content)
        self._indent = indent
        self._end("pre")
        self._resume(held)
        self._break(2)

    # --- inline -------------------------------------------------------------------------------------------------------

    def _inline(self, tokens: Sequence[Token]) -> None:
        links: list[tuple[int, str]] = []
        for token in tokens:
            if style := _STYLES.get(token.type):
                self._begin(style)
            elif token.type in _CLOSES:
                self._end(_STYLES[token.type.replace("close", "open")])
            elif token.type in ("softbreak", "hardbreak"):
                self._due = max(self._due, 1)
            elif token.type == "code_inline":
                held = self._suspend()
                self._begin("code")
                self._write(token.content)
                self._end("code")
                self._resume(held)
            elif token.type == "link_open":
                links.append((len(self._pieces), str(token.attrs.get("href", ""))))
                self._begin("text_link", url=links[-1][1])
            elif token.type == "link_close":
                start, address = links.pop()
                self._end_link("".join(self._pieces[start:]).strip(), address)
            elif token.type == "image":
                address = str(token.attrs.get("src", ""))
                self._begin("text_link", url=address)
                self._write(token.content or "picture")
                self._end_link(token.content or "picture", address)
            else:
                self._write(token.content)

    def _end_link(self, shown: str, address: str) -> None:
        """End a link. If it cannot be one, or if its text looks like another address, its own is written after the text."""
        if shown in (address, address.removeprefix("mailto:")):
            linked, added = False, ""
        else:
            linked = _scheme(address) in _SCHEMES and not _misleads(shown, address)
            added = "" if linked or not address else f" ({address})"
        if linked:
            self._end("text_link")
        else:
            self._open = [each for each in self._open if each.type != "text_link"]
        self._write(added)

    # --- the text and its entities ------------------------------------------------------------------------------------

    def _write(self, text: str) -> None:
        if not text:
            return
        margin = "".join(self._indent)
        if self._due:
            text, self._due = "\n" * self._due + text, 0
        elif not self._pieces:
            text = text.lstrip() if not any(each.type == "pre" for each in self._open) else text
        if margin and "\n" in text:
            first, *rest = text.split("\n")
            text = "\n".join([first, *(margin + line if line else line for line in rest)])
        before = len(text) - len(text.lstrip("\n" if any(each.type == "pre" for each in self._open) else "\n "))
        for each in self._open:  # an entity begins with a visible character
            if each.offset == self._units:
                each.offset += min(before, utf16_units(text))
        self._pieces.append(text)
        self._units += utf16_units(text)

    def _break(self, lines: int) -> None:
        self._due = max(self._due, lines) if self._pieces else 0

    def _begin(self, kind: str, *, language: str = "", url: str = "") -> None:
        self._open.append(_Open(kind, self._units, language, url))

    def _end(self, kind: str) -> None:
        """Close the entity of this kind that was opened last. One within another of its kind is left out."""
        for at in range(len(self._open) - 1, -1, -1):
            if self._open[at].type == kind:
                ended = self._open.pop(at)
                if not any(each.type == kind for each in self._open):
                    self._add(ended)
                return

    def _add(self, ended: _Open) -> None:
        if (length := self._units - ended.offset) > 0:
            self._entities.append(Entity(ended.type, ended.offset, length, ended.language, ended.url))

    def _suspend(self) -> list[_Open]:
        """End the entities that cannot contain code, and return them."""
        held = [each for each in self._open if each.type != "blockquote"]
        kinds = set()
        for each in held:
            if each.type not in kinds:
                self._add(each)
            kinds.add(each.type)
        self._open = [each for each in self._open if each.type == "blockquote"]
        return held

    def _resume(self, held: Sequence[_Open]) -> None:
        for each in held:
            self._begin(each.type, language=each.language, url=each.url)


def _aligned(tokens: Sequence[Token]) -> str:
    """Return a table as lines with aligned columns."""
    rows: list[list[str]] = []
    for token in tokens:
        if token.type == "tr_open":
            rows.append([])
        elif token.type == "inline":
            rows[-1].append("".join(_plain(child) for child in token.children or ()))
    widths = [max(map(_columns, column)) for column in zip(*rows, strict=True)]
    lines = [
        " │ ".join(cell + " " * (width - _columns(cell)) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]
    return "\n".join([lines[0], "─┼─".join("─" * width for width in widths), *lines[1:]])


def _plain(token: Token) -> str:
    """Return the text of a token in a table, with the address of a link after its text."""
    if token.type in ("softbreak", "hardbreak"):
        return " "
    return token.content


def _columns(text: str) -> int:
    """Return the columns that a text takes in a font of fixed width."""
    return sum(2 if east_asian_width(character) in "WF" else 1 for character in text)


def _scheme(address: str) -> str:
    try:
        return urlsplit(address).scheme.lower()
    except ValueError:
        return ""


def _misleads(shown: str, address: str) -> bool:
    """Return True if the text of a link looks like the address of another host."""
    if not _LOOKS_LIKE_ADDRESS.fullmatch(shown):
        return False
    named = urlsplit(shown if "://" in shown else f"https://{shown}").hostname or ""
    return named.removeprefix("www.") != (urlsplit(address).hostname or "").removeprefix("www.")
