"""The lines of IRC: tags, source, command and parameters; names compared as the server compares them; texts cut to fit.

RFC 1459 and 2812, with the message tags of IRCv3.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

import msgspec

LINE_BYTES = 512
"""Bytes of a line with its source and its end, as the server sends it to others; tags are not counted."""

FORMAT = "\x02\x1d\x1e\x11"
"""The codes that begin and end bold, italic, struck and monospaced text."""

_CODES = re.compile("\x03(?:\\d{1,2}(?:,\\d{1,2})?)?|\x04(?:[0-9A-Fa-f]{6}(?:,[0-9A-Fa-f]{6})?)?|[\x00-\x1f\x7f]")
"""Formatting codes with their colours, and other control characters."""

_UNESCAPED = {":": ";", "s": " ", "\\": "\\", "r": "\r", "n": "\n"}

_UPPER = {
    "ascii": ("ABCDEFGHIJKLMNOPQRSTUVWXYZ", "abcdefghijklmnopqrstuvwxyz"),
    "rfc1459": ("ABCDEFGHIJKLMNOPQRSTUVWXYZ[]\\~", "abcdefghijklmnopqrstuvwxyz{}|^"),
    "rfc1459-strict": ("ABCDEFGHIJKLMNOPQRSTUVWXYZ[]\\", "abcdefghijklmnopqrstuvwxyz{}|"),
}


class Line(msgspec.Struct, frozen=True, kw_only=True):
    """A line that the server sent. `source` is a server's name or `nick!user@host`."""

    command: str
    parameters: tuple[str, ...] = ()
    source: str = ""
    tags: Mapping[str, str] = {}

    @property
    def nick(self) -> str:
        """The nick of the source."""
        return self.source.partition("!")[0]

    def parameter(self, index: int) -> str:
        """Return a parameter; "" if the line has fewer."""
        return self.parameters[index] if index < len(self.parameters) else ""


def parse_line(raw: bytes) -> Line | None:
    """Return a line without its end; None if it has no command. Bytes that are not UTF-8 are read as Latin-1."""
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("latin-1")
    text, tags, source = text.strip("\r\n"), {}, ""
    if text.startswith("@"):
        written, _, text = text[1:].partition(" ")
        tags = dict(_parse_tags(written))
    text = text.lstrip(" ")
    if text.startswith(":"):
        source, _, text = text[1:].partition(" ")
    text, colon, last = text.lstrip(" ").partition(" :")
    words = [word for word in text.split(" ") if word]
    if not words:
        return None
    parameters = (*words[1:], last) if colon else tuple(words[1:])
    return Line(command=words[0].upper(), parameters=parameters, source=source, tags=tags)


def _parse_tags(written: str) -> Iterator[tuple[str, str]]:
    for tag in written.split(";"):
        name, _, value = tag.partition("=")
        yield name, re.sub(r"\\(.?)", lambda found: _UNESCAPED.get(found[1], found[1]), value)


def folded(name: str, mapping: str = "rfc1459") -> str:
    """Return a nick or channel in the form in which the server compares it; `mapping` is its CASEMAPPING."""
    return name.translate(str.maketrans(*_UPPER.get(mapping, _UPPER["rfc1459"])))


def without_codes(text: str) -> str:
    """Return a text without formatting codes and control characters."""
    return _CODES.sub("", text)


def cut_line(text: str, most: int) -> Iterator[str]:
    """Yield a text in pieces of at most `most` bytes, cut between words where possible. Formatting that is on at a cut is
    off in the piece before it, at its end, and on again in the next one."""
    active = ""
    while text:
        piece, text = _first_piece(text, most - len(active))
        piece = active + piece
        active = "".join(code for code in FORMAT if piece.count(code) % 2)
        if piece.strip(FORMAT + " "):
            yield piece


def _first_piece(text: str, most: int) -> tuple[str, str]:
    encoded = text.encode()
    if len(encoded) <= most:
        return text, ""
    head = encoded[:most].decode(errors="ignore")
    space = head.rfind(" ")
    if text[len(head)] != " " and space > len(head) // 2:
        head = head[:space]
    while head and text[len(head)] in "\u200d\ufe0f":  # the middle of an emoji
        head = head[:-1]
    head = head or encoded[:most].decode(errors="ignore")
    return head, text[len(head) :].lstrip(" ")
