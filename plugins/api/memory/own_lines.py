"""Removing recalled text from documents before they are indexed.

Otherwise a copy of a recalled passage would be found beside the original, be recalled instead of it, and be copied again.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

from sessions.state.view import RECALLED

_MARKED = re.compile(r"\[([0-9a-f]{8})\] (?:(end|the record ends)$|the record begins$|.*:$)")
"""The first or last line of a fenced passage in a model's request."""

_CITED = re.compile(r"\[[0-9a-f]{8}\] (?:.+#L[0-9]{1,9}-L[0-9]{1,9}:$|(?>.+?#L[0-9]{1,9}-L[0-9]{1,9} \().*\):$)")
_RETURNED = re.compile(r'"citation": ?"[^"]+#L[0-9]+-L[0-9]+"')
"""A result of `memory_search`."""


def own_lines(text: str) -> list[tuple[int, str]]:
    """Return the lines of a text with their numbers (from 1), without passages that the memory itself had inserted.

    Removes fenced passages with their markers, and results of `memory_search`. A marker without its end removes only
    itself.
    """
    # Only what an editor takes for the end of a line is one: `str.splitlines` has others, and citations would be wrong.
    lines = text.replace("\r\n", "\n").split("\n")
    kept: list[tuple[int, str]] = []
    until = 0
    ends = _ends(lines) if "] end" in text or "record ends" in text else {}
    for number, line in enumerate(lines, 1):
        mark = _MARKED.match(line.strip())
        if mark and not mark[2] and number > until:
            its = ends.get(mark[1], [])
            following = bisect_right(its, number)
            until = its[following] if following < len(its) else until
        if number > until and not _is_given(line):
            kept.append((number, line))
    return kept


def _is_given(line: str) -> bool:
    line = line.strip()
    return line.startswith(RECALLED) or _CITED.match(line) is not None or _RETURNED.search(line) is not None


def _ends(lines: Sequence[str]) -> dict[str, list[int]]:
    """Return the closing lines of each marker."""
    found: dict[str, list[int]] = {}
    for number, line in enumerate(lines, 1):
        mark = _MARKED.match(line.strip())
        if mark and mark[2]:
            found.setdefault(mark[1], []).append(number)
    return found
