"""How many tokens a text is, estimated from its characters and script.

English takes about four characters a token, an unspaced script about one. UTF-8's own width tells them apart without
looking at each character: beyond ASCII a character costs one to three bytes more than its length.
"""

from __future__ import annotations

MESSAGE = 4
"""Tokens that a message costs beside its text: role and separators."""


def estimate(text: str) -> int:
    """The estimated tokens of a text; 0 only for an empty one."""
    characters = len(text)
    beyond = 0 if text.isascii() else len(text.encode("utf-8", "replace")) - characters
    return (characters + 2 * beyond + 3) // 4
