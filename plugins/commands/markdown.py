"""Untrusted text inside Markdown, kept on one line so that it cannot break out of its place."""

from __future__ import annotations


def one_line(text: str, limit: int) -> str:
    """Return the text on one line without control characters, truncated to `limit` characters with a note."""
    printable = "".join(character if character.isprintable() else " " for character in text)
    line = " ".join(printable.split())
    if len(line) <= limit:
        return line
    return f"{line[:limit].rstrip()} … ({len(line) - limit:,} characters more)"


def code(text: str) -> str:
    """Return the text as inline code, such as `main` in backticks."""
    return f"`{one_line(text, 200).replace('`', '´')}`"
