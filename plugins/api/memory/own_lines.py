"""A text without what the memory itself had given: recalled text that was written down or said again is not indexed again.

It would be found beside what it was copied from, be recalled instead of it, and be copied again.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence

from sessions.state.recall_message import ABOUT

_MARKED = re.compile(r"\[([0-9a-f]{8})\] (?:(end|the record ends)$|the record begins$|.*:$)")
"""A line by which something is fenced for a model: as it begins, and as it ends."""

_CITED = re.compile(r"\[[0-9a-f]{8}\] (?:.+#L[0-9]{1,9}-L[0-9]{1,9}:$|(?>.+?#L[0-9]{1,9}-L[0-9]{1,9} \().*\):$)")
_RETURNED = re.compile(r'"citation": ?"[^"]+#L[0-9]+-L[0-9]+"')
"""What `memory_search` returns."""


def own_lines(text: str) -> list[tuple[int, str]]:
    """The lines of a text with their numbers, counted from 1, without those that the memory gave: what stands between lines
    with a mark, these too, and what its tool returns. A mark without its end takes no other line along."""
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
    """Whether a line by itself is of the memory's own making."""
    line = line.strip()
    return line.startswith(ABOUT) or _CITED.match(line) is not None or _RETURNED.search(line) is not None


def _ends(lines: Sequence[str]) -> dict[str, list[int]]:
    """For each mark the lines at which what it fences ends."""
    found: dict[str, list[int]] = {}
    for number, line in enumerate(lines, 1):
        mark = _MARKED.match(line.strip())
        if mark and mark[2]:
            found.setdefault(mark[1], []).append(number)
    return found
