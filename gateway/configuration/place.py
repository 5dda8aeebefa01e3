"""Where a key stands in a file: its line, found by reading ever more of the file with the parser itself."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from typing import Any

_LONGEST_VALUE = 200
"""Lines that one value may go on for; beyond that its place is not told."""


def line_of(text: str, keys: Sequence[str]) -> int | None:
    """The line, from 1, on which the key begins in a document that parses; None where it cannot be told.

    A document cut off behind a whole statement parses too, so the first such piece that holds the key ends with it.
    """
    lines = text.split("\n")
    for first, line in enumerate(lines, start=1):
        if keys[-1] in line and _begins(lines, first, keys):
            return first
    return None


def _begins(lines: Sequence[str], first: int, keys: Sequence[str]) -> bool:
    """Whether the statement that begins on the line `first` is the one that gives the key."""
    for last in range(first, min(first + _LONGEST_VALUE, len(lines) + 1)):
        try:
            tree = tomllib.loads("\n".join(lines[:last]))
        except (tomllib.TOMLDecodeError, RecursionError):
            continue
        return _holds(tree, keys)
    return False


def _holds(tree: Any, keys: Sequence[str]) -> bool:
    for key in keys:
        if not isinstance(tree, dict):
            return True  # an array of tables: which of them is not told
        if key not in tree:
            return False
        tree = tree[key]
    return True
