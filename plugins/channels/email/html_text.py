"""HTML of mails as Markdown. Nothing is loaded, run or styled; what a reader does not see is left out.

The standard library's parser takes minutes for 100 kB of tags that do not end, and resiliparse's, in C, holds up the other
threads. Mails need no complete parser: tags are found by one expression, in time in proportion to the text.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from html import unescape

HTML_CHARS = 1_000_000
"""Maximum characters of HTML that are read."""

DEPTH = 8
"""Nesting of lists and quotations that is shown."""

ATTRIBUTE_CHARS = 4000
"""Characters of a tag's attributes that are read."""

_BLOCKS = frozenset(
    "address article aside blockquote body center dd details dialog div dl dt fieldset figcaption figure"  # noqa: SIM905
    " footer form h1 h2 h3 h4 h5 h6 header hr li main nav ol p pre section table tbody tfoot thead tr ul".split()
)
_SEPARATED = frozenset(["h1", "h2", "h3", "h4", "h5", "h6", "ol", "p", "pre", "table", "ul", "blockquote"])
"""Blocks with an empty line before and after them."""

_SKIPPED = frozenset(
    [
        "head",
        "script",
        "style",
        "template",
        "title",
        "noscript",
        "svg",
        "math",
        "object",
        "iframe",
        "audio",
        "video",
        "select",
        "textarea",
    ]
)
_VOID = frozenset(
    ["area", "base", "br", "col", "embed", "hr", "img", "input", "link", "meta", "param", "source", "track", "wbr"]
)
_MARKS = {"b": "**", "strong": "**", "i": "*", "em": "*", "s": "~~", "del": "~~", "strike": "~~"}

_HIDDEN = re.compile(
    r"display\s*:\s*none|visibility\s*:\s*hidden|font-size\s*:\s*0(?:px|pt|em)?\s*(?:;|\Z)|mso-hide\s*:\s*all", re.I
)
_TAG = re.compile(r"<(/?)([A-Za-z][A-Za-z0-9]{0,20})([^<>]*)>|<[!?/][^<>]*>")
_ATTRIBUTE = re.compile(r"([A-Za-z-]+)(?:\s*=\s*(?:\"([^\"]*)\"|'([^']*)'|([^\s\"'>]+)))?")


def markdown_of_html(html: str) -> str:
    """Return the visible text of an HTML document as Markdown."""
    converter = _Converter()
    html, position = _without_comments(html[:HTML_CHARS]), 0
    for tag in _TAG.finditer(html):
        converter.add_text(_unescaped(html[position : tag.start()]))
        position = tag.end()
        if tag[2] and tag[1]:
            converter.end(tag[2].lower())
        elif tag[2]:
            converter.begin(tag[2].lower(), dict(_attributes(tag[3][:ATTRIBUTE_CHARS])))
    converter.add_text(_unescaped(html[position:]))
    return converter.text()


def _without_comments(html: str) -> str:
    kept, position = [], 0
    while (begin := html.find("<!--", position)) >= 0:
        kept.append(html[position:begin])
        end = html.find("-->", begin + 4)
        position = end + 3 if end >= 0 else len(html)
    return "".join([*kept, html[position:]])


def _attributes(text: str) -> Iterator[tuple[str, str]]:
    for found in _ATTRIBUTE.finditer(text):
        yield found[1].lower(), _unescaped(found[2] or found[3] or found[4] or "")


def _unescaped(text: str) -> str:
    try:
        return unescape(text)
    except ValueError:  # a number with thousands of digits
        return text


