"""Lists in which what belongs to an entry stands below it, such as the subagents of a conversation."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Protocol, TypeVar


class Nestable(Protocol):
    """An entry with a key, and the key of the entry that it belongs to, empty if there is none."""

    @property
    def key(self) -> str: ...

    @property
    def parent(self) -> str: ...


N = TypeVar("N", bound=Nestable)


def nested(entries: Iterable[N]) -> list[tuple[int, N]]:
    """Return all entries with their depths, each behind the one that it belongs to, and otherwise in the given order. One
    whose parent is not among them has depth 0."""
    known = {each.key: each for each in entries}
    below = defaultdict[str, list[N]](list)
    for each in known.values():
        below[each.parent if each.parent in known and each.parent != each.key else ""].append(each)
    found = list[tuple[int, N]]()
    left = [(0, each) for each in reversed(below.pop("", []))]
    while left:
        depth, each = left.pop()
        found.append((depth, each))
        left += ((depth + 1, child) for child in reversed(below.pop(each.key, [])))
    return found + [(0, each) for circle in below.values() for each in circle]
