"""Text that is safe to write to a terminal.

It has no characters that move the cursor, change colours or the reading direction, or are invisible.
"""

from __future__ import annotations

import json
import re
import unicodedata
from pathlib import PurePath

_CONTROLS = [code for code in (*range(0x20), *range(0x7F, 0xA0)) if chr(code) not in "\n\t"]
_DIRECTIONS = [0x061C, 0x200E, 0x200F, *range(0x202A, 0x202F), *range(0x2066, 0x206A)]
_INVISIBLE = [0x200B, *range(0x2060, 0x2066), *range(0x206A, 0x2070), 0xFEFF, *range(0xFFF9, 0xFFFC)]
"""Zero-width format characters, which make different names look alike.

The joiners (U+200C, U+200D) and the variation selectors are kept: emoji, Persian and Indic scripts need them.
"""

_TAGS = range(0xE0000, 0xE0080)
"""Tag characters: a copy of ASCII that no terminal shows."""

NAME_CHARACTERS = 200

_SURROGATES = range(0xD800, 0xE000)

_TABLE: dict[int, str | None] = {
    **dict.fromkeys(_CONTROLS),
    **dict.fromkeys((*_DIRECTIONS, *_INVISIBLE, *_TAGS)),
    **dict.fromkeys(_SURROGATES, "\N{REPLACEMENT CHARACTER}"),
    0x2028: "\n",
    0x2029: "\n",
}

_ESCAPES = {code: json.dumps(chr(code))[1:-1] for code in _TABLE if code >= 0x20} | {0x7F: "\\u007f"}


def printable(text: str) -> str:
    """Return the text without control characters (line feed and tab are kept), direction marks and invisible characters.

    The function works character by character, so pieces of a stream can be passed one by one.
    """
    return text.translate(_TABLE)


_SEQUENCES = re.compile(r"(?:\x1b\[|\x9b)[0-?]*[ -/]*[@-~]|\x1b[\]PX^_][^\x07\x1b]*(?:\x07|\x1b\\)|\x1b[ -/]*[0-~]")


def without_escapes(text: str) -> str:
    """Return the output of a program as printable text, without the escape sequences that it would send to a terminal.

    A text that a lone carriage return would let the next one overwrite stays, on a line of its own.
    """
    return printable(_SEQUENCES.sub("", text).replace("\r\n", "\n").replace("\r", "\n"))


def escaped(document: str) -> str:
    """Return a JSON document with the characters that `printable` removes written as escapes.

    Its value is unchanged.
    """
    return document.translate(_ESCAPES)


def one_line(text: str, limit: int) -> str:
    """Return the printable text on one line of at most `limit` characters."""
    line = " ".join(printable(text[: 4 * limit]).split())
    return line if len(line) <= limit else line[: limit - 1] + "…"


def sanitized_name(name: str) -> str:
    """Return a file name without folders and unprintable characters, cut to 200 characters."""
    plain = printable(name).replace("\n", "").replace("\t", "").replace("\\", "/").strip("/ ")
    named = PurePath(plain).name[-NAME_CHARACTERS:]
    return "" if named == ".." else named


def wrapped(text: str, columns: int) -> str:
    """Return the printable text wrapped at spaces to at most `columns` columns; longer words stay whole."""
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
    """Return the columns that a text takes: two for each wide character, none for a combining one."""
    return sum(0 if unicodedata.combining(c) else 1 + (unicodedata.east_asian_width(c) in "WF") for c in text)
