"""Markdown as the HTML of Matrix, and as the plain text beside it."""

from __future__ import annotations

import re
from collections.abc import MutableMapping, Sequence
from functools import cache
from html import unescape
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markdown_it.renderer import RendererHTML
    from markdown_it.token import Token
    from markdown_it.utils import OptionsDict

_UNSENT = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]")
"""Characters that are not sent: control characters, those that change the direction of text, and what is no character."""


def plain(text: str) -> str:
    """Return a text without control characters and those that change the direction of text."""
    return _UNSENT.sub("", text.replace("\r\n", "\n"))


def html_of(text: str) -> str:
    """Return the HTML of a Markdown text, or "" if it has no formatting.

    HTML in the text is shown as text. A picture becomes a link: loading it would tell its server who reads it and when.
    """
    html = str(_markdown().render(text)).strip()
    return "" if unescape(html.removeprefix("<p>").removesuffix("</p>").replace("<br />", "")) == text.strip() else html


@cache
def _markdown() -> MarkdownIt:
    from markdown_it import MarkdownIt  # noqa: PLC0415 - a start does not need it

    markdown = MarkdownIt("commonmark", {"html": False, "breaks": True, "xhtmlOut": True}).enable(["table", "strikethrough"])
    markdown.add_render_rule("image", _image)
    markdown.add_render_rule("link_close", _link_close)
    markdown.add_render_rule("th_open", _cell)
    markdown.add_render_rule("td_open", _cell)
    return markdown


def _image(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: MutableMapping[str, Any]
) -> str:
    from markdown_it.common.utils import escapeHtml  # noqa: PLC0415 - already imported by the parser

    address = str(tokens[index].attrGet("src") or "")
    return f'<a href="{escapeHtml(address)}">{escapeHtml(tokens[index].content or address)}</a>{_host(address)}'


def _link_close(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: MutableMapping[str, Any]
) -> str:
    """Name the host behind a link whose text looks like another address."""
    opening = max(place for place in range(index) if tokens[place].type == "link_open")
    words = "".join(token.content for token in tokens[opening:index])
    address = str(tokens[opening].attrGet("href") or "")
    return "</a>" + (_host(address) if "." in words and words != address else "")


def _cell(
    renderer: RendererHTML, tokens: Sequence[Token], index: int, options: OptionsDict, env: MutableMapping[str, Any]
) -> str:
    """Leave the alignment out: Matrix allows no styles."""
    return f"<{tokens[index].tag}>"


def _host(address: str) -> str:
    from markdown_it.common.utils import escapeHtml  # noqa: PLC0415 - already imported by the parser

    try:
        host = urlsplit(address).hostname
    except ValueError:
        host = None
    return f" ({escapeHtml(host)})" if host else ""
