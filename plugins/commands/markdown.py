"""Untrusted text inside Markdown, kept on one line so that it cannot break out of its place."""

from __future__ import annotations

import math
import re

MAX_BLOCK = 60_000
"""Maximum characters of a code block."""

_TOKEN = re.compile(r"`[^`]*`|[^\s`]+")
_VERBATIM = frozenset("`*_/:@")
"""Characters of Markdown and of addresses, whose words stay as they are."""


def one_line(text: str, limit: int) -> str:
    """Return the text on one line without control characters, truncated to `limit` characters with a note."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(printable.split())
    if len(line) <= limit:
        return line
    return f"{line[:limit].rstrip()} … ({len(line) - limit:,} more characters)"


def amount(micros: int, currency: str) -> str:
    """Return an amount of money, given in millionths of it: `$1.30`, `$0.0042`, `0.50 EUR`."""
    value = micros / 1_000_000
    digits = 2 if not micros or value >= 0.1 else min(6, 1 - math.floor(math.log10(value)))
    return f"${value:,.{digits}f}" if currency == "USD" else f"{value:,.{digits}f} {currency}"


def highlighted(line: str, query: str) -> str:
    """Return the line with the words of a query in bold, except inside code and links."""
    from plugins.support.text.words import occurrences  # noqa: PLC0415 - stemmers, which only searches need

    kept = [token.span() for token in _TOKEN.finditer(line) if not _VERBATIM.isdisjoint(token[0])]
    pieces, at = [], 0
    for start, end in occurrences(line, query):
        if any(first < end and start < last for first, last in kept):
            continue
        pieces += [line[at:start], "**", line[start:end], "**"]
        at = end
    return "".join([*pieces, line[at:]])


def block_text(text: str) -> str:
    """Return untrusted text for a code block, without what would end the block or is invisible, and of bounded length."""
    whole = _visible(text).replace("```", "´´´")
    more = len(whole) - MAX_BLOCK
    return f"{whole[:MAX_BLOCK]}\n… ({more:,} more characters)" if more > 0 else whole


def quote(text: str, query: str) -> str:
    """Return untrusted Markdown as a quotation, with the words of a query in bold, and of bounded length."""
    lines = highlighted(_visible(text[:MAX_BLOCK]), query).split("\n")
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _visible(text: str) -> str:
    lines = ("".join(each if each.isprintable() or each == "\t" else "�" for each in line) for line in text.split("\n"))
    return "\n".join(lines)


def code(text: str) -> str:
    """Return the text as inline code, such as `main` in backticks."""
    return f"`{one_line(text, 200).replace('`', '´')}`"
