"""Text that a terminal may be given: what can move the cursor, change colours or turn the reading direction is left out."""

from __future__ import annotations

import re
import unicodedata

_CONTROLS = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
_DIRECTIONS = [*range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_SURROGATES = range(0xD800, 0xE000)

_TABLE: dict[int, str | None] = {
    **dict.fromkeys(_CONTROLS),
    **dict.fromkeys(_DIRECTIONS),
    **dict.fromkeys(_SURROGATES, "\N{REPLACEMENT CHARACTER}"),
    0x2028: "\n",
    0x2029: "\n",
}


def printable(text: str) -> str:
    """The text without control characters (line feed and tab stay), escapes, and overrides of direction. It works character
    by character, so pieces may be made printable one by one."""
    return text.translate(_TABLE)


def one_line(text: str, limit: int) -> str:
    """The printable text on one line, at most `limit` characters of it."""
    line = " ".join(printable(text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def wrapped(text: str, columns: int) -> str:
    """The printable text on lines of at most so many columns, broken at spaces; a word that is longer stays whole."""
    return "\n".join(_wrapped(line, columns) for line in text.split("\n"))


def _wrapped(line: str, columns: int) -> str:
    lines = [""]
    for piece in re.findall(r"\s*+\S++|\s++", line.rstrip()):  # the second way keeps it linear in spaces
        if lines[-1] and _cells(lines[-1] + piece) > columns:
            lines.append(piece.lstrip())
        else:
            lines[-1] += piece
    return "\n".join(lines)


def _cells(text: str) -> int:
    """How many columns a text takes: two for each wide character, none for one that combines with another."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