class _Converter:
    """Collects lines; `_line` is the one that is being written."""

    def __init__(self) -> None:
        self._lines: list[str] = []
        self._line: list[str] = []
        self._skipped, self._skipped_depth = "", 0
        self._lists: list[int | None] = []
        self._link: tuple[str, int] | None = None
        self._quoted = 0
        self._preformatted = 0
        self._space = False

    def text(self) -> str:
        """Return everything that was collected."""
        self._end_line()
        lines = [line.rstrip() for line in self._lines]
        return re.sub(r"\n(?:> ?)*(?:\n(?:> ?)*){2,}", "\n\n", "\n".join(lines)).strip("\n")

    def begin(self, tag: str, given: dict[str, str]) -> None:
        """Begin an element with these attributes."""
        if self._skipped:
            self._skipped_depth += tag == self._skipped
            return
        if tag not in _VOID and (tag in _SKIPPED or "hidden" in given or _HIDDEN.search(given.get("style", ""))):
            self._skipped, self._skipped_depth = tag, 1
            return
        if tag in _BLOCKS:
            self._end_line(empty=tag in _SEPARATED and not self._lists)
        match tag:
            case "br":
                self._end_line(force=True)
            case "hr":
                self._lines.append(self._prefix() + "---")
            case "blockquote":
                self._quoted += 1
            case "pre":
                self._lines.append(self._prefix() + "```")
                self._preformatted += 1
            case "ul" | "ol":
                self._lists.append(1 if tag == "ol" else None)
            case "li":
                self._begin_item()
            case "td" | "th" if self._line:
                self._add(" | ")
            case _:
                self._begin_inline(tag, given)

    def _begin_inline(self, tag: str, given: dict[str, str]) -> None:
        match tag:
            case "a":
                self._link = (given.get("href", ""), len(self._line))
            case "img" if alt := given.get("alt", "").strip():
                self._add(f"[{alt}]")
            case "code" | "tt" if not self._preformatted:
                self._add("`")
            case _ if tag in _MARKS:
                self._mark(_MARKS[tag])
            case _ if re.fullmatch(r"h[1-6]", tag):
                self._add("#" * int(tag[1]) + " ")

    def end(self, tag: str) -> None:
        """End an element. One that never began is ignored where it matters."""
        if self._skipped:
            self._skipped_depth -= tag == self._skipped
            self._skipped = self._skipped if self._skipped_depth else ""
            return
        match tag:
            case "a" if self._link is not None:
                self._end_link(*self._link)
                self._link = None
            case "code" | "tt" if not self._preformatted:
                self._add("`")
            case "blockquote" if self._quoted:
                self._end_line()
                self._quoted -= 1
                self._lines.append("")
                return
            case "pre" if self._preformatted:
                self._end_line()
                self._preformatted -= 1
                self._lines.append(self._prefix() + "```")
            case "ul" | "ol" if self._lists:
                self._end_line()
                self._lists.pop()
            case _ if tag in _MARKS:
                self._mark(_MARKS[tag], end=True)
        if tag in _BLOCKS:
            self._end_line(empty=tag in _SEPARATED and not self._lists)

    def add_text(self, data: str) -> None:
        """Add text as it stands between two tags."""
        if self._skipped or not data:
            return
        if self._preformatted:
            first, *others = data.replace("\r\n", "\n").split("\n")
            self._line.append(first)
            for line in others:
                self._end_line(force=True)
                self._line.append(line)
            return
        words = " ".join(data.split())
        if not words:
            self._space = self._space or bool(data)
            return
        self._space = self._space or data[0].isspace()
        self._add(words)
        self._space = data[-1].isspace()

    def _begin_item(self) -> None:
        indent = "  " * min(max(len(self._lists) - 1, 0), DEPTH)
        number = self._lists[-1] if self._lists else None
        if number is not None:
            self._lists[-1] = number + 1
        self._line.append(f"{indent}{'-' if number is None else f'{number}.'} ")
        self._space = False

    def _end_link(self, target: str, since: int) -> None:
        shown = "".join(self._line[since:]).strip()
        if re.match(r"(?:https?|mailto):", target.strip(), re.I) and shown and target.removeprefix("mailto:") != shown:
            del self._line[since:]
            self._line.append(f"{' ' if self._line and not self._line[-1].endswith(' ') else ''}[{shown}]({target.strip()})")

    def _mark(self, mark: str, *, end: bool = False) -> None:
        if end and self._line and self._line[-1] == mark:
            self._line.pop()
        elif end:
            self._line.append(mark)
        else:
            self._add(mark)

    def _add(self, text: str) -> None:
        if text:
            if self._space and self._line:
                self._line.append(" ")
            self._line.append(text)
            self._space = False

    def _prefix(self) -> str:
        return "> " * min(self._quoted, DEPTH)

    def _end_line(self, *, empty: bool = False, force: bool = False) -> None:
        """End the line if it has text or `force` is True; with `empty` an empty line follows what stands there."""
        line, self._line, self._space = "".join(self._line), [], False
        self._link = (self._link[0], 0) if self._link is not None else None
        if line.strip() or force:
            self._lines.append(self._prefix() + line)
        if empty and self._lines and self._lines[-1].strip("> "):
            self._lines.append(self._prefix())
