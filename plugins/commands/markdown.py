"""Text of others inside an answer in Markdown: it stays one line and cannot end the place where it stands."""

from __future__ import annotations


def one_line(text: str, limit: int) -> str:
    """The text on one line, without control characters, cut to `limit` characters and then saying how many were left out."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(printable.split())
    if len(line) <= limit:
        return line
    return f"{line[:limit].rstrip()} … ({len(line) - limit:,} characters more)"


def code(text: str) -> str:
    """The text as inline code: `main`."""
    return f"`{one_line(text, 200).replace('`', '´')}`"
