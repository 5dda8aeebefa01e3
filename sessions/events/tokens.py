"""A fast token estimate, from the number of characters and bytes of a text.

English has about four characters per token, an unspaced script about one. The length in UTF-8 distinguishes them without
examining each character: outside ASCII a character takes one to three extra bytes.
"""

from __future__ import annotations

MESSAGE = 4
"""Tokens of overhead for each message: role and separators."""


def estimate(text: str) -> int:
    """Return the estimated number of tokens of a text; 0 only if it is empty."""
    characters = len(text)
    beyond = 0 if text.isascii() else len(text.encode("utf-8", "replace")) - characters
    return (characters + 2 * beyond + 3) // 4
